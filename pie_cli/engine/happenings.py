"""What every process did and when: the newest of it, for `pie trace`. Decodes nothing until asked.

What inferlets and the worker say is kept as bytes, as long as it is short.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from ipc import client as c
from ipc import codec
from ipc import messages as m
from ipc.errors import ProtocolError

MAX_KEPT = 100_000  # happenings of all processes
MAX_BYTES = 32 << 20  # of the frames among them
MAX_FRAME = 16 << 10  # bytes of a frame that is kept
MAX_COUNTED = 10_000  # processes whose lost happenings are counted
UP, DOWN = "commands", "events"


class Happening(msgspec.Struct, frozen=True, gc=False):  # a collection would visit all of them
    """`size`: bytes of what was said. `frame`: a short one's contents."""

    time: float
    number: int  # of the process
    kind: str
    size: int = 0
    frame: bytes | None = None


class Happenings:
    """One ring for all processes."""

    def __init__(self) -> None:
        self._ring: deque[Happening] = deque()
        self._bytes = 0
        self._missed: dict[int, int] = {}

    def add(self, time: float, number: int, kind: str, size: int = 0) -> None:
        self._ring.append(Happening(time, number, kind, size))
        self._trim()

    def add_frame(self, time: float, number: int, kind: str, frame: bytes) -> None:
        """UP or DOWN: a list of commands or events."""
        kept = frame if len(frame) <= MAX_FRAME else None
        self._bytes += len(kept or b"")
        self._ring.append(Happening(time, number, kind, len(frame), kept))
        self._trim()

    def of(self, number: int) -> tuple[list[Happening], int]:
        """Those of one process, oldest first, and how many more there were."""
        found = [happening for happening in self._ring if happening.number == number]
        return found, self._missed.get(number, 0)

    def _trim(self) -> None:
        while len(self._ring) > MAX_KEPT or self._bytes > MAX_BYTES:
            old = self._ring.popleft()
            self._bytes -= len(old.frame or b"")
            self._missed[old.number] = self._missed.pop(old.number, 0) + 1
            if len(self._missed) > MAX_COUNTED:
                del self._missed[next(iter(self._missed))]


def spans(happenings: list[Happening]) -> list[c.Span]:
    """The same as a timeline: passes from their submission to their end, the rest as moments."""
    passes = _Passes()
    found: list[c.Span] = []
    for happening in happenings:
        if happening.kind not in (UP, DOWN):
            facts = {"bytes": happening.size} if happening.size else {}
            kind = _KINDS.get(happening.kind, "process")
            found.append(c.Span(kind, happening.kind, happening.time, happening.time, facts))
        elif happening.frame is None:
            facts = {"bytes": happening.size}
            found.append(c.Span("pass", happening.kind, happening.time, happening.time, facts))
        elif happening.kind == UP:
            passes.submitted(happening.time, happening.frame)
        else:
            found += passes.ended(happening.time, happening.frame)
    return sorted([*found, *passes.unfinished()], key=lambda span: span.start)


_KINDS = {
    "sent": "message", "received": "message", "sent to": "message", "printed": "output",
    "file": "file",
}  # fmt: skip


class _Passes:
    """Fires that were asked for, and have not ended yet."""

    def __init__(self) -> None:
        # (pipeline, seq) -> time, pass
        self._submits: dict[tuple[int, int], tuple[float, int]] = {}
        # pipeline -> since when, run; also of one that is stopped: its last fires may still end
        self._runs: dict[int, list[tuple[float, m.RunAhead]]] = {}

    def submitted(self, time: float, frame: bytes) -> None:
        for command in _decoded(codec.decode_commands, frame):
            match command:
                case m.Submit(pipeline, pass_id, seq):
                    self._submits[pipeline, seq] = time, pass_id
                case m.RunAhead(pipeline):
                    self._runs.setdefault(pipeline, []).append((time, command))

    def ended(self, time: float, frame: bytes) -> Iterator[c.Span]:
        for event in _decoded(codec.decode_events, frame):
            if isinstance(event, m.Fired | m.Failed):
                start, pass_id = self._start(event.pipeline, event.seq, time)
                facts: dict[str, int | float | str] = {
                    "pipeline": event.pipeline, "seq": event.seq,
                }  # fmt: skip
                if pass_id is not None:
                    facts["pass"] = pass_id
                if isinstance(event, m.Failed):
                    facts["failure"] = event.failure.message
                elif cached := sum(event.cached):
                    facts["cached"] = cached
                name = "pass" if pass_id is None else f"pass {pass_id}"
                yield c.Span("pass", name, start, time, facts)
            elif isinstance(event, m.Goodbye):
                yield c.Span("pass", "goodbye", time, time, {"failure": event.failure.message})

    def unfinished(self) -> Iterator[c.Span]:
        for (pipeline, seq), (time, pass_id) in self._submits.items():
            facts = {"pipeline": pipeline, "seq": seq, "pass": pass_id, "state": "unfinished"}
            yield c.Span("pass", f"pass {pass_id}", time, time, facts)

    def _start(self, pipeline: int, seq: int, end: float) -> tuple[float, int | None]:
        """When a fire could have begun: when it was asked for, or the one before it ended.

        And of which pass it is, where that is known still.
        """
        if submit := self._submits.pop((pipeline, seq), None):
            return submit
        runs = self._runs.get(pipeline, [])
        while len(runs) > 1 and seq >= runs[1][1].first_seq:
            del runs[0]
        if not runs or seq < runs[0][1].first_seq:  # it was asked for longer ago than what is kept
            return end, None
        since, run = runs[0]
        runs[0] = end, run
        return since, run.pass_id


def _decoded(decode, frame: bytes) -> list:
    try:
        return decode(frame)
    except ProtocolError:  # what an inferlet says is the worker's to refuse
        return []
