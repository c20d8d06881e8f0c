"""Binds a pass at its first submit: records its stages, checks its ports, and tells the engine.

`prepare` changes nothing but the pass's cache of its recording, so a refused submit can be
retried; `commit` happens when the submit is accepted.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from inferlet.channel import Channel
from inferlet.errors import InferletError, TraceError, with_hint
from inferlet.eta.trace import Traced, fail, trace
from inferlet.forward import ForwardPass
from inferlet.runtime import handles
from inferlet.runtime.results import Results
from inferlet.runtime.source import at
from inferlet.working_set import WorkingSet
from ipc import messages as m
from ipc.accounting import ChannelEffect, fire_effects
from ipc.eta.graph import SPENT
from ipc.types import BoundProgram, DType, Operand, PassSpec, TensorType

if TYPE_CHECKING:
    from inferlet.runtime.fires import PipelineState

NumberOf = Callable[[Channel], int]


@dataclass
class Shape:
    """Rows, lanes and readout of a pass: all that its stages' types depend on."""

    num_rows: int
    indptr: tuple[int, ...]
    readout: tuple[int, ...]  # in lane order
    readout_counts: tuple[int, ...]

    @property
    def num_lanes(self) -> int:
        return len(self.indptr) - 1


@dataclass
class Recorded:
    """The traced stages of a pass for one shape."""

    shape: Shape
    prologue: Traced | None
    epilogue: Traced | None

    @property
    def stages(self) -> list[Traced]:
        return [stage for stage in (self.prologue, self.epilogue) if stage]


class BoundPass:
    """A pass that was submitted. Outlives the user's handle while fires of it are unsettled."""

    def __init__(self, fwd: ForwardPass, pipeline: "PipelineState", plan: "Plan") -> None:
        self.number = handles.current().number("pass")
        self.label = f"pass {self.number} (made at {at(fwd._line)})"
        self.pipeline = pipeline
        self.recorded: Recorded = plan.recorded
        self.tokens = fwd._tokens
        self.spec: PassSpec = plan.spec(self.number, lambda channel: channel._number)
        self.effects: dict[Channel, ChannelEffect] = plan.effects
        # Weak: the results know the pass, and nobody can await them once the user has no handle.
        self._results = weakref.ref(fwd._results) if fwd._results else lambda: None
        self.sent_sets = self.spec.working_sets
        self.num_accepted = self.num_settled = 0
        self.num_unsettled = 0  # accepted by `submit`, not settled: a run counts its own

    @property
    def results(self) -> Results | None:
        return self._results()

    @property
    def epilogue(self) -> Traced | None:
        return self.recorded.epilogue

    @property
    def returns_value(self) -> bool:
        return self.epilogue is not None and self.epilogue.returns_value

    def line_of(self, stage: str, node: int) -> str:
        """`app.py:14` of the operation at `node` of a stage; empty when it is not known."""
        traced = getattr(self.recorded, stage) if stage else None
        line = traced.source.get(node) if traced else None
        return at(line) if line else ""


