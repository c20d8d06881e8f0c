"""Recording: runs a stage function once on Tensors that stand for device values, and gives the
program. Owns the errors at the user's line. Refuses to know passes, pipelines and the wire.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from inferlet.errors import TraceError
from inferlet.eta import literals
from inferlet.eta.hints import (
    RESULT,
    cast_hint,
    channel_name,
    literal_hint,
    not_a_tensor,
    tensor_hint,
)
from inferlet.eta.results import Result, plan
from inferlet.eta.tensor import Tensor
from ipc.eta import check, encode, fit, work
from ipc.eta.graph import Builder, Program
from ipc.eta.ops import BY_NAME, Op
from ipc.types import DType, TensorType

Line = tuple[str, int]
OutputType = Callable[[int, str], TensorType]

_current: "Stage | None" = None


@dataclass(frozen=True)
class Traced:
    """What one stage became."""

    program: Program
    code: bytes
    program_id: bytes
    channels: list[Any]  # by channel slot
    constants: bytes  # little-endian pool, in canonical order
    result_types: list[TensorType]
    rebuild: Callable[[Sequence[np.ndarray]], Any]
    structure: Any  # of the result, without values
    outputs: dict[tuple[int, str], TensorType]  # model outputs that it reads
    returns_value: bool
    source: dict[int, Line]  # node -> the user's line


def current_stage() -> "Stage | None":
    """The stage that is being recorded, if any."""
    return _current


def user_line() -> Line:
    """File and line of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != "inferlet" and not module.startswith(("inferlet.", "ipc.")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def fail(what: str, hint: str = "", at: Line | None = None) -> NoReturn:
    """Raises TraceError for a line of the user's, by default the current one."""
    file, line = at or user_line()
    where = f", in the {_current.label}" if _current else ""
    text = f"{what}\n  at {file}:{line}{where}"
    raise TraceError(f"{text}\n\nhint: {hint}" if hint else text)


def active_stage(what: str) -> "Stage":
    """The stage being recorded; TraceError that `what` is used outside one."""
    if _current is None:
        fail(
            f"{what} is used outside a stage",
            "device operations belong in a function given to `epilogue` or `prologue`; "
            "on the host use numpy",
        )
    return _current


class Stage:
    """One stage while it is recorded."""

    def __init__(
        self, kind: str, label: str, output_type: OutputType, found: Mapping[Any, str]
    ) -> None:
        self.kind = kind
        self.label = label
        self._output_type = output_type
        self._found = found  # channel -> what an earlier phase of the fire left there
        self._builder = Builder()
        self._types: list[TensorType] = []
        self._lines: list[Line] = []
        self._constants: dict[int, bytes] = {}
        self._channels: list[Any] = []
        self._slots: dict[int, int] = {}  # id(channel) -> slot; `_channels` keeps them alive

    # -- operations

    def record(self, name: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Tensor:
        """One op of the table. Operands are Tensors and numbers."""
        op = BY_NAME[name]
        values = self._with_literals(op, operands)
        types = [self._types[value.node] for value in values]
        try:
            result = check.infer(op, types, attrs)
        except fit.RuleError as error:
            fail(error.what, error.hint)
        return self._tensor(self._builder.add(name, [v.node for v in values], attrs), result)

    def constant(self, data: np.ndarray, dtype: DType) -> Tensor:
        try:
            made = check.constant_type(dtype, data.shape)
        except fit.RuleError as error:
            fail(error.what, error.hint)
        node = self._builder.add("constant", (), {"dtype": dtype, "shape": data.shape})
        little = data.dtype.newbyteorder("<")
        self._constants[node] = np.ascontiguousarray(data, little).tobytes()
        return self._tensor(node, made)

    def output(self, lane: int, name: str) -> Tensor:
        if self.kind != "epilogue":
            fail(
                f"`intrinsics.output` is used in the {self.label}",
                "model outputs exist after the forward: read them in an epilogue",
            )
        made = self._output_type(lane, name)
        return self._tensor(self._builder.add("output", (), {"lane": lane, "name": name}), made)

    # -- channels

    def take(self, channel: Any) -> Tensor:
        return self._channel_value(self._builder.take(self._slot(channel)), channel)

    def read(self, channel: Any) -> Tensor:
        return self._channel_value(self._builder.read(self._slot(channel)), channel)

    def put(self, channel: Any, value: Any) -> None:
        if literals.is_scalar(value):
            value = self._literal(value, channel.dtype, f"put on {channel_name(channel)}")
        self._own(value, f"put on {channel_name(channel)}")
        if value.dtype != channel.dtype:
            fail(
                f"{value.dtype.with_article} tensor is put on {channel_name(channel)}, "
                f"which holds {channel.dtype.label}",
                cast_hint(channel.dtype, value.dtype),
            )
        self._check_leaves(value, f"is put on {channel_name(channel)}")
        target = TensorType(channel.dtype, tuple(channel.shape))
        if TensorType(value.dtype, value.shape).size != target.size:
            repair = fit.repair(value.shape, target.shape)
            fail(
                f"a tensor of shape {list(value.shape)} is put on {channel_name(channel)}, "
                f"whose cells have shape {list(target.shape)}",
                f"write `{repair}`" if repair else "make the element counts agree",
            )
        if value.shape != target.shape:
            value = self.record("reshape", (value,), {"shape": target.shape})
        self._builder.put(self._slot(channel), value.node)

    def _check_leaves(self, value: Tensor, how: str, at: Line | None = None) -> None:
        """Halves are only read: no stage makes them."""
        if value.dtype in fit.HALVES:
            fail(f"{value.dtype.with_article} tensor {how}", "write `cast(x, dtype.f32)` first", at)

    def _slot(self, channel: Any) -> int:
        slot = self._slots.setdefault(id(channel), len(self._channels))
        if slot == len(self._channels):
            self._channels.append(channel)
            if state := self._found.get(channel):
                self._builder.expect(slot, state)
        return slot

    def _channel_value(self, node: int, channel: Any) -> Tensor:
        return self._tensor(node, TensorType(channel.dtype, tuple(channel.shape)))

    # -- values

    def _tensor(self, node: int, made: TensorType) -> Tensor:
        # The builder may add nodes of its own (fronts), and gives old ones for equal nodes.
        while len(self._types) <= node:
            self._types.append(made)
            self._lines.append(user_line())
        return Tensor(self, node, made)

    def _own(self, value: Any, what: str, at: Line | None = None) -> Tensor:
        if not isinstance(value, Tensor):
            fail(not_a_tensor(value, what), tensor_hint(value, what), at)
        if value.stage is not self:
            file, line = value.stage.line_of(value)
            fail(
                f"{what} got a tensor of the {value.stage.label}, made at {file}:{line}",
                "a tensor lives in one stage; carry its value through a channel: "
                "`put` it there and `take` it here",
                at,
            )
        return value

    def line_of(self, value: Tensor) -> Line:
        return self._lines[value.node]

    def _with_literals(self, op: Op, operands: Sequence[Any]) -> list[Tensor]:
        what = f"`{op.name}`"
        together = [
            operand for arg, operand in zip(op.args, operands, strict=True) if arg.literal == "same"
        ]
        numbers = [operand for operand in together if literals.is_scalar(operand)]
        tensors = [operand for operand in together if isinstance(operand, Tensor)]
        values = []
        for arg, operand in zip(op.args, operands, strict=True):
            if arg.literal and literals.is_scalar(operand):
                if arg.literal != "same":
                    dtype = DType.from_name(arg.literal)
                else:
                    dtype = tensors[0].dtype if tensors else literals.common_dtype(numbers)
                operand = self._literal(operand, dtype, what)
            values.append(self._own(operand, what))
        return values

    def _literal(self, value: Any, dtype: DType, what: str) -> Tensor:
        if dtype in fit.HALVES:
            fail(
                f"{what}: a number meets {dtype.with_article} tensor",
                "write `cast(x, dtype.f32)` first",
            )
        try:
            return self.constant(literals.scalar(value, dtype), dtype)
        except literals.LiteralError as error:
            fail(f"{what}: {error}", literal_hint(value, dtype))

    # -- end

    def finish(self, returned: Any, at: Line) -> Traced:
        """The program. `at` is the line of the stage function, for what is wrong as a whole."""
        result: Result = plan(returned, lambda value: self._own(value, RESULT, at))
        for tensor in result.tensors:
            self._check_leaves(tensor, "is returned", self.line_of(tensor))
        nodes = [tensor.node for tensor in result.tensors]
        program, positions = self._builder.finish(nodes)
        outputs = {key: self._output_type(*key) for key in program.outputs()}
        source = {position: self._lines[node] for node, position in positions.items()}
        self._verify(program, outputs, source, at)
        code = encode.encode(program)
        pool = {
            positions[node]: data for node, data in self._constants.items() if node in positions
        }
        return Traced(
            program=program,
            code=code,
            program_id=encode.program_id(code),
            channels=self._channels,
            constants=b"".join(pool[node] for node in sorted(pool)),
            result_types=[self._types[node] for node in nodes],
            rebuild=result.rebuild,
            structure=result.structure,
            outputs=outputs,
            returns_value=returned is not None,
            source=source,
        )

    def _verify(
        self,
        program: Program,
        outputs: check.OutputTypes,
        source: Mapping[int, Line],
        at: Line,
    ) -> None:
        slots = [TensorType(c.dtype, tuple(c.shape)) for c in self._channels]
        try:
            check.check(program, slots, outputs)
        except check.CheckError as error:
            fail(error.message, work.HINT, source.get(error.node, at))


def trace(
    function: Callable[[], Any],
    *,
    kind: str,
    label: str,
    output_type: OutputType,
    found: Mapping[Any, str] | None = None,
) -> Traced:
    """Records `function`. `output_type(lane, name)` raises TraceError for what is not readable.
    `found`: channels that an earlier phase of the fire has put, as HELD or SPENT."""
    global _current
    if _current is not None:
        fail(f"the {label} is recorded inside the {_current.label}", "submit passes on the host")
    stage = Stage(kind, label, output_type, found or {})
    _current = stage
    try:
        returned = function()
        return stage.finish(returned if kind == "epilogue" else None, _line_of(function))
    finally:
        _current = None


def _line_of(function: Callable[[], Any]) -> Line:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else user_line()


def record(op: str, *operands: Any, **attrs: Any) -> Tensor:
    """Records one op of the table in the current stage."""
    return active_stage(f"`{op}`").record(op, operands, attrs)


def shape_argument(op: str, value: Any) -> tuple[int, ...]:
    """A user's shape: an int or a sequence of ints."""
    if isinstance(value, Tensor):
        fail(f"`{op}` got a tensor for `shape`", "a shape is static: give Python ints")
    if literals.is_scalar(value):
        value = (value,)
    try:
        return tuple(int_argument(op, "shape", extent) for extent in value)
    except TypeError:
        fail(f"`{op}` got shape {value!r}; it takes an int or a sequence of ints")


def int_argument(op: str, name: str, value: Any) -> int:
    """A user's static integer."""
    if isinstance(value, Tensor):
        fail(f"`{op}` got a tensor for `{name}`", f"`{name}` is static: give a Python int")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        fail(f"`{op}` got {value!r} for `{name}`; it takes a Python int")
    return int(value)


def dtype_argument(op: str, value: Any) -> DType:
    if not isinstance(value, DType):
        fail(
            f"`{op}` got {value!r} for `dtype`", "use dtype.f32, dtype.i32, dtype.u32 or dtype.bool"
        )
    return value
