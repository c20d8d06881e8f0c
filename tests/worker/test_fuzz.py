"""Commands that make little sense, in any order: the engine stays whole and forgets them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ipc import messages as m
from ipc.eta import encode as eta
from ipc.types import BoundProgram, Limits, Operand, PassSpec
from tests.worker.bench import TOKEN, Bench, Chat, greedy, greedy_tokens

PROMPT = [3, 1, 4]
EXPECTED = greedy_tokens(PROMPT, 3)
CODE = eta.encode(greedy())

handles = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2])
fresh = st.integers(4, 30)
seqs = st.just(0)  # `Wild` puts the right one
cells = st.sampled_from([bytes(4), (5).to_bytes(4, "little"), b"\xff" * 4])


@st.composite
def specs(draw: st.DrawFn) -> PassSpec:
    rows = draw(st.sampled_from([1, 5, 30]))
    lanes = draw(st.integers(1, 2))
    cut = draw(st.integers(0, rows))
    if draw(st.booleans()):
        rows, tokens = 1, Operand(channel=draw(handles))
    else:
        tokens = Operand(tuple(draw(st.lists(st.integers(-1, 63), min_size=rows, max_size=rows))))
    indptr = (0, rows) if lanes == 1 else (0, min(cut, rows), rows)
    sets = draw(st.permutations([0, 1, 2]))[:lanes]
    counts = (0,) * (lanes - 1) + (1,)
    epilogue = BoundProgram(eta.program_id(CODE), (draw(handles),), b"")
    # The program reads lane 0.
    stage = epilogue if lanes == 1 else None
    return PassSpec(
        draw(fresh), rows, tokens, indptr, tuple(sets), (rows - 1,), counts, None, stage,
        stage is not None,
    )  # fmt: skip


commands = st.one_of(
    st.builds(m.DefineChannel, fresh, st.just(TOKEN), st.integers(1, 3)),
    st.builds(m.DefinePass, specs()),
    st.builds(m.BindState, handles, st.tuples(handles)),
    st.builds(m.Put, handles, cells),
    st.builds(m.SetCell, handles, cells),
    st.builds(m.Watch, handles),
    st.builds(m.OpenWorkingSet, fresh),
    st.builds(m.Fork, handles, fresh, handles),
    st.builds(m.OpenPipeline, fresh),
    st.builds(m.Submit, handles, handles, seqs),
    st.builds(m.Submit, handles, handles, seqs),
    st.builds(m.RunAhead, handles, handles, seqs, st.integers(1, 9), st.integers(1, 6)),
    st.builds(m.Credit, handles, st.integers(1, 3)),
    st.builds(m.Stop, handles, st.integers(-1, 7)),
    st.builds(m.Stop, handles, st.integers(-1, 2)),
    st.builds(m.Park, handles),
    st.builds(m.ClosePipeline, handles),
    st.builds(m.DropWorkingSet, handles),
    st.builds(m.DropChannel, handles),
    st.builds(m.DropPass, handles),
)
#: Pipeline n has channel n, working set n, and passes 2n (a prompt) and 2n + 1 (a decode).
START = [m.DefineProgram(CODE)]
for n in range(2):
    stage = BoundProgram(eta.program_id(CODE), (n,), b"")
    tokens, last = Operand((1, 2, 3, 4, 5, 6)), (5,)
    prompt = PassSpec(2 * n, 6, tokens, (0, 6), (n,), last, (1,), None, stage, True)
    tokens, last = Operand(channel=n), (0,)
    decode = PassSpec(2 * n + 1, 1, tokens, (0, 1), (n,), last, (1,), None, stage, True)
    START += [m.DefineChannel(n, TOKEN, 2), m.OpenWorkingSet(n), m.OpenPipeline(n)]
    START += [m.Put(n, bytes(4)), m.DefinePass(prompt), m.DefinePass(decode)]


class Wild:
    """A process that says anything, but submits and stops so that most of it is nearly right."""

    def __init__(self, bench: Bench) -> None:
        self.client = bench.client(Limits(pages=40))
        self.client.say(*START)
        self.next_seq = dict.fromkeys(range(40), 0)
        self.runs: dict[int, int] = {}  # pipeline -> first fire of a run that may be stopped

    def say(self, command: m.Command) -> None:
        number = getattr(command, "pipeline", 0)
        if isinstance(command, m.Stop) and number not in self.runs:
            command = m.RunAhead(number, 1, 0, 9, 6)
        if isinstance(command, m.Submit | m.RunAhead):
            command = structs.replace(command, pass_id=2 * number + command.pass_id % 2)
        if isinstance(command, m.Submit):
            command = structs.replace(command, seq=self._take(number, 1))
        elif isinstance(command, m.RunAhead):
            first = self._take(number, command.budget)
            command = structs.replace(command, first_seq=first)
            self.runs[number] = first
        elif isinstance(command, m.Stop):
            command = structs.replace(command, last_seq=self.runs.pop(number) + command.last_seq)
        self.client.say(command)

    def _take(self, pipeline: int, seqs: int) -> int:
        self.runs.pop(pipeline, None)
        self.next_seq[pipeline] += seqs
        return self.next_seq[pipeline] - seqs


def _raise(process: object) -> None:
    """Only a Violation may end a process."""
    raise


@settings(max_examples=150, deadline=None)
@given(
    script=st.lists(st.lists(commands, min_size=1, max_size=2), max_size=25),
    budget=st.sampled_from([8, 64]),
    num_pages=st.sampled_from([5, 64]),
    context=st.sampled_from([10, 40]),
)
def test_any_commands_leave_the_engine_whole(
    script: list, budget: int, num_pages: int, context: int
) -> None:
    changes = {"row_budget": budget, "short_rows": 2, "min_chunk": 1}
    bench = Bench(num_pages=num_pages, context=context, **changes)
    bench.engine.server._bug = _raise
    # A violation ends the process, and the next one goes on.
    wild = Wild(bench)
    for commands_of_a_step in script:
        for command in commands_of_a_step:
            wild.say(command)
        bench.step()
        if wild.client.goodbye() is not None:
            wild = Wild(bench)
    bench.settle()
    for number in bench.clients:
        bench.hub.send([m.ProcessEnded(number)], [])
    bench.settle()
    pool = bench.state.pool
    assert pool.num_free == pool.capacity
    assert not bench.engine.launcher.rings._slabs
    assert not (bench.state.active or bench.state.expected or bench.state.events)
    chat = Chat(bench.client(), PROMPT)
    chat.start()
    chat.run(2)
    bench.settle()
    assert chat.tokens == EXPECTED
