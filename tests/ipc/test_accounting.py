"""Channel accounting: the static effect of one fire, for each pattern of the contract's table."""

import pytest

from ipc.accounting import fire_effects
from ipc.types import BoundProgram, Operand, PassSpec


def effect(prologue=(), epilogue=(), embeds=False):
    """Effect on channel 5 of a fire whose stages do these events to it."""
    programs = {b"p": [(0, kind) for kind in prologue], b"e": [(0, kind) for kind in epilogue]}
    spec = PassSpec(
        0, 1, Operand(channel=5) if embeds else Operand((1,)), (0, 1), (0,), (0,), (1,),
        BoundProgram(b"p", (5,), b"") if prologue else None,
        BoundProgram(b"e", (5,), b"") if epilogue else None,
    )  # fmt: skip
    e = fire_effects(spec, lambda program: programs[program])[5]
    return e.needs_front, e.pops, e.new_from


@pytest.mark.parametrize(
    ("prologue", "epilogue", "embeds", "expected"),
    [
        ((), ("read",), False, (True, False, "")),
        ((), ("take",), False, (True, True, "")),
        ((), ("put",), False, (False, False, "epilogue")),
        ((), ("take", "put"), False, (True, True, "epilogue")),
        ((), ("take", "take"), False, (True, True, "")),
        ((), ("put", "read"), False, (False, False, "epilogue")),
        ((), ("put", "take"), False, (False, False, "")),
        ((), ("put", "take", "take"), False, (False, False, "")),
        ((), ("put", "take", "read"), False, (True, False, "")),
        ((), ("put", "take", "put"), False, (False, False, "epilogue")),
        ((), (), True, (True, True, "")),
        ((), ("put",), True, (True, True, "epilogue")),
        (("put",), (), True, (False, False, "")),
        (("put",), ("take",), False, (False, False, "")),
        (("put",), ("read",), False, (False, False, "prologue")),
        (("take",), ("put",), False, (True, True, "epilogue")),
        (("put",), ("put",), False, (False, False, "epilogue")),
        (("put",), ("take",), True, (False, False, "")),
        (("put",), ("read",), True, (True, False, "")),
        (("put",), ("take", "read"), False, (True, False, "")),
        (("put", "take"), ("take",), False, (False, False, "")),
        (("put", "take"), (), True, (False, False, "")),
        (("take", "put"), ("take",), True, (True, True, "")),
    ],
)
def test_the_effect_of_one_fire_is_static(prologue, epilogue, embeds, expected):
    assert effect(prologue, epilogue, embeds) == expected
