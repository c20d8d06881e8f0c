"""The op table, and the files that follow from it."""

import pytest

from ipc.eta import generate, rules
from ipc.eta.ops import BY_CODE, BY_NAME, EFFECT, SOURCE, TABLE
from ipc.types import DType

LITERALS = {"", "same", *(dtype.label for dtype in DType)}


def test_codes_and_names_are_unique():
    assert len(BY_CODE) == len(BY_NAME) == len(TABLE)


def test_codes_of_the_first_version_never_change():
    golden = {"front": 1, "put": 6, "add": 16, "transpose": 36, "mask_apply": 50, "indptr": 60}
    golden |= {"prob_ge": 72, "masked_argmax": 90, "sink_window_mask": 102}
    assert {name: BY_NAME[name].code for name in golden} == golden


@pytest.mark.parametrize("op", TABLE, ids=repr)
def test_a_row_is_complete(op):
    assert op.doc.endswith(".") and op.section and op.since >= 1
    assert {arg.literal for arg in op.args} <= LITERALS
    assert {kind for _, kind in op.attrs} <= {"uint", "shape", "dtype", "str"}
    assert op.traits & {EFFECT, SOURCE} or callable(getattr(rules, op.rule))


@pytest.mark.parametrize("path", generate.files())
def test_a_generated_file_is_up_to_date(path):
    assert (generate.ROOT / path).read_text() == generate.files()[path], (
        "run `python -m ipc.eta.generate`"
    )
