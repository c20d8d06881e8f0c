"""The variables by which templates let a model think, or not, or with some effort.

Templates have no common name for it: these are the ones in use. What a template does not read is
not given to it.
"""

from typing import Any

from inferlet.formats.template import Template

BOOLEANS = ("enable_thinking", "thinking", "reasoning")
EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
MODES = ("thinking_mode", "thinking_option", *EFFORTS)
# Words of modes, the most telling first.
ON, OFF = ("enabled", "thinking", "on", "high"), ("disabled", "chat", "off", "no_think", "none")
BUDGET = "thinking_budget"
LEVELS = ("low", "medium", "high")


def thinking(template: Template, on: bool) -> dict[str, Any]:
    """What lets a model think, or keeps it from it; empty for a template without a toggle."""
    read = template.options()
    given: dict[str, Any] = {name: on for name in BOOLEANS if name in read}
    if BUDGET in read and not on:
        given[BUDGET] = 0
    for name in MODES:
        words = template.words(name) if name in read else []
        has_toggle = any(word in words for word in OFF)
        fitting = [word for word in (ON if on else OFF) if word in words]
        if has_toggle and fitting:
            given[name] = fitting[0]
    return given


def efforts(template: Template) -> tuple[list[str], list[str]]:
    """The variables for an effort, and the words that they accept."""
    slots = [name for name in EFFORTS if name in template.options()]
    words = [word for slot in slots for word in template.words(slot)]
    return slots, list(dict.fromkeys([*LEVELS, *words]))
