"""Messages to and from the client, and the files that it attached."""

import json
from typing import Any

import numpy as np

from inferlet.runtime import handles

__all__ = ["file", "id", "receive", "send"]


def send(message: Any) -> None:
    """One `message` event at the client: a str as text, anything else as JSON. Never waits."""
    conversation = handles.current().conversation
    if isinstance(message, str):
        conversation.send(False, _checked(message))
    else:
        conversation.send(True, json.dumps(message, allow_nan=False, default=_as_json))


async def receive() -> Any:
    """The oldest message of the inbox; waits for one. EOFError once the client has closed its end
    and the inbox is empty."""
    return await handles.current().conversation.receive()


def file(name: str) -> bytes:
    """Content attached at launch with `--file name=path`."""
    files = handles.current().conversation.files
    if name not in files:
        attached = ", ".join(sorted(files)) or "none"
        raise KeyError(f"no file `{name}` is attached (attached: {attached})")
    return files[name]


def id() -> str:
    """This process's id."""
    return handles.current().conversation.process


def _as_json(value: Any) -> Any:
    """What `json` does not know: numpy values and objects with `model_dump()`."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump()
    raise TypeError(f"`session.send` got {type(value).__name__}, which is no JSON value")


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the message is no Unicode text: {error.reason}") from None
    return text
