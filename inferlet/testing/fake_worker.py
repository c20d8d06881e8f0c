"""A small engine in the test's own process: the worker's messages, numpy, and a model that is a
plain function of the tokens so far. It takes one command at a time and really runs ahead: a run
fires all its credits before the host sees the first result, and undoes what a Stop takes back.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from inferlet.testing.definitions import NUMPY
from inferlet.testing.fake_fire import Execution, FireFailed, SetState
from ipc import messages as m
from ipc.accounting import ChannelEffect, fire_effects
from ipc.errors import Failure
from ipc.eta import encode
from ipc.eta.graph import Program
from ipc.types import EngineInfo, ModelInfo, PassSpec, TensorType

Array = np.ndarray
#: Logits of the next token, or its id alone, from the tokens so far.
Model = Callable[[list[int]], Array | int]
PEAK = 10.0  # logit of the id that a model names


class SeededModel:
    """Logits that look random, and are a function of the seed and the tokens alone."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._vocab_size, self._seed = vocab_size, seed

    def __call__(self, tokens: list[int]) -> Array:
        generator = np.random.default_rng([self._seed, *(token + 1 for token in tokens)])
        return generator.standard_normal(self._vocab_size, np.float32)


@dataclass
class _Channel:
    cell: TensorType
    capacity: int
    ring: deque[Array] = field(default_factory=deque)
    is_watched: bool = False


@dataclass
class _Fired:
    """What one fire of a run did, so that it can be undone."""

    popped: list[tuple[_Channel, Array]] = field(default_factory=list)
    appended: list[_Channel] = field(default_factory=list)
    sets: list[tuple[int, SetState]] = field(default_factory=list)  # as they were before


@dataclass
class _Run:
    spec: PassSpec
    next_seq: int
    end_seq: int
    credits: int


@dataclass
class _Pipeline:
    run: _Run | None = None
    undo: dict[int, _Fired] = field(default_factory=dict)  # fires of the last run, by seq
    failed_at: int | None = None


@dataclass
class _Pass:
    spec: PassSpec
    effects: dict[int, ChannelEffect]
    num_fires: int = 0


