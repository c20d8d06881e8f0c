"""Waits for a message for ever."""

from inferlet import session


async def main(input: dict) -> None:
    await session.receive()
