"""Recording a stage: what becomes of Python values, channels and results."""

import numpy as np
import pytest

from inferlet import eta
from inferlet.errors import TraceError
from inferlet.eta import dtype, intrinsics
from inferlet.eta.trace import current_stage
from inferlet.testing import reference
from ipc.eta.encode import decode
from ipc.eta.text import listing
from ipc.types import DType, TensorType
from tests.eta_support import FakeChannel, slot_types, traced


def results(function, width=8):
    """What awaiting the stage would give."""
    stage = traced(function, width=width)
    fronts = {slot: channel.front for slot, channel in enumerate(stage.channels)}
    outputs = {key: np.arange(width, dtype=np.float32) for key in stage.program.outputs()}
    constants = reference.constant_arrays(stage.program, stage.constants)
    _, arrays = reference.run(stage.program, slot_types(stage), fronts, outputs, constants)
    return stage.rebuild(arrays)


def test_a_stage_gives_its_program_and_its_bytes():
    token = FakeChannel(DType.i32, (1,))

    def stage():
        t = eta.reduce_argmax(intrinsics.output(0, "logits"))
        token.put(t)
        return t

    recorded = traced(stage)
    assert decode(recorded.code) == recorded.program
    assert recorded.channels == [token] and recorded.returns_value
    assert recorded.result_types == [TensorType(DType.i32, ())]
    assert recorded.program.never_absent_puts() == {0}


def test_programs_that_differ_in_a_number_share_one_id():
    def cooled(temperature):
        return traced(lambda: intrinsics.output(0, "logits") / temperature)

    one, two = cooled(0.7), cooled(1.3)
    assert one.program_id == two.program_id and one.constants != two.constants


def test_python_control_flow_unrolls_and_side_effects_happen_once():
    seen = []

    def stage():
        t = eta.iota(2)
        for step in range(3):
            seen.append(step)
            t = t + step
        return t

    assert results(stage).tolist() == [3, 4] and seen == [0, 1, 2]


def test_results_keep_their_structure():
    def stage():
        t = eta.iota(3)
        return {"one": eta.constant(2.5), "many": [t, (t, "text", 4)], "none": None}

    got = results(stage)
    assert got["one"] == 2.5 and isinstance(got["one"], float) and got["none"] is None
    assert got["many"][0].tolist() == got["many"][1][0].tolist() == [0, 1, 2]
    assert got["many"][1][1:] == ("text", 4)


def test_a_tensor_of_one_element_becomes_a_python_number():
    got = results(lambda: (eta.constant([7]), eta.constant(True), eta.constant([[1.5]])))
    assert got == (7, True, 1.5) and [type(x) for x in got] == [int, bool, float]


def test_a_stage_that_returns_nothing_returns_no_value():
    recorded = traced(lambda: None)
    assert not recorded.returns_value and recorded.rebuild([]) is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [(1, dtype.f32), (2.5, dtype.f32), (np.float64(2), dtype.f32), (3, dtype.i32)]
    + [(np.int64(3), dtype.u32), (2**32 - 1, dtype.u32), (True, dtype.bool)],
)
def test_a_number_takes_the_dtype_of_its_tensor(number, kind):
    channel = FakeChannel(kind, (2,))
    op = eta.and_ if kind == dtype.bool else eta.add
    for made in (lambda: op(channel.read(), number), lambda: op(number, channel.read())):
        assert traced(made).result_types == [TensorType(kind, (2,))]


def test_numbers_among_themselves_choose_a_dtype():
    def stage():
        return eta.add(1, 2), eta.add(1, 2.5), eta.select(True, False, True)

    kinds = [made.dtype for made in traced(stage).result_types]
    assert kinds == [DType.i32, DType.f32, DType.bool_]


def test_numpy_scalars_on_the_left_meet_the_tensor():
    assert results(lambda: np.float32(2) * eta.constant([1.5])) == 3.0


def test_abs_of_a_number_is_the_builtin():
    assert eta.abs(-3) == 3


def test_comparison_with_none_is_a_bool_and_tensors_hash_by_identity():
    def stage():
        a, b = eta.iota(2), eta.iota(2)
        assert (a == None) is False and (a != None) is True
        assert len({a: 1, b: 2}) == 2

    traced(stage)


def test_a_put_adapts_the_shape_when_counts_agree():
    cell = FakeChannel(DType.u32, (2, 2))
    recorded = traced(lambda: cell.put(eta.iota(4)))
    assert "reshape %0 shape=[2,2]" in listing(recorded.program)


def test_a_put_of_a_number_fits_a_cell_of_one_element():
    cell = FakeChannel(DType.f32, (1,))
    recorded = traced(lambda: cell.put(2))
    assert np.frombuffer(recorded.constants, "<f4").tolist() == [2.0]


def test_channels_are_listed_by_first_use():
    a, b = FakeChannel(DType.i32, (1,), "a"), FakeChannel(DType.i32, (1,), "b")
    recorded = traced(lambda: a.put(b.take()))
    assert [channel.name for channel in recorded.channels] == ["b", "a"]
    assert recorded.program.slot_events() == ((0, "take"), (1, "put"))


def test_mm_reads_a_half_precision_channel():
    weight = FakeChannel.of(np.ones((3, 2), np.float16))
    got = results(lambda: eta.mm(weight, eta.constant([[1.0, 2.0]])))
    assert got.tolist() == [[3.0, 3.0, 3.0]]


def test_packed_words_mask_as_bools_do():
    def stage():
        x = eta.constant([1.0, 2.0, 3.0])
        words = eta.mask_apply(x, eta.constant([0b101], dtype.u32))
        bools = eta.mask_apply(x, eta.constant([True, False, True]))
        return words, bools, eta.masked_argmax(x, eta.constant([0b011], dtype.u32))

    words, bools, best = results(stage)
    assert words.tolist() == bools.tolist() == [1.0, -np.inf, 3.0] and best == 1


def test_a_prologue_returns_nothing():
    assert not traced(lambda: eta.iota(2), kind="prologue").returns_value


def test_the_source_names_the_line_of_each_node():
    def stage():
        a = eta.iota(2)
        return a + a

    recorded = traced(stage)
    first = stage.__code__.co_firstlineno
    assert recorded.source == {0: (__file__, first + 1), 1: (__file__, first + 2)}


def test_there_is_a_current_stage_only_while_recording():
    seen = []
    traced(lambda: seen.append(current_stage()))
    assert seen[0] is not None and current_stage() is None

    def failing():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        traced(failing)
    assert current_stage() is None


def test_star_import_gives_every_operation():
    names = set(eta.__all__)
    assert {"top_k", "nucleus_sample", "constant", "intrinsics", "dtype", "Tensor"} <= names
    assert [name for name in names if not hasattr(eta, name)] == []


def test_recording_inside_a_stage_is_refused():
    with pytest.raises(TraceError, match="recorded inside the epilogue of pass 1"):
        traced(lambda: traced(lambda: None))
