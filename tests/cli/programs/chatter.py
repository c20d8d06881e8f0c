"""Answers each line, and returns how many there were."""

from inferlet import session


async def main() -> int:
    print("say something")
    count = 0
    while True:
        try:
            message = await session.receive()
        except EOFError:
            return count
        print(f"you said {message}")
        count += 1
