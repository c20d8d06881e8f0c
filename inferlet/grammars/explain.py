"""The expected text in words, for messages and for people who debug a grammar."""


def explain(text: bytes, following: set[int], is_complete: bool, kind: str, source: str) -> str:
    return str(sorted(following))
