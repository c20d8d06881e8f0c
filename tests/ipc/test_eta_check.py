"""The checker: what the worker refuses, whoever wrote the program."""

import pytest

from ipc.eta import check as checker
from ipc.eta.check import CheckError, check
from ipc.eta.graph import Builder
from ipc.eta.text import listing, parse
from ipc.types import DType, TensorType

VOCAB = TensorType(DType.f32, (8,))
LOGITS = {(0, "logits"): VOCAB}
I32 = TensorType(DType.i32, (1,))


def test_every_node_gets_its_type():
    program = parse(
        '%0 = output lane=0 name="logits"\n%1 = reduce_argmax %0\n'
        "%2 = reshape %1 shape=[1]\nput 0 %2\nreturn %1"
    )
    types = check(program, [I32], LOGITS)
    assert types == [VOCAB, TensorType(DType.i32, ()), I32]
    assert listing(program, types).splitlines()[1] == "%1 = reduce_argmax %0  # i32[]"


REFUSED = {
    "rule": ('%0 = output lane=0 name="logits"\n%1 = and_ %0 %0\nreturn %1', 1, "takes bool"),
    "missing output": ('%0 = output lane=3 name="logits"\nreturn %0', 0, "lane 3 does not exist"),
    "put of another type": (
        '%0 = output lane=0 name="logits"\nput 0 %0\nreturn',
        0,
        r"f32\[8\] is put on channel slot 0, which holds i32\[1\]",
    ),
    "empty extent": ("%0 = constant dtype=f32 shape=[0]\nreturn %0", 0, "at least 1"),
    "large constant": ("%0 = constant dtype=f32 shape=[65537]\nreturn %0", 0, "at most 65536"),
    "half constant": ("%0 = constant dtype=bf16 shape=[2]\nreturn %0", 0, "cannot be bf16"),
    "large tensor": ("%0 = iota n=134217729\nreturn %0", 0, r"at most 2\^27"),
    "high rank": (
        "%0 = iota n=2\n%1 = reshape %0 shape=[1,1,1,2]\n%2 = gather %1 %1\nreturn %2",
        2,
        "rank 7",
    ),
    "rank-5 mask": (
        "%0 = iota n=1\n%1 = reshape %0 shape=[1,1,1,1]\n%2 = causal_mask %1 length=4\nreturn %2",
        2,
        "takes rank 0 to 3",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_ill_typed_program_is_refused_at_its_node(name):
    text, node, reason = REFUSED[name]
    program = parse(text)
    with pytest.raises(CheckError, match=reason) as error:
        check(program, [I32] * program.num_slots, LOGITS)
    assert error.value.node == node


def test_another_number_of_channels_is_refused():
    with pytest.raises(CheckError, match="2 channels are bound to 1 channel slots"):
        check(parse("take 0\nreturn"), [I32, I32], {})


def test_a_half_precision_cell_may_not_leave_unchanged():
    half = TensorType(DType.bf16, (2,))
    with pytest.raises(CheckError, match="bf16 tensor leaves the program"):
        check(parse("%0 = front slot=0\nread 0\nreturn %0"), [half], {})


def test_the_values_of_a_program_are_bounded_together(monkeypatch):
    monkeypatch.setattr(checker, "MAX_TOTAL_ELEMENTS", 20)
    program = parse("%0 = iota n=8\n%1 = neg %0\n%2 = neg %1\nreturn %2")
    with pytest.raises(CheckError, match="exceed 20 elements"):
        check(program, [], {})


def test_the_number_of_nodes_is_bounded():
    builder = Builder()
    node = builder.add("iota", (), {"n": 1})
    for _ in range(checker.MAX_NODES):
        node = builder.add("neg", [node])
    with pytest.raises(CheckError, match="100001 nodes; the most is 100000"):
        check(builder.finish([node]).program, [], {})
