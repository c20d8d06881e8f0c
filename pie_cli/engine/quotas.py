"""How much one inferlet may make the hub do. Knows numbers and time, nothing of sockets.

A process that sends more than its budget is read later: only its own frames wait. One that breaks
a cap is ended.
"""

from dataclasses import dataclass

# Of one process per turn of the loop: nobody waits for a long frame, or for thousands of short ones.
MIN_READ, FIRST_READ, MAX_READ = 48, 256, 256 << 10  # bytes
MAX_SECONDS = 60e-6  # of the hub's CPU time, for the frames of one turn
# Of the hub's CPU time, for one process while others speak: the rest is theirs, and idle.
SHARE, SHARE_BURST = 0.2, 0.5e-3  # the burst in seconds
HEARD_SECONDS = 0.05  # in which one that spoke counts as speaking
BYTES_PER_SECOND = 64 << 20
BURST_BYTES = 128 << 20
MAX_UNFINISHED = 512 << 20  # bytes of frames that have come in part, of all processes
# Bytes that wait for a process which does not read its socket, and for all such processes.
MAX_UNREAD, MAX_UNREAD_OF_ALL = 640 << 20, 1 << 30
UNREAD_FRAME = 350  # bytes, of what holds a frame that waits
MAX_UNSHOWN = 8 << 20  # of what a client was told, above which its process is not read
INBOX_ROOM = 1 << 20  # bytes waiting for a process, above which its inbox holds messages back


def next_read(size: int, num_bytes: int, seconds: float) -> int:
    """Bytes to read next, when the last read of at most `size` gave so many, which took so long."""
    if seconds > MAX_SECONDS:
        return max(MIN_READ, min(size // 2, int(num_bytes * MAX_SECONDS / seconds)))
    is_cheap = num_bytes == size and seconds < MAX_SECONDS / 2
    return min(MAX_READ, 2 * size) if is_cheap else size


@dataclass(slots=True)
class Bucket:
    """A rate with a burst: what is spent comes back at `rate` a second, up to `burst`."""

    rate: float
    burst: float
    level: float
    time: float

    def spend(self, amount: float, now: float) -> float:
        """Take `amount`; the seconds until the level is no longer below zero (0: go on)."""
        self.level = min(self.burst, self.level + (now - self.time) * self.rate) - amount
        self.time = now
        return max(0.0, -self.level / self.rate)


class Speakers:
    """Who speaks to the hub these days: whether a process has it for itself."""

    def __init__(self) -> None:
        self._last: object = None
        self._other_time = self._last_time = -HEARD_SECONDS  # other: than the last

    def heard(self, speaker: object, now: float) -> None:
        if speaker != self._last:
            self._last, self._other_time = speaker, self._last_time
        self._last_time = now

    def has_other(self, now: float) -> bool:
        """Whether anybody spoke lately besides the one who was heard last."""
        return now - self._other_time < HEARD_SECONDS


class ReadBudget:
    """What one process may send in a second, and at once: bytes, frames, and the work that they
    make while others speak."""

    def __init__(self, frames_per_second: int, now: float) -> None:
        self._share = Bucket(SHARE, SHARE_BURST, SHARE_BURST, now)
        self._bytes = Bucket(BYTES_PER_SECOND, BURST_BYTES, BURST_BYTES, now)
        burst = max(2, frames_per_second // 5)
        self._frames = Bucket(frames_per_second, burst, burst, now)

    def spend(self, num_bytes: int, num_frames: int, now: float) -> float:
        """Seconds for which the process must not be read."""
        return max(self._bytes.spend(num_bytes, now), self._frames.spend(num_frames, now))

    def spend_share(self, seconds: float, now: float) -> float:
        """The same for CPU time of the hub that others want too."""
        return self._share.spend(seconds, now)


class Meter:
    """Counts up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def add(self, amount: int) -> bool:
        """Whether the limit still holds."""
        self.used += amount
        return self.used <= self.limit
