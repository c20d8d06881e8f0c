"""Hints for errors in Python's own words: what they have to do with an inferlet.
Looks at the error, at the user's line and at what it called. Changes no error.
"""

import ast
import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePath
from typing import Any

_NOT_AWAITED = re.compile(r"""['"](coroutine|Results|Future|Task)['"]|\bcoroutine found\b""")
_NOT_AWAITABLE = re.compile(
    r"object (\w+) can't be used in 'await'|'(\w+)' object can't be awaited"
)
_CALLED = re.compile(
    r"([\w.]+)\(\) (got an unexpected keyword argument|missing \d+ required|takes .* given|"
    r"got multiple values|got some positional-only)"
)
_IN_LOOP = re.compile(r"cannot be called from a running event loop|event loop is already running")
# Python's own modules, by what an app wants that they get to.
_NETWORK = {"socket", "ssl", "streams", "request", "client", "smtplib", "ftplib"}
_PROCESSES = {"subprocess", "base_subprocess", "popen_fork", "popen_spawn_posix", "synchronize"}
_OWN = re.compile(r"\b(fork|forkpty|posix_spawn\w*|exec[lv]\w*|spawn[lv]\w*|popen)\b")

NO_FILES = (
    "an inferlet opens no files: read what `--file NAME=PATH` attached with "
    '`session.file("NAME")`, '
    "and give files with `session.send_file(data)`"
)
NO_NETWORK = (
    "an inferlet has no network: it talks with `session.send` and `await session.receive()`, and "
    "its client may fetch what it asks for"
)
NO_PROCESSES = "an inferlet starts no programs: what it needs of them its client can send it"
NO_THREADS = (
    "an inferlet has no threads: use tasks, `asyncio.create_task(f())` or `await asyncio.gather(…)`"
)


def advice(error: BaseException, text: str, filenames: Collection[str], input_name: str) -> str:
    """The hint for an error that says `text`; empty when there is none. `filenames`: the user's.
    `input_name`: what `main` calls its input."""
    if isinstance(error, RuntimeError) and _IN_LOOP.search(text):
        return "`main` runs in an event loop already: write `async def main`, and `await` in it"
    if isinstance(error, TypeError) and (found := _NOT_AWAITABLE.search(text)):
        return _needless_await(error, filenames, found[1] or found[2])
    if isinstance(error, TypeError | AttributeError) and _NOT_AWAITED.search(text):
        return "a result was not awaited: write `await` where it comes from"
    if isinstance(error, TypeError) and (found := _CALLED.match(text)):
        return _signature(found[1])
    if type(error) is KeyError:
        return _missing_input(error, filenames, input_name)
    return _of_the_sandbox(error, text, filenames)


# ---- await


def _needless_await(error: BaseException, filenames: Collection[str], kind: str) -> str:
    for node in ast.walk(_expression(error, filenames)):
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            gives = "returned already" if kind == "NoneType" else f"given its {kind} already"
            return f"`{called}` is not to be awaited, it has {gives}: drop the `await`"
    return f"a value of type {kind} is not to be awaited: drop the `await`"


def _expression(error: BaseException, filenames: Collection[str]) -> ast.AST:
    """The expression of the user's that raised the error; an empty module when it is not known."""
    for frame in reversed(_frames(error)):
        if frame.filename not in filenames:
            continue
        text = "".join(_source(frame))
        try:
            return ast.parse(text.strip())
        except (SyntaxError, ValueError):
            break
    return ast.Module([], [])


def _source(frame: traceback.FrameSummary) -> Iterator[str]:
    """The characters that the frame was at."""
    if frame.lineno is None or frame.colno is None or frame.end_lineno is None:
        return
    for number in range(frame.lineno, frame.end_lineno + 1):
        data = linecache.getline(frame.filename, number).encode()
        end = frame.end_colno if number == frame.end_lineno else None
        start = frame.colno if number == frame.lineno else 0
        yield data[start:end].decode(errors="replace")


# ---- the input


def _missing_input(error: KeyError, filenames: Collection[str], input_name: str) -> str:
    key = error.args[0] if error.args else None
    if not isinstance(key, str):
        return ""
    for node in ast.walk(_expression(error, filenames)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == input_name:
            return (
                f"the input lacks it: launch with `-- --{key.replace('_', '-')} VALUE`, or write "
                f"`{input_name}.get({key!r}, …)`"
            )
    return ""


# ---- calls of the SDK


def _signature(qualified: str) -> str:
    """How a function of the SDK is called."""
    name, function = _find(qualified)
    if function is None:
        return ""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    if parameters and parameters[0].name == "self":
        name, parameters = f".{qualified.rpartition('.')[2]}", parameters[1:]
    taken = (p.replace(annotation=p.empty) for p in parameters)
    call = f"write `{name}({', '.join(map(str, taken))})`"
    is_by_row = function.__module__.startswith("inferlet.eta") and parameters
    return f"{call}; rows lie along the last axis" if is_by_row else call


def _find(qualified: str) -> tuple[str, Callable[..., Any] | None]:
    """The SDK's own function or method of that name, and how an app writes it."""
    import inferlet

    *owner, name = qualified.split(".")
    places = owner[:1] or ["", "model", "chat", "session", "tools", "mask", "intrinsics"]
    for place in places:
        found = getattr(getattr(inferlet, place, None) if place else inferlet, name, None)
        if inspect.isfunction(found) and found.__module__.startswith("inferlet"):
            return f"{place}.{name}" if place else name, found
    return "", None


# ---- what the sandbox has not


def _of_the_sandbox(error: BaseException, text: str, filenames: Collection[str]) -> str:
    if not isinstance(error, OSError | RuntimeError):
        return ""
    frames = _frames(error)
    own = next((n for n, f in enumerate(reversed(frames)) if f.filename in filenames), None)
    if own is None:
        return ""
    called = {PurePath(frame.filename).stem for frame in frames[len(frames) - own :]}
    if called & _NETWORK:
        return NO_NETWORK
    if "can't start new thread" in text:
        return NO_THREADS
    if not isinstance(error, OSError) or isinstance(error, ConnectionError | TimeoutError):
        return ""
    line = frames[len(frames) - own - 1].line or ""
    if line.startswith("raise"):  # the app's own words
        return ""
    if called & _PROCESSES or (error.filename is None and _OWN.search(line)):
        return NO_PROCESSES
    return NO_FILES if error.filename is not None or "tempfile" in called else ""


def _frames(error: BaseException) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)
