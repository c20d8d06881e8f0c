"""Random well-typed programs and cells for the tests of the eta language. No torch."""

import random as stdlib_random
from typing import Any

import numpy as np

from inferlet.testing.definitions import NUMPY
from ipc.eta.check import infer
from ipc.eta.fit import RuleError
from ipc.eta.graph import Builder, Program
from ipc.eta.ops import EFFECT, SOURCE, TABLE, Op
from ipc.types import DType, TensorType

OPS = [op for op in TABLE if not op.traits & {EFFECT, SOURCE}]

# Shapes that meet each other often: rows of 4, two rows, states of 2, packed words of 1.
SLOTS = [
    TensorType(dtype, shape)
    for dtype, shapes in {
        DType.f32: ((), (2,), (4,), (2, 4), (4, 4), (40,), (2, 2, 4)),
        DType.i32: ((), (2,), (4,), (2, 4)),
        DType.u32: ((), (2,), (4,), (1,), (2, 1)),
        DType.bool_: ((), (4,), (2, 4)),
    }.items()
    for shape in shapes
]
_SHAPES = [(), (1,), (2,), (4,), (8,), (2, 4), (4, 2), (2, 2, 2), (1, 4), (2, 4, 3)]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 1e-30, -7e4, 1e9, np.inf, -np.inf, np.nan]
_INTEGERS = [0, 1, 2, 3, -1, -2, 7, -7, 2**31 - 1, -(2**31), 65536]


def program(random: stdlib_random.Random, steps: int) -> tuple[Program, list[TensorType]]:
    """A program that reads all of SLOTS, applies up to `steps` ops, and returns every node."""
    builder = Builder()
    types: dict[int, TensorType] = {}
    for slot, made in enumerate(SLOTS):
        types[builder.read(slot)] = made
    for _ in range(steps):
        _grow(random, builder, types, random.choice(OPS))
    finished = builder.finish(types).program
    return finished, SLOTS


def _grow(
    random: stdlib_random.Random, builder: Builder, types: dict[int, TensorType], op: Op
) -> None:
    for _ in range(60):
        args = [random.choice(list(types)) for _ in op.args]
        attrs = {name: _attr(random, kind) for name, kind in op.attrs}
        try:
            made = infer(op, [types[arg] for arg in args], attrs)
        except RuleError:
            continue
        if made.size <= 256:
            types[builder.add(op.name, args, attrs)] = made
        return


def _attr(random: stdlib_random.Random, kind: str) -> Any:
    if kind == "shape":
        return random.choice(_SHAPES)
    if kind == "dtype":
        return random.choice([DType.f32, DType.i32, DType.u32, DType.bool_])
    return random.choice([1, 2, 3, 4, 5])


def cell(random: stdlib_random.Random, made: TensorType) -> np.ndarray:
    """A cell with many special values."""
    if made.dtype == DType.f32:
        values = [
            random.choice(_FLOATS) if random.random() < 0.3 else random.gauss(0, 3)
            for _ in range(made.size)
        ]
    elif made.dtype == DType.bool_:
        values = [random.random() < 0.5 for _ in range(made.size)]
    else:
        values = [
            random.choice(_INTEGERS) if random.random() < 0.7 else random.randrange(-(2**31), 2**31)
            for _ in range(made.size)
        ]
        if made.dtype == DType.u32:
            values = [value % 2**32 for value in values]
    return np.array(values, NUMPY[made.dtype]).reshape(made.shape)
