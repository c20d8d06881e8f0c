"""Host values as cells (contract, 10.1)."""

import numpy as np
import pytest

from inferlet import Channel, InferletError, dtype
from inferlet.runtime.cells import encode
from ipc.types import DType, TensorType
from tests.inferlet.support import same

BIG = 2**31


def cell_of(channel):
    return channel._staged[0]


@pytest.mark.parametrize("shape, made", [(3, (3,)), ([2, 3], (2, 3)), ((), ()), ((1,), (1,))])
def test_shape_is_an_int_or_a_sequence_of_ints(shape, made):
    assert Channel(shape, dtype.f32).shape == made


@pytest.mark.parametrize("shape", [0, [2, 0], -1, [1, 1, 1, 1, 1]])
def test_extents_are_positive_and_rank_is_at_most_four(shape):
    with pytest.raises(ValueError):
        Channel(shape, dtype.f32)


@pytest.mark.parametrize("shape", ["3", 2.0, True, [1.5], None])
def test_a_shape_of_another_type_is_a_type_error(shape):
    with pytest.raises(TypeError):
        Channel(shape, dtype.f32)


@pytest.mark.parametrize("kind", ["f32", np.float32, None, 1])
def test_dtype_is_one_of_the_namespace(kind):
    with pytest.raises(TypeError, match="dtype"):
        Channel([1], kind)


@pytest.mark.parametrize(
    "values, made, kind",
    [
        (3, (), dtype.i32),
        (True, (), dtype.bool),
        (0.5, (), dtype.f32),
        ([1, 2], (2,), dtype.i32),
        ([1, 2.5], (2,), dtype.f32),
        ([[True, False]], (1, 2), dtype.bool),
        (np.zeros((2, 3), np.int64), (2, 3), dtype.i32),
        (np.zeros(2, np.float64), (2,), dtype.f32),
        (np.zeros(2, np.uint32), (2,), dtype.u32),
        (np.zeros(2, np.float16), (2,), dtype.f16),
        (np.float32(1), (), dtype.f32),
        (np.bool_(True), (), dtype.bool),
    ],
)
def test_from_infers_shape_and_dtype(values, made, kind):
    channel = Channel.from_(values)
    assert (channel.shape, channel.dtype) == (made, kind)


def test_from_takes_a_given_dtype():
    channel = Channel.from_([1, 2], dtype.bf16)
    assert channel.dtype is DType.bf16
    assert same(cell_of(Channel.from_([7, 0], dtype.u32)), np.array([7, 0], np.uint32))


@pytest.mark.parametrize("values", [[], [[]], [[1], [2, 3]], np.zeros((0, 2))])
def test_from_refuses_empty_and_ragged_values(values):
    with pytest.raises(ValueError):
        Channel.from_(values)


@pytest.mark.parametrize("values", ["text", None, [None], {}, b"x", [1j]])
def test_values_that_are_no_numbers_are_a_type_error(values):
    with pytest.raises(TypeError):
        Channel.from_(values)


def test_a_scalar_fits_one_element_and_counts_decide():
    channel = Channel([2, 2], dtype.i32)
    channel.put([1, 2, 3, 4])
    assert same(cell_of(channel), np.array([[1, 2], [3, 4]], np.int32))
    one = Channel([1], dtype.i32)
    one.put(5)
    assert same(cell_of(one), np.array([5], np.int32))
    with pytest.raises(ValueError, match="3 elements"):
        Channel([2, 2], dtype.i32).put([1, 2, 3])


@pytest.mark.parametrize(
    "kind, fits, does_not",
    [
        (dtype.i32, [1, np.int64(-3), np.uint8(2)], [1.0, True, np.float32(2)]),
        (dtype.u32, [1, 2**32 - 1], [1.5, False]),
        (dtype.f32, [1, 2.5, np.float64(3)], [True]),
        (dtype.f16, [1, 2.5], [True]),
        (dtype.bf16, [1, 2.5], [False]),
        (dtype.bool, [True, np.bool_(False)], [1, 0.0]),
    ],
)
def test_kinds_that_fit_a_dtype(kind, fits, does_not):
    for value in fits:
        Channel([1], kind).put(value)
    for value in does_not:
        with pytest.raises(TypeError, match="do not fit"):
            Channel([1], kind).put(value)


@pytest.mark.parametrize(
    "kind, value",
    [
        (dtype.i32, BIG),
        (dtype.i32, -BIG - 1),
        (dtype.u32, -1),
        (dtype.u32, 2**32),
        (dtype.i32, 2**70),
        (dtype.u32, np.uint64(2**63)),
    ],
)
def test_an_int_out_of_range_is_a_value_error(kind, value):
    with pytest.raises(ValueError, match="out of range"):
        Channel([1], kind).put(value)


@pytest.mark.parametrize(
    "value, bits",
    [
        (1.0, 0x3F80),
        (1.00390625, 0x3F80),  # half way: to even
        (1.01171875, 0x3F82),  # half way: to even, upwards
        (3.4e38, 0x7F80),
        (float("nan"), 0x7FC0),
        (-0.0, 0x8000),
    ],
)
def test_bf16_rounds_to_nearest_even(value, bits):
    made = encode(value, TensorType(DType.bf16, ()), "a channel")
    assert int(made) == bits


def test_the_data_is_copied():
    values = np.array([1, 2], np.int32)
    channel = Channel.from_(values)
    values[0] = 9
    assert same(cell_of(channel), np.array([1, 2], np.int32))


def test_arrays_that_are_not_contiguous_travel_row_major():
    channel = Channel.from_(np.arange(6, dtype=np.int32).reshape(2, 3).T)
    assert channel.shape == (3, 2)
    assert cell_of(channel).tobytes() == np.array([0, 3, 1, 4, 2, 5], "<i4").tobytes()


@pytest.mark.parametrize("n", [0, -1])
def test_capacity_is_at_least_one(n):
    with pytest.raises(ValueError):
        Channel([1], dtype.i32).capacity(n)


def test_capacity_and_named_return_the_channel():
    channel = Channel([1], dtype.i32)
    assert channel.capacity(3) is channel and channel.named("tok") is channel
    assert channel.name == "tok"


def test_capacity_may_follow_seeds_but_not_drop_them():
    channel = Channel.from_([1]).capacity(2)
    channel.put([2])
    with pytest.raises(ValueError, match="holds 2 cells"):
        channel.capacity(1)


def test_a_put_on_a_full_ring_names_capacity_remedy_and_place():
    channel = Channel.from_([1]).named("tok")
    with pytest.raises(InferletError, match=r"(?s)`tok`.*test_channel_values.py:\d+.*hint:.*capac"):
        channel.put([2])
    assert same(cell_of(channel), np.array([1], np.int32))


def test_a_cell_beyond_one_frame_is_refused():
    with pytest.raises(InferletError, match="at most"):
        Channel([33 << 20], dtype.f32).put(np.zeros(33 << 20, np.float32))


@pytest.mark.parametrize("values", [[], [[1], [2, 3]], "text", [None], np.zeros(1, np.complex64)])
def test_a_channel_that_cannot_be_inferred_says_where_and_what_to_do(values):
    with pytest.raises((ValueError, TypeError), match=r"(?s)made at test_chan.*\n\nhint: give"):
        Channel.from_(values)


@pytest.mark.parametrize("shape", [(0,), (1, 1, 1, 1, 1), (1 << 20, 1 << 20)])
def test_a_shape_that_no_channel_has_says_what_to_do(shape):
    with pytest.raises(ValueError, match="\n\nhint: "):
        Channel(shape, dtype.u32)
