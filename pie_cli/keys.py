"""Keys of clients on other machines, and the engines' own.

    $PIE_HOME/keys/server.key   the engines' own pair
    $PIE_HOME/keys/NAME.pub     the public half of a client's key

A key file, which a client has, holds its whole pair and the engines' public half: whoever has it
runs programs here, as the client `key:NAME`. Only the public half is kept here.
"""

import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pie_cli import settings
from pie_cli.config import NAME
from pie_cli.usage import UsageError

SERVER = "server.key"
_HEAD = "# A key for an engine of pie: whoever has this file runs programs there.\n"
_KEY = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}")


@dataclass(frozen=True)
class ClientKey:
    """What a key file says."""

    name: str
    server: str  # the engines' public half
    public: str
    secret: str


def folder() -> Path:
    return settings.home() / "keys"


def client_name(key: str) -> str:
    """The client that the holder of a key is; no user's name has a colon."""
    return f"key:{key}"


def new(name: str) -> tuple[ClientKey, str]:
    """A new key, known here from now on, and the text of its file. Raises UsageError."""
    if not NAME.fullmatch(name):
        hint = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit"
        raise UsageError(f"`{name}` cannot be a key's name", hint)
    require_curve()
    from ipc.transport import new_pair

    settings.make_private(folder())
    server = _server_pair()[0]
    public, secret = new_pair()
    path = folder() / f"{name}.pub"
    try:
        _publish(path, public + "\n")
    except FileExistsError:
        hint = f"choose another, or take it back: `pie key remove {name}`"
        raise UsageError(f"there is a key `{name}`", hint) from None
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
    key = ClientKey(name, server, public, secret)
    return key, _HEAD + _toml(asdict(key))


def save(path: Path, text: str) -> None:
    """A new key file, for this user alone. Raises UsageError."""
    try:
        _write(path, text)
    except OSError as error:
        hint = "`-o FILE` names another"
        raise UsageError(f"cannot write `{path}`: {error.strerror}", hint) from None


def known() -> dict[str, str]:
    """The public half of each key that may connect -> its name."""
    found = {}
    for path in sorted(folder().glob("*.pub")):
        with suppress(OSError, UnicodeDecodeError):
            public = path.read_text(encoding="ascii").strip()
            if _is_key(public) and NAME.fullmatch(path.stem):
                found[public] = path.stem
    return found


def remove(name: str) -> None:
    """It may not connect any more; also one that is damaged. Raises UsageError."""
    path = folder() / f"{name}.pub"
    if not NAME.fullmatch(name) or not path.is_file():
        raise UsageError(f"no key `{name}`", "`pie key list` lists them")
    path.unlink(missing_ok=True)


def server_secret() -> str:
    """The secret half of the engines' pair. Raises UsageError where there is no key."""
    require_curve()
    if not known():
        raise UsageError(
            "`--listen` needs a key, and there is none: "
            "without one anybody could run programs here",
            "`pie key new NAME` makes one, for the machine that is to connect",
        )
    return _server_pair()[1]


def read(path: Path) -> ClientKey:
    """The key in a file. Raises UsageError, also when others may read the file."""
    import tomllib

    try:
        mode = path.stat().st_mode
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        key = ClientKey(**content)
    except OSError as error:
        raise UsageError(f"cannot read the key `{path}`: {error.strerror}") from None
    except (ValueError, TypeError):
        key = None
    if not key or not _is_whole(key):
        hint = "`pie key new NAME` makes one, where the engine runs"
        raise UsageError(f"`{path}` is no key", hint)
    if mode & 0o077:
        raise UsageError(f"others can read the key `{path}`", f"chmod 600 {path}")
    return key


def is_own(key: ClientKey) -> bool:
    """Whether it is, or was, for this machine's engines. Raises UsageError."""
    return (folder() / SERVER).exists() and key.server == _server_pair()[0]


def require_curve() -> None:
    """Raises UsageError where ZeroMQ has no encryption."""
    from ipc.transport import has_keys

    if not has_keys():
        raise UsageError(
            "this ZeroMQ was built without CURVE, so nothing can connect over a network",
            "`pip install --force-reinstall pyzmq` gets one that has it",
        )


def _server_pair() -> tuple[str, str]:
    """(public, secret), made at the first call. Raises UsageError."""
    import tomllib

    from ipc.transport import new_pair

    path = folder() / SERVER
    if not path.exists():
        with suppress(FileExistsError):  # another command was first
            _publish(path, _toml(dict(zip(("public", "secret"), new_pair(), strict=True))))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        public, secret = content["public"], content["secret"]
    except (OSError, ValueError, KeyError):
        public = secret = None
    if not (_is_key(public) and _is_key(secret)):
        hint = f"remove `{folder()}`, and make the keys anew"
        raise UsageError(f"`{path}` is no pair of keys", hint)
    return public, secret


def _is_key(text: object) -> bool:
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def _is_whole(key: ClientKey) -> bool:
    has_name = isinstance(key.name, str) and NAME.fullmatch(key.name)
    return bool(has_name) and all(map(_is_key, (key.server, key.public, key.secret)))


def _toml(values: dict[str, str]) -> str:
    return "".join(f'{name} = "{value}"\n' for name, value in values.items())


def _publish(path: Path, text: str) -> None:
    """A file that is there whole or not at all: engines that run look into the folder."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    _write(part, text)
    try:
        os.link(part, path)
    finally:
        part.unlink()


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        path.unlink()
        raise
