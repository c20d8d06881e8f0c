"""Sends text, an object and a print, and returns what it was given."""

from inferlet import session


def main(input: dict) -> dict:
    session.send("one ")
    session.send("line")
    session.send({"an": "object"})
    print("a print")
    return {"input": input, "text": "é"}
