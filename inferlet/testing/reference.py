"""Runs a program in numpy, one instance at a time: what every backend must agree with."""

from collections.abc import Mapping, Sequence

import numpy as np

from inferlet.testing import row_definitions  # noqa: F401 - registers its ops
from inferlet.testing.definitions import NUMPY, Array, Call, evaluate
from ipc.eta.check import check
from ipc.eta.graph import Program
from ipc.types import TensorType

_DTYPES = {np.dtype(kind): dtype for dtype, kind in NUMPY.items()}


def run(
    program: Program,
    slot_types: Sequence[TensorType],
    fronts: Mapping[int, Array],
    outputs: Mapping[tuple[int, str], Array],
    constants: Sequence[Array],
    earlier: Mapping[int, Array] | None = None,
) -> tuple[dict[int, Array], list[Array]]:
    """Registers and results of one fire. A register is what was put last on the slot, also when it
    was taken since. `earlier`: what earlier phases of the fire put."""
    output_types = {key: type_of(value) for key, value in outputs.items()}
    types = check(program, slot_types, output_types)
    pool = iter(constants)
    values: list[Array] = []
    for node, made in zip(program.nodes, types, strict=True):
        match node.op.name:
            case "front":
                value = fronts[node.attrs[0]]
            case "earlier":
                value = earlier[node.attrs[0]]
            case "output":
                value = outputs[node.attrs]
            case "constant":
                value = next(pool)
            case name:
                call = Call([types[arg] for arg in node.args], made, node.attr_map)
                value = evaluate(name, call, [values[arg] for arg in node.args])
        values.append(value)
    registers = {slot: values[node] for slot, node in program.last_puts.items()}
    return registers, [values[node] for node in program.results]


def type_of(value: Array) -> TensorType:
    """Type of a numpy array; uint16 arrays are bf16 bits."""
    return TensorType(_DTYPES[value.dtype], value.shape)


def constant_arrays(program: Program, pool: bytes) -> list[Array]:
    """The constants of a pool, in order; ValueError for a pool of another size."""
    size = sum(made.nbytes for made in program.constant_types)
    if len(pool) != size:
        raise ValueError(f"the constant pool has {len(pool)} bytes; the program takes {size}")
    arrays, at = [], 0
    for made in program.constant_types:
        raw = pool[at : at + made.nbytes]
        at += made.nbytes
        kind = np.dtype(NUMPY[made.dtype]).newbyteorder("<")
        arrays.append(np.frombuffer(raw, kind).astype(NUMPY[made.dtype]).reshape(made.shape))
    return arrays
