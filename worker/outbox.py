"""What the hub is told: one message a wave, with the events of every process and, at most once a
second, statistics."""

from ipc import codec
from ipc.messages import ProcessStats
from ipc.transport import Link
from worker.state import State


class Outbox:
    def __init__(self, state: State, link: Link) -> None:
        self.state = state
        self.link = link
        self._stats_due = 0.0  # not before
        self._told: tuple | None = None  # nothing yet: an engine that idles tells its counters, too

    def flush(self, now: float, waves: int) -> None:
        """Sends what there is; nothing when there is nothing."""
        batches = [
            (number, codec.encode_events(events)) for number, events in self.state.events.items()
        ]
        self.state.events.clear()
        notices = self._statistics(now, waves)
        if batches or notices:
            self.link.send(notices, batches)

    def _statistics(self, now: float, waves: int) -> list[ProcessStats]:
        version = self._version(waves)
        if now < self._stats_due or version == self._told:
            return []
        self._stats_due = now + self.state.config.stats_interval
        report = self._collect(waves)
        self.state.ended.clear()  # they are told once
        self._told = self._version(waves)
        return [report]

    def seconds_to_statistics(self, now: float, waves: int) -> float | None:
        """Until statistics are due that the hub does not have; None when it has them."""
        if self._version(waves) == self._told:
            return None
        return max(self._stats_due - now, 0.0)

    def _version(self, waves: int) -> tuple:
        """Changes whenever the statistics do, but for the counts of messages."""
        state = self.state
        return waves, tuple(state.processes), tuple(state.ended), state.pool.num_free

    def _collect(self, waves: int) -> ProcessStats:
        processes = {
            number: (process.tokens_in, process.tokens_out, process.pages)
            for number, process in self.state.processes.items()
        }
        pool = self.state.pool
        ended = dict(self.state.ended)
        return ProcessStats(
            processes, pool.num_free, pool.capacity, waves, self.link.received, self.link.sent, ended
        )
