"""What may come next on a command line, for shells. Knows the verbs from a generated table, so that
no command tree is loaded: an answer takes some 20 ms of CPU, 60 where it asks an engine.

`pie __complete INDEX WORD…` prints `files`, `folders`, or `words` and then a word a line.
"""

import os
from collections.abc import Callable

from pie_cli.completion_words import VERBS
from pie_cli.engine_flags import take_engine


def main(arguments: list[str]) -> int:
    """`arguments`: the index of the word under the cursor, and all words, `pie` the first."""
    index, words = int(arguments[0]), arguments[1:]
    kind, found = complete(words[1:index], words[index] if index < len(words) else "")
    print("\n".join([kind, *found]))
    return 0


def complete(before: list[str], current: str) -> tuple[str, list[str]]:
    """The kind of what comes after the words `before`, and the words that begin with `current`."""
    verb, rest = _verb(take_engine(before))
    if "--" in rest:
        return "files", []  # the app's own arguments
    kind = _kind(verb, rest, current)
    if kind in ("files", "folders"):
        return kind, []
    if kind == "limits":
        words = _more_limits(current, is_split=rest[-1] == "=")
    else:
        words = SOURCES[kind]() if kind in SOURCES else kind.split()
    if kind == "processes":
        words = [word for word in words if word not in rest]
    return "words", sorted(word for word in words if word.startswith(current))


def _verb(before: list[str]) -> tuple[str, list[str]]:
    """The verb, of two words where there are such, and what follows it."""
    for length in (2, 1):
        if (verb := " ".join(before[:length])) in VERBS and len(before) >= length:
            return verb, before[length:]
    return "", before


def _kind(verb: str, rest: list[str], current: str) -> str:
    arguments, options = VERBS[verb]
    if rest and rest[-1] == "=":  # a shell cuts there: `--file NAME=PATH`, `--limit KEY=N,KEY=N`
        while len(rest) > 1 and rest[-1] == "=" and not rest[-2].startswith("-"):
            rest = rest[:-2]
        return "limits" if rest and options.get(rest[-1]) == "limits" else "files"
    if rest and (value := options.get(rest[-1])):
        return value
    if current.startswith("-"):
        return " ".join(options)
    given, is_value = 0, False
    for word in rest:
        if not is_value and not word.startswith("-"):
            given += 1
        is_value = not is_value and bool(options.get(word))
    if not arguments:
        return ""
    if verb == "config set" and given == 1:
        return _kind_of_setting(rest[-1])
    if given < len(arguments):
        return arguments[given]
    return arguments[-1] if arguments[-1] == "processes" else ""


def _kind_of_setting(name: str) -> str:
    from pie_cli.config import KEYS

    if name == "run.model":
        return "models"
    key = KEYS.get(name)
    kinds = {"file": "files", "folder": "folders", "address": "local"}
    return "" if key is None else kinds.get(key.kind, " ".join(key.choices))


def _more_limits(current: str, *, is_split: bool) -> list[str]:
    """`current` up to its last comma, with each key that may come there.

    `is_split`: a shell has cut off what was before its last `=`.
    """
    before, comma, _ = current.rpartition(",")
    if is_split and not comma:
        return []  # within a value
    typed = {pair.partition("=")[0] for pair in before.split(",")}
    return [f"{before}{comma}{word}" for word in _limits() if word.removesuffix("=") not in typed]


def _processes() -> list[str]:
    from pie_cli.engines import live_rows

    return [row.id for row in live_rows()]


def _models() -> list[str]:
    from pie_cli import settings

    try:
        return [name for name in os.listdir(settings.home() / "models") if settings.is_stored(name)]
    except OSError:
        return []


def _settings() -> list[str]:
    from pie_cli.config import KEYS

    return list(KEYS)


def _limits() -> list[str]:
    from pie_cli.limits import KEYS

    return [f"{key}=" for key in KEYS]


def _keys() -> list[str]:
    from pie_cli.keys import known

    return list(known().values())


SOURCES: dict[str, Callable[[], list[str]]] = {
    "processes": _processes, "models": _models, "settings": _settings, "limits": _limits,
    "keys": _keys,
}  # fmt: skip
