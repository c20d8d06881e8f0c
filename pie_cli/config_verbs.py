"""`pie config`: shows settings with their source, and edits config.toml without losing comments."""

import json
import os
import re
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from pie_cli import config, settings
from pie_cli.output import note
from pie_cli.tables import Narrow, fitted, left_out, room
from pie_cli.usage import UsageError

app = typer.Typer(help="Settings and where they come from.", no_args_is_help=True)

Setting = Annotated[str, typer.Argument(metavar="SETTING", help="As `pie config show` lists it.")]


@app.command()
def show(
    setting: Annotated[
        str | None, typer.Argument(metavar="SETTING", help="This one alone.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> int:
    """Show every setting, its value, and who set it: default, file or environment."""
    names = [config.known(setting).name] if setting else list(config.KEYS)
    found = [config.setting(name) for name in names]
    if as_json:
        rows = [
            {
                "name": each.key.name, "value": each.value, "source": each.source,
                "default": each.key.default, "environment": each.key.environment,
                "flag": each.key.flag, "help": each.key.help,
            }
            for each in found
        ]  # fmt: skip
        print(json.dumps(rows))
        return 0
    head = ["setting", "value", "source", "environment", "flag", "meaning"]
    rows = [
        [each.key.name, shown(each.value), each.source, each.key.environment, each.key.flag,
         each.key.help]
        for each in found
    ]  # fmt: skip
    narrow = Narrow({} if setting else {"value": 20}, ("flag", "environment", "source"), 28)
    text, missing = fitted([head, *rows], room(sys.stdout), narrow)
    print(text)
    print(f"\nfile: {config.path()}", flush=True)
    if missing:
        note(left_out(missing, "`pie config show --json` shows all"))
    return 0


@app.command("set")
def set_value(setting: Setting, value: Annotated[str, typer.Argument(metavar="VALUE")]) -> int:
    """Keep a setting in the file."""
    key = config.known(setting)
    try:
        parsed = key.parse(value)
    except ValueError as error:
        raise UsageError(f"`{value}` {error}", f"{setting}: {key.help}") from None
    wanted = int(parsed) if isinstance(parsed, float) and parsed.is_integer() else parsed
    write(edited(read_text(), setting, json.dumps(wanted, ensure_ascii=False)), setting, wanted)
    if setting == "run.model" and not settings.is_stored(parsed):
        note(f"warning: the store has no model `{parsed}`: `pie models list` lists those it has")
    if text := os.environ.get(key.environment):
        note(f"note: `{key.environment}` is set to `{text}`, which goes before the file")
    return 0


@app.command()
def unset(setting: Setting) -> int:
    """Remove a setting from the file: its default holds again."""
    text = read_text()
    if setting not in config.KEYS and holds(text, setting) is None:
        config.known(setting)
    if holds(text, setting) is None:
        note(f"`{setting}` is not set in `{config.path()}`")
        return 0
    write(edited(text, setting, None), setting, None)
    return 0


def shown(value: Any) -> str:
    """For people."""
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_text() -> str:
    """The file as it is. Raises UsageError where it is no TOML: nothing may be lost by editing."""
    config.read_file()
    try:
        return config.path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def holds(text: str, setting: str) -> Any:
    """What the TOML text says of a setting; None for nothing."""
    import tomllib

    found: Any = tomllib.loads(text)
    for part in setting.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def edited(text: str, setting: str, literal: str | None) -> str:
    """The text with a line for the setting in its table; None: without that line."""
    *tables, name = setting.split(".")
    head = f"[{'.'.join(tables)}]" if tables else ""
    lines = text.splitlines()
    begin, end = _table(lines, head)
    line = re.compile(rf"\s*{re.escape(name)}\s*=")
    present = [i for i in range(begin or 0, end) if line.match(lines[i])]
    new = [] if literal is None else [f"{name} = {literal}"]
    if present:
        lines[present[0] : present[0] + 1] = new
    elif new and begin is not None:
        lines[begin:begin] = new
    elif new:
        lines += [*([""] if lines else []), head, *new]
    return "\n".join(lines) + "\n" if lines else ""


def _table(lines: list[str], head: str) -> tuple[int | None, int]:
    """The lines below a table's head, up to the next head; (None, 0) without such a table."""
    heads = [i for i, line in enumerate(lines) if line.lstrip().startswith("[")]
    if not head:
        return 0, heads[0] if heads else len(lines)
    for i in heads:
        if lines[i].split("#")[0].strip() == head:
            return i + 1, next((later for later in heads if later > i), len(lines))
    return None, 0


def write(text: str, setting: str, wanted: Any) -> None:
    """Replace the file by `text`, in one step. Raises UsageError when it does not say `wanted`."""
    import tomllib

    path = config.path()
    try:
        said = holds(text, setting)
    except tomllib.TOMLDecodeError:
        said = not wanted
    if said != wanted:
        raise UsageError(f"`{setting}` cannot be edited in `{path}`", "edit the file by hand")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as failure:
        hint = "set `PIE_HOME` to a folder that can be made"
        raise UsageError(f"cannot make `{path.parent}`: {failure.strerror}", hint) from None
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as failure:
        with suppress(OSError):
            part.unlink()
        raise OSError(failure.errno, failure.strerror, str(path)) from None
