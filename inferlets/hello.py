"""The smallest inferlet: no model, just an input and a result.

    pie run inferlets/hello.py -- --name Ada
"""


async def main(input: dict) -> dict:
    return {"hello": input.get("name", "world")}
