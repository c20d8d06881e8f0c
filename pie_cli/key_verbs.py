"""`pie key`: which other machines may use the engines of this one."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pie_cli import keys, remote
from pie_cli.output import note

app = typer.Typer(help="Keys for clients on other machines.", no_args_is_help=True)

_HERE = "`pie key` is about who may use this machine's engines"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose processes these will be.")]


@app.command()
def new(
    name: Name,
    output: Annotated[
        str | None,
        typer.Option("-o", metavar="FILE", help="Where to, NAME.key by default; `-` is stdout."),
    ] = None,
) -> int:
    """Make a key: a file for the machine that is to connect.

    Whoever has the file runs programs here, in the sandbox, and meets none but its own.
    """
    from pie_cli.usage import UsageError

    remote.only_here(_HERE)
    path = Path(output or f"{name}.key")
    if output != "-" and path.exists():
        raise UsageError(f"`{path}` exists", _what_is_there(path))
    _, text = keys.new(name)
    if output == "-":
        sys.stdout.write(text)
        return 0
    try:
        keys.save(path, text)
    except UsageError:
        keys.remove(name)
        raise
    print(path)
    note(
        "\n1. here:  pie serve --listen tcp://ADDRESS:PORT"
        f"\n2. copy {path} to the other machine, over a channel that nobody reads"
        f"\n3. there: pie --engine tcp://ADDRESS:PORT --key {path} run APP.py"
    )
    return 0


@app.command("list")
def list_keys(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> int:
    """List the keys that may connect."""
    remote.only_here(_HERE)
    rows = [{"name": name, "public": public} for public, name in keys.known().items()]
    if as_json:
        print(json.dumps(rows))
    elif rows:
        for row in rows:
            print(row["name"])
    else:
        note("no keys: `pie key new NAME` makes one")
    return 0


@app.command()
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="As `pie key list`.")]) -> int:
    """Take a key back: its connections end at once."""
    remote.only_here(_HERE)
    keys.remove(name)
    note(f"`{name}` may not connect any more: its file opens nothing any more, and may go")
    return 0


def _what_is_there(path: Path) -> str:
    """The hint on a file that is in the way of a new key."""
    from pie_cli.usage import UsageError

    other = "`-o FILE` names another"
    try:
        key = keys.read(path)
    except UsageError:
        return other
    if not keys.is_own(key):
        return f"it is a key for another machine's engine; {other}"
    name = keys.known().get(key.public)
    if name is None:
        return f"it is a key that was taken back: `rm {path}`, or {other}"
    return f"it is the key `{name}`, which may connect; {other}"
