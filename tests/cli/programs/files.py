"""Sends files, prints on both streams, and returns what it was given as messages and files."""

import sys

from inferlet import session


async def main(input: dict) -> dict:
    session.send_file(b"first")
    session.send_file(b"")
    print("to stdout")
    print("to stderr", file=sys.stderr)
    session.send({"ready": True})
    message = await session.receive()
    data = await session.receive_file()
    return {"message": message, "file": data.decode()}
