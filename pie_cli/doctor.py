"""`pie doctor`: what this machine gives pie, what is wrong, and how to mend it. Changes nothing."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from pie_cli.output import paint_for
from pie_cli.tables import room, wrapped

FAULTY = 1
_INDENT = 21  # of what is found
_COLOURS = {"ok": "32", "warning": "33", "fault": "1;31"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> int:
    """Say what is wrong, and how to mend it.

    Tries what this machine gives pie: sandbox, store, engines, disk, accelerator.
    The exit code is 1 when there is a fault; warnings are none.
    """
    from pie_cli import doctor_checks

    found = []
    for name, check in doctor_checks.CHECKS.items():
        for finding in run(name, check):
            found.append(finding)
            if not as_json:
                show(finding)
    faults = [finding for finding in found if finding.state == "fault"]
    if as_json:
        rows = [
            {"check": each.check, "state": each.state, "text": each.text, "hint": each.hint}
            for each in found
        ]
        print(json.dumps({"ok": not faults, "findings": rows}))
    elif faults:
        print(f"\n{len(faults)} {'fault' if len(faults) == 1 else 'faults'}")
    else:
        print("\nno fault")
    return FAULTY if faults else 0


def run(name: str, check: Callable[[], Iterator]) -> Iterator:
    """The findings of one check; one that fails is a finding itself."""
    from pie_cli.doctor_checks import Finding

    try:
        for state, text, *hint in check():
            yield Finding(name, state, text, *hint)
    except Exception as error:  # noqa: BLE001 - the other checks are still wanted
        yield Finding(name, "fault", str(error) or type(error).__name__, getattr(error, "hint", ""))


def show(finding: object) -> None:
    """One line, and what to do about it on the next."""
    state = paint_for(sys.stdout, f"{finding.state:<8}", _COLOURS[finding.state])
    width = room(sys.stdout)
    print(f"{state}{finding.check:<13}{wrapped(finding.text, width, _INDENT)}")
    if finding.hint:
        hint = wrapped(finding.hint, width, _INDENT + len("hint: "))
        print(f"{'':{_INDENT}}{paint_for(sys.stdout, 'hint:', '36')} {hint}")
    sys.stdout.flush()
