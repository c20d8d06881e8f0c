"""`pie python`: the Python that pie runs on, for the user's own programs. Becomes it."""

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from pie_cli import settings
from pie_cli.usage import UsageError

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]}


def python(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS…", help="As Python takes them: `client.py`, `-m pytest`."),
    ] = None,
) -> int:
    """Run a Python program that can import pie.

    pie python client.py · pie python -m pytest test_my_app.py
    """
    return become(words or [])


def become(words: list[str]) -> int:
    """Replace this process by Python with those arguments. Raises UsageError."""
    if words[:2] == ["-m", "pytest"] and find_spec("pytest") is None:
        raise UsageError("pytest is not installed", "`pie python -m pip install pytest` adds it")
    os.execve(sys.executable, [sys.executable, *words], environment(os.environ))


def environment(outer: "os._Environ[str] | dict[str, str]") -> dict[str, str]:
    """As the user has it, and pie importable. A program's own folder comes first, as usual."""
    paths = dict.fromkeys([str(settings.ROOT), *outer.get("PYTHONPATH", "").split(os.pathsep)])
    kept = {key: value for key, value in outer.items() if key != "PYTHONSAFEPATH"}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