class Plan:
    """What binding `fwd` to `pipeline` would do. Raises at once when it is refused."""

    def __init__(self, fwd: ForwardPass, pipeline: "PipelineState") -> None:
        self.fwd, self.pipeline = fwd, pipeline
        shape = _shape(fwd)
        if fwd._recorded is None or fwd._recorded.shape != shape:
            fwd._recorded = _record(fwd, shape)
        self.recorded: Recorded = fwd._recorded
        self.channels = self._all_channels()
        index = {channel: number for number, channel in enumerate(self.channels)}
        self._programs = {s.program_id: s.program for s in self.recorded.stages}
        spec = self.spec(0, index.__getitem__)
        effects = fire_effects(spec, lambda program: self._programs[program].slot_events())
        self.effects = {self.channels[number]: effect for number, effect in effects.items()}
        self._check_channels()

    def spec(self, number: int, number_of: NumberOf) -> PassSpec:
        fwd, shape = self.fwd, self.recorded.shape
        by_channel = isinstance(fwd._tokens, Channel)
        return PassSpec(
            pass_id=number,
            num_rows=shape.num_rows,
            tokens=(
                Operand(channel=number_of(fwd._tokens))
                if by_channel
                else Operand(values=tuple(fwd._tokens))
            ),
            indptr=shape.indptr,
            working_sets=tuple(ws._number for ws in fwd._working_sets),
            readout=shape.readout,
            readout_counts=shape.readout_counts,
            prologue=_bound_program(self.recorded.prologue, number_of),
            epilogue=_bound_program(self.recorded.epilogue, number_of),
            has_results=bool(self.recorded.epilogue and self.recorded.epilogue.result_types),
        )

    def commit(self) -> BoundPass:
        """Defines programs, channels and the pass. The pass is fixed from here on."""
        runtime = handles.current()
        for stage in self.recorded.stages:
            runtime.define_program(stage.program_id, stage.code)
        for channel in self.channels:
            channel._define()
        bound = BoundPass(self.fwd, self.pipeline, self)
        for channel, effect in self.effects.items():
            channel._claim(self.pipeline, effect.puts, effect.reads)
        for stage in self.recorded.stages:
            safe = stage.program.never_absent_puts()
            for slot, kind in stage.program.slot_events():
                if kind == "put" and slot not in safe:
                    stage.channels[slot]._may_be_absent = True
        runtime.command(m.DefinePass(bound.spec))
        runtime.drop_with(self.fwd, m.DropPass(bound.number))
        if self.fwd._results:
            self.fwd._results._bind(bound)
        self.pipeline.passes.add(bound)
        self.fwd._bound = bound
        # The functions and what they close over are no longer needed.
        self.fwd._prologue = self.fwd._epilogue = self.fwd._recorded = None
        if runtime.on_bind:
            runtime.on_bind(bound)
        return bound

    def _all_channels(self) -> list[Channel]:
        found = [channel for stage in self.recorded.stages for channel in stage.channels]
        if isinstance(self.fwd._tokens, Channel):
            found.append(self.fwd._tokens)
        return list(dict.fromkeys(found))

    def _check_channels(self) -> None:
        for channel, effect in self.effects.items():
            if channel._owner is not None and channel._owner is not self.pipeline:
                raise InferletError(
                    with_hint(
                        f"{channel._label} is used by passes of another pipeline (made at "
                        f"{at(channel._owner.line)})",
                        "all passes that share a channel go to one pipeline",
                    )
                )
            if effect.reads and channel._is_watched:
                raise TraceError(
                    with_hint(
                        f"{self.fwd._label} reads {channel._label}, whose cells the host takes",
                        "use a second channel for what stages read",
                    )
                )


def _bound_program(stage: Traced | None, number_of: NumberOf) -> BoundProgram | None:
    if stage is None:
        return None
    numbers = tuple(number_of(channel) for channel in stage.channels)
    return BoundProgram(stage.program_id, numbers, stage.constants)


# ---- ports


def _shape(fwd: ForwardPass) -> Shape:
    if fwd._tokens is None:
        raise InferletError(with_hint(f"{fwd._label} embeds nothing", "call `.embed(tokens)`"))
    if fwd._geometry is None:
        raise InferletError(
            with_hint(
                f"{fwd._label} has no state",
                "call `.state([ws], StateGeometry.folding())` before submitting it",
            )
        )
    num_rows = _num_rows(fwd)
    indptr = tuple(fwd._indptr) if fwd._indptr is not None else (0, num_rows)
    _check_indptr(fwd, indptr, num_rows)
    lanes = len(indptr) - 1
    if len(fwd._working_sets) != lanes:
        raise InferletError(
            f"{fwd._label} has {lanes} lanes; `state` got {len(fwd._working_sets)} working sets"
        )
    readout, counts = _readout(fwd, indptr)
    return Shape(num_rows, indptr, readout, counts)


