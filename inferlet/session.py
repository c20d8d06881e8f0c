"""Messages and files to and from the client, and messages to other processes."""

from typing import Any

import numpy as np

from inferlet import naming
from inferlet.errors import with_hint
from inferlet.runtime import handles, json_text
from ipc import messages as m

__all__ = ["file", "id", "receive", "receive_file", "send", "send_file", "send_to"]


def send(message: Any) -> None:
    """One `message` event at the client: a str as text, anything else as JSON. Never waits."""
    conversation = handles.current().conversation
    conversation.send(*_as_message(message))


def send_to(process: str, message: Any) -> None:
    """Puts `message` into the inbox of the process with that id. Blocks until the
    hub's short answer has come; it is not awaited.

    LookupError: no live process has that id. PermissionError: it is another client's.
    BufferError: its inbox is full.
    """
    if not isinstance(process, str):
        raise TypeError(f"`session.send_to` got {naming.kind(process)} as a process's id")
    is_json, text = _as_message(message)
    if not _is_unicode(process):  # no id is like that
        raise LookupError(f"no message was sent to {process!r}: no live process has that id")
    outcome = handles.current().conversation.send_to(str.__str__(process), is_json, text)
    if outcome:
        kind, words = _REFUSALS[outcome]
        raise kind(f"no message was sent to `{process}`: {words}")


_REFUSALS = {
    "unknown": (LookupError, "no live process has that id"),
    "other client": (PermissionError, "it is a process of another client"),
    "full": (BufferError, "its inbox is full; wait until it has received some"),
}


class _NoFile(KeyError):
    """A KeyError that shows its words, where KeyError itself shows their repr."""

    __str__ = Exception.__str__


_NoFile.__name__ = _NoFile.__qualname__ = "KeyError"
_NoFile.__module__ = "builtins"


def send_file(data: bytes | bytearray | memoryview) -> None:
    """One `file` event at the client with the bytes. At most 256 MiB."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"`session.send_file` got {naming.kind(data)}; it takes bytes")
    view = memoryview(data)
    view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    if len(view) > m.MAX_FILE:
        raise ValueError(f"a file of {len(view):,} bytes; at most {m.MAX_FILE:,} can be sent")
    handles.current().conversation.send_file(view)


async def receive() -> Any:
    """The oldest message of the inbox; waits for one. Text is a str, and JSON its value: a line
    typed at `pie run` or `pie attach` is text even if it looks like JSON; `pie send` sends as JSON
    what begins with `{` or `[`. EOFError once the client has closed its end
    and the inbox is empty."""
    return await handles.current().conversation.receive()


async def receive_file() -> bytes:
    """The next file that the client transferred after launch; waits for one. EOFError once the
    client has closed its end and all files were received."""
    return await handles.current().conversation.receive_file()


def file(name: str) -> bytes:
    """Content attached at launch with `--file name=path`."""
    if not isinstance(name, str):
        raise TypeError(f"`session.file` got {naming.shown(name)}; it takes a name, a str")
    files = handles.current().conversation.files
    if name not in files:
        attached = ", ".join(sorted(files)) or "none"
        raise _NoFile(
            with_hint(
                f"no file `{name}` is attached (attached: {attached})",
                f"launch with `--file {name}=PATH`",
            )
        )
    return files[name]


def id() -> str:
    """This process's id."""
    return handles.current().conversation.process


def _as_message(message: Any) -> tuple[bool, str]:
    """Whether it travels as JSON, and its text."""
    if isinstance(message, str):
        return False, _checked(str.__str__(message))  # numpy's, or an enum's, as a plain one
    try:
        return True, json_text.dumps(message, "the message", _as_json)
    except (TypeError, ValueError) as error:
        what = f"no message was sent: JSON cannot hold it: {error}"
        hint = "send text, or dicts, lists, numbers, numpy values and None"
        raise type(error)(with_hint(what, json_text.repair(error, hint))) from None


def _as_json(value: Any) -> Any:
    """What `json` does not know: numpy values and objects with `model_dump()`."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the message is no Unicode text: {error.reason}") from None
    return text