class FakeWorker:
    """`send` gets each event. `faults[n]`: the n-th fire of all fails with this."""

    def __init__(
        self,
        info: ModelInfo,
        engine: EngineInfo,
        model: Model,
        send: Callable[[m.Event], None],
        faults: Mapping[int, Failure] | None = None,
    ) -> None:
        self.info, self._engine, self._model, self._send = info, engine, model, send
        self._faults = dict(faults or {})
        self.num_fires = 0  # over-run fires included
        self.working_sets: dict[int, SetState] = {}
        self._ever: dict[int, SetState] = {}
        self.programs: dict[bytes, Program] = {}
        self.channels: dict[int, _Channel] = {}
        self._passes: dict[int, _Pass] = {}
        self._pipelines: dict[int, _Pipeline] = {}

    @property
    def sets_ever(self) -> dict[int, list[int]]:
        """Tokens by slot of every working set, dropped ones too: for tests to look at."""
        return {number: list(state.tokens) for number, state in self._ever.items()}

    def do(self, command: m.Command) -> None:
        """One command, at once and completely."""
        match command:
            case m.DefineProgram(code):
                program = encode.decode(code)
                self.programs[encode.program_id(code)] = program
            case m.DefineChannel(number, cell, capacity):
                self.channels[number] = _Channel(cell, capacity)
            case m.DefinePass(spec):
                events = fire_effects(spec, lambda i: self.programs[i].slot_events())
                self._passes[spec.pass_id] = _Pass(spec, events)
            case m.BindState(number, sets):
                self._rebind(self._passes[number], sets)
            case m.Put(number, data):
                self._put(self.channels[number], data)
            case m.SetCell(number, data):
                channel = self.channels[number]
                channel.ring[0] = _array(data, channel.cell)
            case m.Watch(number):
                self._watch(number)
            case m.OpenWorkingSet(number):
                self._set(number, SetState())
            case m.Fork(parent, child, _):
                self._set(child, self.working_sets[parent])
            case m.Reserve(number, end):
                tokens, slots = self.working_sets[number]
                self._set(number, SetState(tokens, slots.reserve(end)))
            case m.DropWorkingSet(number):
                del self.working_sets[number]
            case m.DropChannel(number):
                del self.channels[number]
            case m.DropPass(number):
                del self._passes[number]
            case _:
                self._do_in_pipeline(command)

    def _do_in_pipeline(self, command: m.Command) -> None:
        if isinstance(command, m.OpenPipeline):
            self._pipelines[command.pipeline] = _Pipeline()
            return
        number, pipeline = command.pipeline, self._pipelines[command.pipeline]
        match command:
            case m.Submit(_, pass_id, seq, _):
                self._fire(number, self._passes[pass_id], seq)
            case m.RunAhead(_, pass_id, first, budget, credits):
                pipeline.undo.clear()
                run = _Run(self._passes[pass_id], first, first + budget, credits)
                pipeline.run = run
                self._advance(number, run)
            case m.Credit(_, fires):
                pipeline.run.credits += fires
                self._advance(number, pipeline.run)
            case m.Stop(_, last_seq):
                self._stop(pipeline, last_seq)
            case m.ClosePipeline():
                pipeline.run = None

    # ---- runs

    def _advance(self, number: int, run: _Run) -> None:
        """Fires as far as the credits go, whether or not the host has seen anything yet."""
        pipeline = self._pipelines[number]
        while run.credits and run.next_seq < run.end_seq and pipeline.failed_at is None:
            run.credits -= 1
            pipeline.undo[run.next_seq] = self._fire(number, run.spec, run.next_seq)
            run.next_seq += 1

    def _stop(self, pipeline: _Pipeline, last_seq: int) -> None:
        for seq in sorted(pipeline.undo, reverse=True):
            if seq > last_seq:
                self._undo(pipeline.undo.pop(seq))
        if pipeline.failed_at is not None and pipeline.failed_at > last_seq:
            pipeline.failed_at = None
        pipeline.run = None

    def _undo(self, fired: _Fired) -> None:
        for channel in fired.appended:
            if not channel.is_watched:  # else it went to the host, which drops it itself
                channel.ring.pop()
        for channel, cell in fired.popped:
            channel.ring.appendleft(cell)
        for number, state in fired.sets:
            if number in self.working_sets:
                reserved = self.working_sets[number].slots.reserved
                self._set(number, SetState(state.tokens, state.slots.reserve(reserved)))

    # ---- one fire

    def _fire(self, number: int, bound: _Pass, seq: int) -> _Fired:
        pipeline, fired = self._pipelines[number], _Fired()
        if pipeline.failed_at is not None:  # accepted before the host knew
            return fired
        self.num_fires += 1
        try:
            if self.num_fires in self._faults:
                raise FireFailed(self._faults[self.num_fires])
            fire = Execution(self, bound.spec)
            fire.run()
        except FireFailed as error:
            pipeline.failed_at = seq
            self._send(m.Failed(number, seq, error.failure))
            return fired
        cells = self._commit(bound, fire, fired)
        results = tuple(_bytes(array) for array in fire.results) if bound.spec.has_results else ()
        appended, frozen = fire.growth([state for _, state in fired.sets])
        is_known = bound.spec.appends_plainly and not bound.spec.tokens.is_channel
        self._send(
            m.Fired(
                number, seq, results, cells, () if is_known else appended,
                frozen=() if frozen == appended else frozen,
            )  # fmt: skip
        )
        return fired

    def _commit(
        self, bound: _Pass, fire: Execution, fired: _Fired
    ) -> tuple[tuple[int, bytes], ...]:
        cells = []
        for number, effect in bound.effects.items():
            channel = self.channels[number]
            if effect.pops or (effect.pops_if_present and channel.ring):
                fired.popped.append((channel, channel.ring.popleft()))
            if not effect.appends:
                continue
            fired.appended.append(channel)
            value = fire.new[number]
            if channel.is_watched:
                cells.append((number, _bytes(value)))
            else:
                channel.ring.append(value)
                assert len(channel.ring) <= channel.capacity, f"channel {number} overflows"
        for set_number, after in zip(bound.spec.working_sets, fire.after, strict=True):
            fired.sets.append((set_number, self.working_sets[set_number]))
            self._set(set_number, after)
        return tuple(cells)

    # ---- channels and sets

    def _put(self, channel: _Channel, data: bytes) -> None:
        channel.ring.append(_array(data, channel.cell))
        # Cells that queued fires will pop are gone already: this engine never lags behind.
        assert len(channel.ring) <= channel.capacity + self._engine.run_ahead_window

    def _watch(self, number: int) -> None:
        channel = self.channels[number]
        channel.is_watched = True
        self._send(m.Cells(number, tuple(_bytes(cell) for cell in channel.ring)))
        channel.ring.clear()

    def _set(self, number: int, state: SetState) -> None:
        self.working_sets[number] = state
        self._ever[number] = state

    def _rebind(self, bound: _Pass, sets: tuple[int, ...]) -> None:
        fields = {name: getattr(bound.spec, name) for name in bound.spec.__struct_fields__}
        bound.spec = PassSpec(**{**fields, "working_sets": sets})

    # ---- the model

    def outputs_after(self, tokens: list[int]) -> dict[str, Array]:
        """Each output of one row; tokens of absent rows are not in `tokens`."""
        logits = _logits(self._model(list(tokens)), self.info.output_vocab_size)
        return {"logits": logits, "hidden": np.resize(logits, self.info.width)}

    def absent_outputs(self) -> dict[str, Array]:
        """Each output of an absent row, which no model sees."""
        size, width = self.info.output_vocab_size, self.info.width
        return {"logits": np.zeros(size, np.float32), "hidden": np.zeros(width, np.float32)}


def _logits(made: Array | int, size: int) -> Array:
    """Logits from what the test's model gave: these, or an id. ValueError for anything else."""
    what = np.asarray(made)
    if what.shape == (size,) and what.dtype.kind in "fiu":
        return what.astype(np.float32)
    is_id = what.ndim == 0 and what.dtype.kind in "iu"
    if is_id and 0 <= what < size:
        logits = np.zeros(size, np.float32)
        logits[what] = PEAK
        return logits
    if is_id:
        gave = f"token id {made}; ids are 0 to {size - 1}"
    elif what.ndim and what.dtype.kind in "fiu":
        gave = f"logits of shape {list(what.shape)}; they have shape [{size}]"
    else:
        gave = f"{made!r:.80}; it gives f32 logits [{size}], or the next token's id, an int"
    raise ValueError(f"the test's model gave {gave}")


def _bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def _array(data: bytes, cell: TensorType) -> Array:
    kind = np.dtype(NUMPY[cell.dtype])
    return np.frombuffer(data, kind.newbyteorder("<")).astype(kind).reshape(cell.shape)
