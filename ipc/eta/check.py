"""Types every node of a program, by the rules that the tracer uses, and bounds its size and its work.
The worker checks again what the SDK has checked: an inferlet is not trusted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ipc.eta import fit, rules, work
from ipc.eta.graph import Node, Program
from ipc.eta.ops import Op
from ipc.types import DType, TensorType

MAX_NODES = 100_000
MAX_ELEMENTS = 1 << 27  # of one tensor
MAX_TOTAL_ELEMENTS = 1 << 30  # of all values of one instance
MAX_CONSTANT_ELEMENTS = 65_536
MAX_LITERAL = 1 << 32  # bound of uint attributes

OutputTypes = Mapping[tuple[int, str], TensorType]


class CheckError(Exception):
    """A program that no stage can be. `node` is -1 when an effect or a result is at fault."""

    def __init__(self, node: int, message: str) -> None:
        super().__init__(f"node {node}: {message}" if node >= 0 else message)
        self.node = node
        self.message = message


def infer(op: Op, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> TensorType:
    """Result type of one op that is no source; raises `fit.RuleError`. Tracer and checker share it."""
    for name, kind in op.attrs:
        if kind == "shape":
            check_shape(op.name, attrs[name])
        elif kind == "uint" and not 0 <= attrs[name] < MAX_LITERAL:
            raise fit.RuleError(f"`{op.name}` got {name} = {attrs[name]}; it takes 0 to 2^32 - 1")
    result = getattr(rules, op.rule)(op.name, types, attrs)
    check_shape(op.name, result.shape)
    work.check_op(op, types, attrs, result)
    return result


def check_shape(name: str, shape: Sequence[int]) -> None:
    if len(shape) > fit.MAX_RANK:
        raise fit.RuleError(f"`{name}` would have rank {len(shape)}; the highest rank is 4")
    size = 1
    for extent in shape:
        if extent < 1:
            raise fit.RuleError(f"`{name}` got shape {list(shape)}; every extent is at least 1")
        size *= extent
    if size > MAX_ELEMENTS:
        raise fit.RuleError(f"`{name}` would have {size} elements; a tensor has at most 2^27")


def check(
    program: Program, slot_types: Sequence[TensorType], output_types: OutputTypes
) -> list[TensorType]:
    """Types of the nodes, in order; raises CheckError."""
    if len(program.nodes) > MAX_NODES:
        raise CheckError(-1, f"the program has {len(program.nodes)} nodes; the most is {MAX_NODES}")
    if len(slot_types) != program.num_slots:
        raise CheckError(
            -1, f"{len(slot_types)} channels are bound to {program.num_slots} channel slots"
        )
    types: list[TensorType] = []
    if program.num_slots > work.MAX_SLOTS:
        raise CheckError(
            -1, f"the stage uses {program.num_slots} channels; the most is {work.MAX_SLOTS}"
        )
    total, steps = 0, work.STEPS_PER_SLOT * program.num_slots
    for index, node in enumerate(program.nodes):
        try:
            types.append(_node_type(node, types, slot_types, output_types))
        except fit.RuleError as error:
            raise CheckError(index, error.what) from None
        total += types[-1].size
        if total > MAX_TOTAL_ELEMENTS:
            raise CheckError(
                index, f"the values of the program exceed {MAX_TOTAL_ELEMENTS} elements"
            )
        steps += work.of_node(node, types, types[-1])
        if steps > work.MAX_STEPS:
            raise CheckError(
                index,
                f"with this `{node.op.name}` the stage costs {steps} steps; "
                f"the most is {work.MAX_STEPS}",
            )
    _check_ends(program, types, slot_types)
    return types


def _node_type(
    node: Node, types: list[TensorType], slot_types: Sequence[TensorType], outputs: OutputTypes
) -> TensorType:
    match node.op.name:
        case "front" | "earlier":
            return slot_types[node.attrs[0]]
        case "output":
            if node.attrs not in outputs:
                raise fit.RuleError(
                    f"output {node.attrs[1]!r} of lane {node.attrs[0]} does not exist"
                )
            return outputs[node.attrs]
        case "constant":
            return constant_type(*node.attrs)
    return infer(node.op, [types[arg] for arg in node.args], node.attr_map)


def constant_type(dtype: DType, shape: tuple[int, ...]) -> TensorType:
    check_shape("constant", shape)
    made = TensorType(dtype, shape)
    if dtype in fit.HALVES:
        raise fit.RuleError(f"`constant` cannot be {dtype.label}")
    if made.size > MAX_CONSTANT_ELEMENTS:
        raise fit.RuleError(
            f"`constant` has {made.size} elements; it takes at most {MAX_CONSTANT_ELEMENTS}",
            "seed a channel with `Channel.from_` and read it",
        )
    return made


def _check_ends(
    program: Program, types: list[TensorType], slot_types: Sequence[TensorType]
) -> None:
    for effect in program.effects:
        if effect.op.name != "put":
            continue
        if types[effect.node] != slot_types[effect.slot]:
            raise CheckError(
                effect.node,
                f"a {types[effect.node]} is put on channel slot {effect.slot}, "
                f"which holds {slot_types[effect.slot]}",
            )
    for node in (*program.results, *(e.node for e in program.effects if e.op.name == "put")):
        if types[node].dtype in fit.HALVES:
            raise CheckError(node, f"{types[node].dtype.with_article} tensor leaves the program")
