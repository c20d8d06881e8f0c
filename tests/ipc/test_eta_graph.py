"""Canonical form: what two stages must share to be one program."""

from ipc.eta.graph import Builder
from ipc.types import DType, TensorType


def logits(builder: Builder, lane: int = 0) -> int:
    return builder.add("output", (), {"lane": lane, "name": "logits"})


def number(builder: Builder) -> int:
    return builder.add("constant", (), {"dtype": DType.f32, "shape": ()})


def test_equal_nodes_are_one_node():
    builder = Builder()
    assert builder.add("neg", [logits(builder)]) == builder.add("neg", [logits(builder)])


def test_two_literals_stay_two_even_when_equal_today():
    builder = Builder()
    assert number(builder) != number(builder)


def test_dead_nodes_leave_no_trace():
    plain, messy = Builder(), Builder()
    messy.add("exp", [messy.add("mul", [logits(messy), number(messy)])])
    programs = [b.finish([b.add("softmax", [logits(b)])]).program for b in (plain, messy)]
    assert programs[0] == programs[1]


def test_the_order_of_recording_does_not_matter():
    one, two = Builder(), Builder()
    a, b = logits(one, 0), logits(one, 1)
    y, x = logits(two, 1), logits(two, 0)
    first = one.finish([one.add("sub", [a, b])]).program
    assert first == two.finish([two.add("sub", [x, y])]).program


def test_slots_are_numbered_by_first_use():
    builder = Builder()
    builder.put(9, builder.read(4))
    assert builder.finish().program.slot_events() == ((0, "read"), (1, "put"))


def test_repetitions_that_change_nothing_are_no_events():
    builder = Builder()
    first = builder.take(0)
    assert builder.take(0) == first == builder.read(0)
    builder.put(0, logits(builder))
    builder.read(0)
    assert builder.finish().program.slot_events() == ((0, "take"), (0, "put"))


def test_a_take_gives_and_clears_the_new_value():
    builder = Builder()
    value = logits(builder)
    builder.put(0, value)
    assert builder.read(0) == value
    assert builder.take(0) == value == builder.take(0)
    front = builder.read(0)
    assert front != value
    program = builder.finish([front]).program
    assert program.slot_events() == ((0, "put"), (0, "take"), (0, "read"))
    assert program.cleared == {0} and program.fronts == (0,)


def test_a_later_put_replaces_the_value():
    builder = Builder()
    builder.put(0, logits(builder, 0))
    builder.put(0, logits(builder, 1))
    program = builder.finish().program
    assert program.nodes[program.last_puts[0]].attrs == (1, "logits")


def test_indices_are_never_absent_through_shape_and_choice():
    builder = Builder()
    best = builder.add("reduce_argmax", [logits(builder)])
    other = builder.add("gumbel_max", [logits(builder), builder.read(3)])
    either = builder.add("select", [builder.read(4), best, other])
    builder.put(0, builder.add("broadcast", [either], {"shape": (2,)}))
    picked = builder.add("top_k_indices", [logits(builder)], {"k": 2})
    builder.put(1, builder.add("cast", [picked], {"dtype": DType.i32}))
    builder.put(2, builder.add("sub", [best, other]))
    program = builder.finish().program
    names = {slot: index for index, (slot, _) in enumerate(dict.fromkeys(program.slot_events()))}
    assert len(names) >= 3
    puts = [slot for slot, kind in program.slot_events() if kind == "put"]
    assert program.never_absent_puts() == frozenset(puts[:2])


def test_one_unsafe_put_makes_a_slot_unsafe():
    builder = Builder()
    builder.put(0, builder.add("reduce_argmax", [logits(builder)]))
    builder.put(0, builder.read(1))
    assert builder.finish().program.never_absent_puts() == frozenset()


def test_outputs_and_constants_are_listed():
    builder = Builder()
    scaled = builder.add("mul", [logits(builder, 1), number(builder)])
    program = builder.finish([builder.add("add", [scaled, logits(builder, 0)])]).program
    assert program.outputs() == ((0, "logits"), (1, "logits"))
    assert program.constant_types == (TensorType(DType.f32, ()),)


def test_a_program_may_be_deeper_than_the_recursion_limit():
    builder = Builder()
    node = logits(builder)
    for _ in range(20_000):
        node = builder.add("neg", [node])
    assert len(builder.finish([node]).program.nodes) == 20_001
