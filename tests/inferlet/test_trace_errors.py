"""Every misuse of a tensor has its own text, the user's line, and what to write instead."""

import numpy as np
import pytest

from inferlet import eta
from inferlet.errors import TraceError
from inferlet.eta import dtype, hints, intrinsics
from inferlet.eta.trace import current_stage, trace
from ipc.types import DType
from tests.eta_support import FakeChannel, traced

F = FakeChannel(DType.f32, (4,), "floats")
G = FakeChannel(DType.f32, (3,), "three")
M = FakeChannel(DType.f32, (2, 4), "matrix")
I = FakeChannel(DType.i32, (4,), "ints")
U = FakeChannel(DType.u32, (4,), "words")
B = FakeChannel(DType.bool_, (4,), "flags")
H = FakeChannel(DType.f16, (4,), "halves")
ONE = FakeChannel(DType.f32, (1,), "one")



class Forgotten:
    """As the results of an epilogue are."""

    def __await__(self):
        yield


FORGOTTEN = Forgotten()

# stage -> pieces of the message
MISUSES = {
    "truth value": (lambda: bool(F.read() > 0), ["no truth value", "select(c, a, b)"]),
    "if": (lambda: 1 if F.read() else 2, ["no truth value"]),
    "int": (lambda: int(F.read()), ["no int value", "return it"]),
    "float": (lambda: float(F.read()), ["no float value"]),
    "len": (lambda: len(F.read()), ["`len`", "t.shape[0]"]),
    "iteration": (lambda: list(F.read()), ["cannot be iterated", "gather(t, i)"]),
    "unpacking": (lambda: [x for x in F.read()], ["cannot be iterated"]),
    "index": (lambda: F.read()[0], ["cannot be indexed", "gather(t, i)"]),
    "as an index": (lambda: [1, 2][I.read()], ["cannot index a host sequence", "gather"]),
    "in": (lambda: 3 in F.read(), ["`in`"]),
    "numpy": (lambda: np.asarray(F.read()), ["numpy cannot read"]),
    "mixed dtypes": (lambda: F.read() + I.read(), ["f32 and i32", "cast(b, dtype.f32)"]),
    "mixed integers": (lambda: I.read() + U.read(), ["i32 and u32", "cast(a, dtype.u32)"]),
    "half": (lambda: H.read() + H.read(), ["f16", "cast(a, dtype.f32)"]),
    "bool arithmetic": (lambda: B.read() + B.read(), ["bool", "cast(a, dtype.f32)"]),
    "float with ints": (lambda: I.read() * 0.5, ["the float 0.5", "cast(x, dtype.f32)"]),
    "bool with floats": (lambda: F.read() + True, ["the bool True", "write 1"]),
    "int with bools": (lambda: B.read() & 1, ["the int 1 meets a bool"]),
    "int out of range": (lambda: U.read() - (-1), ["-1 does not fit u32"]),
    "wide int": (lambda: I.read() + 2**31, ["2147483648 does not fit i32"]),
    "one against many": (lambda: ONE.read() + F.read(), ["[1] and [4]", "broadcast(x, [4])"]),
    "row against matrix": (
        lambda: M.read() + F.read(),
        ["[2, 4] and [4]", "broadcast(reshape(x, [1, 4]), [2, 4])"],
    ),
    "equal counts": (lambda: F.read() + F.read().reshape(2, 2), ["reshape(x, [2, 2])"]),
    "no repair": (lambda: F.read() + G.read(), ["[4] and [3]", "element counts agree"]),
    "broadcast of a row": (
        lambda: eta.broadcast(F.read(), [2, 4]),
        ["aligns on the left", "broadcast(reshape(x, [1, 4]), [2, 4])"],
    ),
    "reshape": (lambda: F.read().reshape(3), ["4 elements", "3"]),
    "list operand": (lambda: F.read() + [1, 2, 3, 4], ["of type list", "constant(values)"]),
    "channel operand": (lambda: eta.exp(F), ["of type FakeChannel", ".take()"]),
    "number for a tensor": (lambda: eta.softmax(2.0), ["the number 2.0"]),
    "shape is a tensor": (
        lambda: eta.reshape(F.read(), F.read()),
        ["tensor for `shape`", "static"],
    ),
    "static int is a tensor": (lambda: eta.iota(I.read()), ["got a tensor for `n`", "static"]),
    "static int is a float": (lambda: eta.top_k(F.read(), 2.0), ["2.0 for `k`", "Python int"]),
    "k too large": (lambda: eta.top_k(F.read(), 5), ["k = 5", "rows of 4"]),
    "dtype": (lambda: eta.cast(F.read(), "f32"), ["'f32' for `dtype`", "dtype.f32"]),
    "cast to half": (lambda: eta.cast(F.read(), dtype.bf16), ["cannot make bf16"]),
    "predicate": (lambda: eta.pivot_threshold(F.read(), 3), ["`pred`", "rank_le(k)"]),
    "ragged constant": (lambda: eta.constant([[1], [2, 3]]), ["ragged"]),
    "empty constant": (lambda: eta.constant([]), ["empty"]),
    "mixed constant": (lambda: eta.constant([True, 2]), ["bools and numbers are mixed"]),
    "large constant": (lambda: eta.constant([0] * 65_537), ["at most 65536", "Channel.from_"]),
    "rng state": (lambda: eta.gumbel(U.read(), 3), ["state u32[4]", "[key, counter]"]),
    "put of another dtype": (
        lambda: current_stage().put(U, F.read()),
        ["f32 tensor is put on channel 'words', which holds u32", "cast(x, dtype.u32)"],
    ),
    "put of another count": (
        lambda: current_stage().put(G, F.read()),
        ["shape [4] is put on channel 'three'", "[3]"],
    ),
    "put that can be repaired": (lambda: current_stage().put(F, ONE.read()), ["broadcast(x, [4])"]),
    "result of another kind": (lambda: {1: object()}, ["the result got a value of type object", "a stage returns"]),
    "ints on a float channel": (
        lambda: current_stage().put(F, I.read()),
        ["an i32 tensor is put on", "make it with `dtype.i32`, or write `cast(x, dtype.f32)`"],
    ),
    "floats on an int channel": (
        lambda: current_stage().put(I, F.read()),
        ["an f32 tensor is put on", "make it with `dtype.f32`, or write `cast(x, dtype.i32)`"],
    ),
    "pair of tensors": (
        lambda: current_stage().put(F, eta.top_k(F.read(), 4)),
        ["got a tuple of 2 tensors where it takes one", "`values, indices = top_k(x, k)`"],
    ),
    "pair as an operand": (
        lambda: eta.exp(eta.top_k(F.read(), 4)),
        ["`exp` got a tuple of 2 tensors", "take one of them"],
    ),
    "list of tensors": (
        lambda: current_stage().put(F, [F.read()]),
        ["got a list of 1 tensor where it takes one", "take one of them"],
    ),
    "result as an operand": (
        lambda: eta.exp(FORGOTTEN),
        ["`exp` got a result that was not awaited", "await it on the host"],
    ),
    "power": (lambda: F.read() ** 2, ["has no `**`", "`x * x`"]),
    "power of a number": (lambda: 2 ** F.read(), ["has no `**`", "exp(y * log(x))"]),
    "at": (lambda: M.read() @ M.read(), ["has no `@`", "`matmul(a, b)`"]),
    "xor": (lambda: B.read() ^ B.read(), ["has no `^`", "`ne(a, b)`"]),
    "change": (lambda: F.read().__setitem__(0, 1), ["cannot be changed", "scatter_set(t, i, x)"]),
    "lane": (lambda: intrinsics.output(F.read(), "logits"), ["`lane`", "static"]),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_names_the_line_and_the_repair(name):
    stage, pieces = MISUSES[name]
    with pytest.raises(TraceError) as error:
        traced(stage, label="epilogue of pass 3")
    text = str(error.value)
    assert [piece for piece in pieces if piece not in text] == []
    line = stage.__code__.co_firstlineno
    assert any(f"at {__file__}:{line + more}, in the epilogue of pass 3" in text for more in (0, 1))


ATTRIBUTES = {
    "softmax": "`softmax(x)`", "argmax": "`reduce_argmax(x)`", "T": "`transpose(x)`",
    "astype": "`cast(x, dtype.f32)`", "item": "return it from the stage",
    "soft_max": "did you mean `softmax`?", "shap": "did you mean `shape`?",
    "qqqq": "operations are functions",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_that_tensors_have_not_is_an_error_with_the_function_instead(name):
    with pytest.raises(AttributeError) as error:
        traced(lambda: getattr(F.read(), name))
    assert f"a traced tensor has no attribute `{name}`\n\nhint: " in str(error.value)
    assert ATTRIBUTES[name] in str(error.value)
    assert traced(lambda: eta.exp(F.read() if not hasattr(F.read(), name) else None))


def test_names_of_functions_that_hints_give_exist():
    for text in hints._ELSEWHERE.values():
        name = text.partition("(")[0]
        assert name == text or name in (*eta.__all__, "len"), text


@pytest.mark.parametrize("use", [lambda: eta.exp(1.0), lambda: eta.iota(2)])
def test_an_operation_outside_a_stage_is_refused(use):
    with pytest.raises(TraceError, match="is used outside a stage"):
        use()


def test_constants_and_outputs_outside_a_stage_are_refused():
    with pytest.raises(TraceError, match="`constant` is used outside a stage"):
        eta.constant(1)
    with pytest.raises(TraceError, match="`intrinsics.output` is used outside a stage"):
        intrinsics.output(0, "logits")


def test_a_prologue_has_no_model_outputs():
    with pytest.raises(TraceError, match="read them in an epilogue"):
        traced(lambda: intrinsics.output(0, "logits"), kind="prologue")


def test_a_tensor_of_another_stage_names_where_it_was_made():
    kept = []
    traced(lambda: kept.append(eta.iota(2)), label="prologue of pass 2", kind="prologue")
    line = test_a_tensor_of_another_stage_names_where_it_was_made.__code__.co_firstlineno + 2
    with pytest.raises(TraceError) as error:
        traced(lambda: kept[0] + 1)
    assert f"a tensor of the prologue of pass 2, made at {__file__}:{line}" in str(error.value)
    assert "through a channel" in str(error.value)


def test_a_tensor_used_after_its_stage_is_refused():
    kept = []
    traced(lambda: kept.append(eta.iota(2)))
    with pytest.raises(TraceError, match="`add` is used outside a stage"):
        kept[0] + 1
    with pytest.raises(TraceError, match="no truth value"):
        bool(kept[0])


def test_a_refused_output_keeps_its_own_error():
    def outputs(lane, name):
        raise TraceError("lane 7 does not exist; lanes are 0 to 1")

    with pytest.raises(TraceError, match="lanes are 0 to 1"):
        trace(
            lambda: intrinsics.output(7, "logits"),
            kind="epilogue",
            label="epilogue",
            output_type=outputs,
        )


def test_too_much_work_is_an_error_at_its_line():
    def stage():
        wide = eta.broadcast(ONE.read().reshape(1, 1), [8000, 8000])
        return eta.matmul(wide, wide)

    with pytest.raises(TraceError) as error:
        traced(stage)
    text = str(error.value)
    assert "this `matmul` costs 512000000000 multiply-adds; the most for a stage is" in text
    assert f"{__file__}:{stage.__code__.co_firstlineno + 2}" in text
    assert "hint: a stage holds up everybody" in text


def test_too_much_work_together_is_an_error_at_the_line_that_exceeds_it():
    def stage():
        product = eta.broadcast(ONE.read().reshape(1, 1), [1800, 1800])
        for _ in range(8):
            product = eta.matmul(product, product)
        return product

    with pytest.raises(TraceError, match="with this `matmul` the stage costs") as error:
        traced(stage)
    assert f"{__file__}:{stage.__code__.co_firstlineno + 3}" in str(error.value)