def _num_rows(fwd: ForwardPass) -> int:
    tokens, limit = fwd._tokens, handles.current().engine.max_embed_length
    if isinstance(tokens, Channel):
        if tokens.dtype is not DType.i32 or len(tokens.shape) != 1:
            raise TraceError(
                with_hint(
                    f"{fwd._label} embeds {tokens._label}, which is {tokens._cell}",
                    "tokens come from an i32 channel of shape [rows]",
                )
            )
        num_rows = tokens.shape[0]
    else:
        num_rows = len(tokens)
        check_tokens(tokens, fwd._label)
    if num_rows > limit:
        raise InferletError(
            with_hint(
                f"{fwd._label} embeds {num_rows} rows; one pass takes at most {limit}",
                "cut the prompt into several passes: the result is the same",
            )
        )
    return num_rows


def check_tokens(tokens: list[int], label: str) -> None:
    """InferletError for an id that is neither in the vocabulary nor -1 (absent)."""
    size = handles.current().model.output_vocab_size
    for row, token in enumerate(tokens):
        if not -1 <= token < size:
            raise InferletError(
                f"token id {token} in row {row} of {label} is outside the vocabulary: "
                f"0 to {size - 1}, or -1 for an absent row"
            )


def _check_indptr(fwd: ForwardPass, indptr: tuple[int, ...], num_rows: int) -> None:
    rises = all(a <= b for a, b in pairwise(indptr))
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != num_rows or not rises:
        raise InferletError(
            f"`indptr` of {fwd._label} is {list(indptr)[:16]}: it starts with 0, never "
            f"decreases, and ends with the number of rows, {num_rows}"
        )


def _readout(fwd: ForwardPass, indptr: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lanes = list(pairwise(indptr))
    if fwd._readout is not None:
        for index in fwd._readout:
            if not 0 <= index < indptr[-1]:
                raise InferletError(
                    f"`readout` of {fwd._label} names row {index}; it has {indptr[-1]} rows"
                )
    if fwd._epilogue is None:  # nobody reads outputs
        return (), (0,) * len(lanes)
    if fwd._readout is None:
        by_lane = [[end - 1] if end > start else [] for start, end in lanes]
    else:
        by_lane = [[i for i in fwd._readout if start <= i < end] for start, end in lanes]
    return tuple(i for rows in by_lane for i in rows), tuple(len(rows) for rows in by_lane)


# ---- stages


def _record(fwd: ForwardPass, shape: Shape) -> Recorded:
    def output_type(lane: int, name: str) -> TensorType:
        return _output_type(shape, lane, name)

    def record(kind: str, function: Callable[[], Any], found: dict[Channel, str]) -> Traced:
        label = f"{kind} of the {fwd._label}"
        return trace(function, kind=kind, label=label, output_type=output_type, found=found)

    prologue = fwd._prologue and record("prologue", fwd._prologue, {})
    found = _left_by(prologue, [fwd._tokens])
    epilogue = fwd._epilogue and record("epilogue", fwd._epilogue, found)
    return Recorded(shape, prologue, epilogue)


def _left_by(prologue: Traced | None, consumed: Sequence[object]) -> dict[Channel, str]:
    """What an epilogue finds on the channels that the prologue has put. `consumed`: what feeds the
    ports that consume."""
    if prologue is None:
        return {}
    left = {prologue.channels[slot]: state for slot, state in prologue.program.leaves().items()}
    return {channel: SPENT if channel in consumed else state for channel, state in left.items()}


def _output_type(shape: Shape, lane: int, name: str) -> TensorType:
    model, counts = handles.current().model, shape.readout_counts
    if name not in model.outputs:
        fail(f"the model has no output {name!r}", f"its outputs: {', '.join(model.outputs)}")
    readable = [number for number, count in enumerate(counts) if count]
    if lane not in readable:
        have = f"lanes with rows read out: {', '.join(map(str, readable)) or 'none'}"
        what = "has no rows read out" if 0 <= lane < len(counts) else "does not exist"
        fail(f"lane {lane} {what}", have)
    return model.output_type(name, counts[lane])


def working_sets(fwd: ForwardPass) -> list[WorkingSet]:
    """The sets that the next fire of `fwd` uses; InferletError when one is in two lanes."""
    sets = fwd._working_sets
    if len(set(map(id, sets))) < len(sets):
        raise InferletError(
            with_hint(
                f"a working set is in two lanes of {fwd._label}",
                "give each lane a set of its own: `ws.fork(pipe)` copies one for free",
            )
        )
    return sets
