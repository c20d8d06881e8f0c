"""What a program costs: steps of about a nanosecond of one core, by the shapes alone.

Bounds what one instance of a stage may take, since all processes share the worker. Refuses to know
devices: the weights are measured on a CPU, where a step is dearest.
"""

from collections.abc import Sequence
from math import prod

from ipc.eta import fit
from ipc.eta.graph import Node, Program
from ipc.eta.ops import Op
from ipc.types import DType, TensorType

# About a second. A head is 57 million steps: f32 [32,576] times [576,49152].
MAX_STEPS = 1 << 30
PRODUCTS_PER_STEP = 16  # multiply-adds of a product of matrices
STEPS_PER_NODE = 10_000  # of one call, however small its operands
STEPS_PER_SLOT = 20_000  # of one channel: its cell is read, written, and accounted for
MAX_SLOTS = MAX_STEPS // STEPS_PER_SLOT

_SOURCES = ("front", "earlier", "output", "constant")
# Steps for each element of the largest operand or result.
_WEIGHTS = {
    **dict.fromkeys(("reshape", "broadcast", "transpose", "iota", "indptr"), 1),
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_argmax", "reduce_sum"), 1),
    **dict.fromkeys(("cumsum", "cumprod", "cast", "entropy"), 4),
    **dict.fromkeys(("select", "mask_apply", "masked_argmax", "max_elem", "min_elem"), 4),
    **dict.fromkeys(("pick", "gather"), 8),
    **dict.fromkeys(("gumbel", "gumbel_max"), 9),
    **dict.fromkeys(("normal", "scatter_set", "scatter_add"), 24),
}
_ELEMENTWISE = 2
_DIVISION = 16  # integers, and the remainder
# Steps for each element and level: what may have to sort the row.
_SORTING = {"top_k_indices": 6, "cummass_le": 6, "rank_le": 2, "nucleus_sample": 2}


def steps(op: Op, types: Sequence[TensorType], attrs: dict, result: TensorType) -> int:
    """Of one node that is no source."""
    if op.name in ("matmul", "mm"):
        elements = sum(made.size for made in types) + result.size
        return STEPS_PER_NODE + elements + products(types, result) // PRODUCTS_PER_STEP
    size = max(result.size, *(made.size for made in types), 1)
    if op.name in _SORTING:
        row = types[0].shape[-1]
        weight = _SORTING[op.name] * max(row - 1, 1).bit_length()
        if op.name == "top_k_indices" and 4 * attrs["k"] <= row:
            weight = max(8, 2 * weight // 3)  # the largest are found before they are sorted
    elif op.name == "rem" or (op.name == "div" and result.dtype != DType.f32):
        weight = _DIVISION
    else:
        weight = _WEIGHTS.get(op.name, _ELEMENTWISE)
    return STEPS_PER_NODE + size * weight


def products(types: Sequence[TensorType], result: TensorType) -> int:
    """Multiply-adds of a `matmul` or `mm`."""
    return prod(result.shape) * types[0].shape[1]


def check_op(op: Op, types: Sequence[TensorType], attrs: dict, result: TensorType) -> None:
    """RuleError for an op that alone costs more than a stage may."""
    taken = steps(op, types, attrs, result)
    if taken <= MAX_STEPS:
        return
    if op.name in ("matmul", "mm"):
        what = f"{products(types, result)} multiply-adds"
        most = PRODUCTS_PER_STEP * MAX_STEPS
    else:
        what, most = f"{taken} steps", MAX_STEPS
    raise fit.RuleError(f"this `{op.name}` costs {what}; the most for a stage is {most}", HINT)


HINT = (
    "a stage holds up everybody's next token while it runs: use smaller tensors or fewer rows, "
    "or split the work over several fires"
)


def of_program(program: Program, types: Sequence[TensorType]) -> int:
    """Steps of one instance of a checked program."""
    nodes = sum(of_node(node, types, made) for node, made in zip(program.nodes, types))
    return nodes + STEPS_PER_SLOT * program.num_slots


def of_node(node: Node, types: Sequence[TensorType], result: TensorType) -> int:
    """Steps of one node; `types` are those of the nodes before it, and more."""
    if node.op.name in _SOURCES:
        return result.size
    return steps(node.op, [types[arg] for arg in node.args], node.attr_map, result)
