"""Which engine people mean: one on this machine, or one at an address with a key for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pie_cli import config
from pie_cli.output import note
from pie_cli.usage import UsageError

if TYPE_CHECKING:
    from pie_cli.keys import ClientKey
    from pie_cli.remote_connection import RemoteConnection

LOCAL = "local"  # this machine's, whatever the environment or the file say


@dataclass(frozen=True)
class Remote:
    """An engine on a network."""

    address: str
    key: "ClientKey"


def chosen(address: str | None = None, key: str | None = None) -> Remote | None:
    """The engine that flags, environment or file name; None: this machine's. Raises UsageError."""
    found = config.setting("engine.address", address)
    if found.value in (None, LOCAL):
        return None
    from pie_cli import keys

    path = config.value("engine.key", key)
    if path is None:
        hint = "`--key FILE` or `PIE_KEY` names one; `pie key new NAME` makes one, where it runs"
        raise UsageError(f"the engine at {found.value} needs a key", hint)
    return Remote(found.value, keys.read(Path(path)))


def connect(
    remote: Remote, client: str | None = None, model: config.Setting | None = None
) -> "RemoteConnection":
    """A greeted connection. Raises UsageError for what an engine elsewhere does not do, and
    EngineLost."""
    from pie_cli.remote_connection import RemoteConnection

    own = config.setting("run.client", client)
    if own.source == "flag":
        hint = "the key says whose processes these are"
        raise UsageError(f"`--client {client}` names a client of another machine", hint)
    connection = RemoteConnection(remote)
    try:
        welcome = connection.greet()
        if model and model.source == "flag" and model.value != welcome.model:
            hint = "leave `--model` out"
            raise UsageError(f"the engine at {remote.address} has `{welcome.model}`", hint)
    except BaseException:
        connection.close()
        raise
    return connection


def only_here(what: str) -> None:
    """Of what is done on this machine alone: an engine elsewhere that this command line chose is a
    UsageError; one that is chosen for all commands is told of."""
    refuse(what, only_flag=True)
    found = config.setting("engine.address")
    if found.value not in (None, LOCAL):
        note(f"note: {what}; {found.value} ({found.place}) is on another machine")


def refuse(what: str, only_flag: bool = False) -> None:
    """UsageError where an engine elsewhere is chosen, for what is done to engines of this machine.

    `only_flag`: chosen by this very command line.
    """
    found = config.setting("engine.address")
    if found.value not in (None, LOCAL) and (found.source == "flag" or not only_flag):
        place = f" ({found.place})" if found.place else ""
        hint = "do it there; `--engine local` means this machine's engine"
        raise UsageError(f"{what}, and {found.value} is on another machine{place}", hint)
