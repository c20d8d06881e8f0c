"""Never asks for messages."""

import asyncio


async def main() -> None:
    await asyncio.sleep(600)
