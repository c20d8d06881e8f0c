"""Settings that people keep: which there are, what may stand in them, and where each comes from.

A flag goes before the environment, that before `$PIE_HOME/config.toml`, that before the default.
Writes nothing; refuses a file that it does not understand rather than guess.
"""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_cli import settings
from pie_cli.usage import UsageError

MAX_SECONDS = 1e9
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(r"local|tcp://(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}")
PATHS = ("folder", "file")
#: What the command line says before its verb.
FLAGS: dict[str, str] = {}


@dataclass(frozen=True)
class Key:
    """One setting. `default` is what holds when nobody says anything; None: see `help`."""

    name: str
    kind: str  # "seconds" | "name" | "folder" | "file" | "choice" | "address" | "text"
    default: Any
    environment: str
    flag: str
    help: str
    choices: tuple[str, ...] = ()

    def parse(self, value: Any) -> Any:
        """The value of a text, or of a TOML value. Raises ValueError saying what is wanted."""
        if self.kind == "seconds":
            return _seconds(value)
        if not isinstance(value, str) or not value:
            raise ValueError("is no text")
        if self.choices and value not in self.choices:
            raise ValueError(f"is not one of {', '.join(self.choices)}")
        if self.kind == "address" and not ADDRESS.fullmatch(value):
            raise ValueError("is neither `tcp://HOST:PORT` nor `local`")
        if self.kind == "name" and not NAME.fullmatch(value):
            raise ValueError("is no name: letters, digits, `.`, `_` and `-`")
        return os.path.abspath(os.path.expanduser(value)) if self.kind in PATHS else value


@dataclass(frozen=True)
class Setting:
    """A value, and who set it."""

    key: Key
    value: Any
    source: str  # "default" | "file" | "environment" | "flag"

    @property
    def place(self) -> str:
        """Where it was set, unless that is the command itself; else empty."""
        if self.source == "file":
            return f"`{self.key.name}` in `{path()}`"
        return f"`{self.key.environment}`" if self.source == "environment" else ""


KEYS = {
    key.name: key
    for key in (
        Key("engine.address", "address", None, "PIE_ENGINE", "--engine",
            "an engine on another machine, `tcp://HOST:PORT`; by default this machine's, `local`"),
        Key("engine.keep_alive", "seconds", 300.0, "PIE_KEEP_ALIVE", "--keep-alive",
            "seconds that an idle engine stays; 0 lets it leave with the run"),
        Key("engine.key", "file", None, "PIE_KEY", "--key",
            "the file that `pie key new` has made, where that engine runs"),
        Key("engine.sandbox", "choice", "auto", "PIE_SANDBOX", "--sandbox",
            "`full` refuses to start with less", ("auto", "full")),
        Key("run.client", "name", None, "PIE_CLIENT", "--client",
            "whose processes these are; by default the user's"),
        Key("run.files", "folder", None, "PIE_FILES", "-o",
            "where files that apps send are stored; by default `files` in PIE_HOME"),
        Key("run.model", "text", None, "PIE_MODEL", "--model",
            "the model to run; by default the store's (`pie models default`)"),
    )
}  # fmt: skip


def path() -> Path:
    """The file of settings, whether or not it exists."""
    return settings.home() / "config.toml"


def value(name: str, flag: Any = None) -> Any:
    """The value of a setting; `flag` is what the command line says of it, None for nothing."""
    return setting(name, flag).value


def setting(name: str, flag: Any = None) -> Setting:
    """A setting with its source. Raises UsageError for a value that it cannot have."""
    key = KEYS[name]
    flag = FLAGS.get(name) if flag is None else flag
    if flag is not None:
        return Setting(key, _parsed(key, flag, f"`{key.flag} {flag}`", ""), "flag")
    if text := os.environ.get(key.environment):
        where = f"`{key.environment}` is `{text}`, which"
        return Setting(key, _parsed(key, text, where, key.help), "environment")
    found = in_file(read_file()).get(name)
    if found is None:
        return Setting(key, key.default, "default")
    where = f"`{name}` in `{path()}` is `{found}`, which"
    return Setting(key, _parsed(key, found, where, f"`pie config unset {name}` removes it"), "file")


def known(name: str) -> Key:
    """The key of that name. Raises UsageError."""
    if name not in KEYS:
        raise UsageError(f"no setting `{name}`", f"there are: {', '.join(KEYS)}")
    return KEYS[name]


def read_file() -> dict[str, Any]:
    """The tables of config.toml, {} without one. Raises UsageError."""
    try:
        text = path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path()}` is not UTF-8: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read `{path()}`: {error.strerror}") from None
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"`{path()}` is no TOML: {error}", "correct it, or remove it") from None


def in_file(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings in the tables of a file by their dotted names. Raises UsageError."""
    flat: dict[str, Any] = {}
    for table, content in tables.items():
        pairs = content.items() if isinstance(content, dict) else [("", content)]
        flat |= {f"{table}.{name}".rstrip("."): value for name, value in pairs}
    if unknown := [name for name in flat if name not in KEYS]:
        raise UsageError(
            f"`{path()}` sets `{unknown[0]}`, which is no setting",
            f"`pie config unset {unknown[0]}` removes it; there are: {', '.join(KEYS)}",
        )
    return flat


def _parsed(key: Key, found: Any, where: str, hint: str) -> Any:
    try:
        return key.parse(found)
    except ValueError as error:
        raise UsageError(f"{where} {error}", hint) from None


def _seconds(value: Any) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < MAX_SECONDS:
        raise ValueError("is no number of seconds")
    return seconds
