"""Binds a pass at its first submit: records its stages, checks its ports, and tells the engine.

`prepare` changes nothing but the pass's cache of its recording, so a refused submit can be
retried; `commit` happens when the submit is accepted.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferlet.channel import Channel
from inferlet.errors import InferletError, TraceError, with_hint
from inferlet.eta.trace import Traced, fail, trace
from inferlet.forward import ForwardPass
from inferlet.runtime import handles, ports
from inferlet.runtime.outbox import check_pass
from inferlet.runtime.placing import Inputs
from inferlet.runtime.ports import NumberOf, Shape
from inferlet.runtime.results import Results
from inferlet.runtime.source import at
from inferlet.working_set import WorkingSet
from ipc import messages as m
from ipc.accounting import ChannelEffect, fire_effects
from ipc.errors import ErrorCode, Failure
from ipc.eta.graph import SPENT
from ipc.types import BoundProgram, PassSpec, TensorType

if TYPE_CHECKING:
    from inferlet.runtime.fires import PipelineState


@dataclass
class Recorded:
    """The traced stages of a pass for one shape."""

    shape: Shape
    prologue: Traced | None
    epilogue: Traced | None

    @property
    def stages(self) -> list[Traced]:
        return [stage for stage in (self.prologue, self.epilogue) if stage]

    @property
    def result_bytes(self) -> int:
        """Of what one fire returns to the host."""
        return sum(made.nbytes for made in self.epilogue.result_types) if self.epilogue else 0


class BoundPass:
    """A pass that was submitted. Outlives the user's handle while fires of it are unsettled."""

    def __init__(self, fwd: ForwardPass, pipeline: "PipelineState", plan: "Plan") -> None:
        self.number = handles.current().number("pass")
        self.label = f"pass {self.number} (made at {at(fwd._line)})"
        self.pipeline = pipeline
        self.recorded: Recorded = plan.recorded
        self.returned_bytes = plan.recorded.result_bytes  # of one fire, to the host
        self.inputs = plan.inputs
        self._mask = fwd._mask if isinstance(fwd._mask, Channel) else None
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

    def place_of(self, failure: Failure) -> str:
        """The user's line that a failure is about, `app.py:14`; empty when it is not known."""
        ports = ("tokens",) if failure.code == ErrorCode.TOKEN_RANGE else failure.ports
        fed = [self._mask if name == "mask" else getattr(self.inputs, name) for name in ports]
        places = [_put_at(port) for port in fed if isinstance(port, Channel)]
        if places:
            return "\n  at ".join(places)
        traced = getattr(self.recorded, failure.stage) if failure.stage else None
        line = traced.source.get(failure.node) if traced else None
        return at(line) if line else ""


def _put_at(channel: Channel) -> str:
    """Where the values that fed a port come from."""
    lines = ", ".join(map(at, channel._made_at)) or "the host"
    return f"{lines}: what is put on {channel._label}"


class Plan:
    """What binding `fwd` to `pipeline` would do. Raises at once when it is refused."""

    def __init__(self, fwd: ForwardPass, pipeline: "PipelineState") -> None:
        self.fwd, self.pipeline = fwd, pipeline
        shape = ports.shape_of(fwd)
        if fwd._recorded is None or fwd._recorded.shape != shape:
            fwd._recorded = _record(fwd, shape)
        self.recorded: Recorded = fwd._recorded
        constants = sum(len(stage.constants) for stage in self.recorded.stages)
        check_pass(ports.host_bytes(fwd) + constants, fwd._label)
        self.channels = self._all_channels()
        index = {channel: number for number, channel in enumerate(self.channels)}
        self._programs = {s.program_id: s.program for s in self.recorded.stages}
        spec = self.spec(0, index.__getitem__)
        effects = fire_effects(spec, lambda program: self._programs[program].slot_events())
        self.effects = {self.channels[number]: effect for number, effect in effects.items()}
        self._check_channels()
        self.inputs = Inputs.of(fwd, shape, self.recorded.prologue)

    def spec(self, number: int, number_of: NumberOf) -> PassSpec:
        fwd, shape = self.fwd, self.recorded.shape
        stages = self.recorded.stages
        puts = {
            stage.channels[slot]
            for stage in stages
            for slot, kind in stage.program.slot_events()
            if kind == "put"
        }
        return PassSpec(
            pass_id=number,
            num_rows=shape.num_rows,
            indptr=shape.indptr,
            working_sets=tuple(ws._number for ws in fwd._working_sets),
            readout=shape.readout,
            readout_counts=shape.readout_counts,
            prologue=_bound_program(self.recorded.prologue, number_of),
            epilogue=_bound_program(self.recorded.epilogue, number_of),
            has_results=bool(self.recorded.epilogue and self.recorded.epilogue.result_types),
            **ports.spec_fields(fwd, shape.num_lanes, number_of, puts),
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
            for slot, node in stage.program.last_puts.items():
                if line := stage.source.get(node):
                    stage.channels[slot]._made_at[line] = None
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
        found += ports.port_channels(self.fwd)
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


# ---- stages


def _record(fwd: ForwardPass, shape: Shape) -> Recorded:
    def output_type(lane: int, name: str) -> TensorType:
        return _output_type(shape, lane, name)

    def record(kind: str, function: Callable[[], Any], found: dict[Channel, str]) -> Traced:
        label = f"{kind} of the {fwd._label}"
        return trace(function, kind=kind, label=label, output_type=output_type, found=found)

    prologue = fwd._prologue and record("prologue", fwd._prologue, {})
    found = _left_by(prologue, ports.consumed_channels(fwd))
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
