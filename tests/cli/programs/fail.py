"""Fails in a function of its own."""


def main(input: dict) -> None:
    check(input)


def check(input: dict) -> None:
    raise ValueError("nothing is right")
