"""The input of a launch from what was typed: `--` words, `--input`, `--file`. Launches nothing."""

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipc.client import MAX_FILES
from pie_cli.usage import UsageError

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_DIGITS = 4300  # more than Python converts


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """`--max-tokens 5 --flag -k v rest` -> {"max_tokens": 5, "flag": True, "k": "v", "_": ["rest"]}.

    The word after an option is its value unless it begins with `-` and is no number.
    """
    options: dict[str, Any] = {}
    rest: list[Any] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_option(word):
            rest.append(_value(word, "an argument"))
            continue
        name, has_value, text = word.partition("=")
        key = _key(name)
        if not has_value and index < len(words) and not _begins_option(words[index]):
            has_value, text = "=", words[index]
            index += 1
        options[key] = _value(text, f"`{name}`") if has_value else True
    return options | ({"_": rest} if rest else {})


def _is_number(word: str) -> bool:
    return bool(_INTEGER.fullmatch(word) or _FLOAT.fullmatch(word))


def _begins_option(word: str) -> bool:
    return word.startswith("-") and not _is_number(word)


def _is_option(word: str) -> bool:
    return _begins_option(word) and word != "-"


def _key(name: str) -> str:
    key = re.sub("^--?", "", name).replace("-", "_")
    if not key:
        raise UsageError(f"`{name}` after `--` is an option without a name")
    return key


def _value(text: str, where: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if text.startswith(("{", "[")):
        return parse_json(text, f"the value of {where}")
    return text


def parse_json(text: str, where: str) -> Any:
    """Strict JSON: no NaN, no infinity. `where` begins the error: "the value of `--k`"."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"`{name}` is no JSON value")


def read_input(source: str | None) -> dict[str, Any]:
    """The object of `--input`: JSON, `@FILE`, or `-` for stdin."""
    if source is None:
        return {}
    if source == "-":
        text = _decode(sys.stdin.buffer.read(), "stdin")
    elif source.startswith("@"):
        text = _decode(read_file(source[1:], "--input"), f"`{source[1:]}`")
    else:
        text = source
    value = parse_json(text, "`--input`")
    if not isinstance(value, dict):
        raise UsageError("`--input` is no JSON object", 'an object looks like `{"key": "value"}`')
    return value


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8: {error}") from None


def read_file(path: str, option: str, limit: int = -1) -> bytes:
    """A file that an option names: all of it, or no more than `limit` bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"`{option}` cannot read `{path}`: {reason}") from None


def read_files(pairs: Sequence[str]) -> dict[str, bytes]:
    """The contents of `--file NAME=PATH`, each name once."""
    files: dict[str, bytes] = {}
    left = MAX_FILES
    for pair in pairs:
        name, has_path, path = pair.partition("=")
        if not name or not has_path or not path:
            raise UsageError(f"`--file {pair}` is not of the form NAME=PATH")
        if name in files:
            raise UsageError(f"`--file` names `{name}` twice")
        if (size := _size(path)) > left:
            raise UsageError(
                f"`--file {pair}` is too large: {size:,} bytes, where {left:,} are left",
                f"the files of one launch may have {MAX_FILES >> 20} MiB together",
            )
        files[name] = read_file(path, "--file", left + 1)
        left -= len(files[name])
        if left < 0:  # a device, or it grew while it was read
            raise UsageError(
                f"`--file {pair}` is too large",
                f"the files of one launch may have {MAX_FILES >> 20} MiB together",
            )
    return files


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0  # reading it tells why
