"""Channel: a bounded FIFO of tensors between the host and the stages of one pipeline's passes.

Counts cells with what the host and all accepted fires have done (contract, 10.3), so that every
refusal comes at the user's line. Holds the cells that the engine has sent and nobody took yet.
"""

from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from inferlet.dtypes import as_dtype
from inferlet.errors import ChannelFull, InferletError, TraceError, with_hint
from inferlet.eta.trace import current_stage
from inferlet.runtime import cells, handles
from inferlet.runtime.outbox import check_cell
from inferlet.runtime.source import Line, at, user_line
from inferlet.runtime.waiting import Mailbox
from ipc import messages as m
from ipc.types import MAX_CAPACITY, MAX_CELL_BYTES, DType, TensorType

if TYPE_CHECKING:
    from inferlet.eta import Tensor
    from inferlet.runtime.fires import PipelineState


class Cell:
    """One cell on its way to the host. `data` is None while the engine still has it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data


class Channel:
    """A FIFO of cells of one shape and dtype; capacity 1 unless `.capacity(n)` says otherwise."""

    def __init__(self, shape: int | Sequence[int], dtype: DType) -> None:
        self.dtype = as_dtype(dtype)
        self.shape = cells.shape_of(shape)
        self._line = user_line()
        self.name = at(self._line)
        self._is_named = False
        self._is_seeded = False  # the host had put cells before the first submit
        self._cell = TensorType(self.dtype, self.shape)
        if self._cell.nbytes > MAX_CELL_BYTES:
            raise ValueError(
                with_hint(
                    f"a cell of {self._cell} has {self._cell.nbytes:,} bytes; a channel's cell has "
                    f"at most {MAX_CELL_BYTES:,}",
                    "use a smaller shape, or several channels",
                )
            )
        self._capacity = 1
        self._number = -1  # the engine's handle, once a pass uses the channel
        # count = cells in the ring after all host calls and accepted fires. In a run: after the
        # fires that were delivered.
        self._count = 0
        self._staged: deque[np.ndarray] = deque()  # host cells that no accepted fire has popped
        self._owner: PipelineState | None = None
        self._stage_puts = self._stage_reads = False
        self._may_be_absent = False  # some stage's put may hold the token id -1
        self._made_at: dict[Line, None] = {}  # lines of what stages put, once each
        # Host-read channels: cells in order; `_owed` are those among them without data yet.
        self._held = 0  # committed cells that stay in the engine until the channel is watched
        self._is_watched = False
        self._inbox: Mailbox[Cell] = Mailbox(lambda cell: cell.data is not None)
        self._owed: deque[Cell] = deque()
        self._early: deque[bytes] = deque()  # cells that came before word of their fires

    @classmethod
    def from_(cls, values: Any, dtype: DType | None = None) -> "Channel":
        """Capacity 1, seeded with one cell whose shape is that of `values`."""
        what = f"the values of the channel (made at {at(user_line())})"
        array, kind = cells.infer(values, None if dtype is None else as_dtype(dtype), what)
        channel = cls(array.shape, kind)
        channel._append(cells.encode(array, channel._cell, channel._label))
        return channel

    def capacity(self, n: int) -> "Channel":
        """Makes the ring hold `n` cells. Legal until a submit uses the channel."""
        self._host_only("capacity")
        n = cells.integer(n, "capacity")
        if not 1 <= n <= MAX_CAPACITY:
            raise ValueError(
                with_hint(
                    f"capacity {n} of {self._label}; it is 1 to {MAX_CAPACITY}",
                    "let the host take cells while fires put them: few need to wait",
                )
            )
        if self._number >= 0:
            raise TraceError(
                with_hint(
                    f"the capacity of {self._label} is fixed: a submitted pass uses it",
                    "call `.capacity(n)` where the channel is made",
                )
            )
        if n < self._count:
            raise ValueError(
                with_hint(
                    f"capacity {n} of {self._label}, which holds {self._count} cells",
                    "set the capacity before the cells are put",
                )
            )
        self._capacity = n
        return self

    def named(self, name: str) -> "Channel":
        """Gives the channel a name for messages."""
        self.name, self._is_named = str(name), True
        return self

    # ---- stages and host

    def put(self, x: Any) -> None:
        """In a stage: sets the cell that this fire commits. On the host: appends a cell."""
        stage = current_stage()
        if stage is not None:
            stage.put(self, x)
            return
        self._check_usable()
        if self._stage_puts:
            self._wrong_end("put", "stages put it", "host values")
        array = cells.encode(x, self._cell, self._label)
        if self._count >= self._capacity:
            raise ChannelFull(
                with_hint(
                    f"{self._label} is full: it holds {self._capacity} of {self._capacity} cells",
                    "let a pass `take` a cell first, make room with `.capacity(n)`, "
                    "or replace the oldest cell with `.set(x)`",
                )
            )
        self._append(array)
        if self._number >= 0:
            handles.current().command(m.Put(self._number, array.tobytes()))

    def take(self) -> "Tensor | Awaitable[np.ndarray]":
        """In a stage: a Tensor. On the host: awaits the oldest cell and consumes it."""
        stage = current_stage()
        return stage.take(self) if stage is not None else self._host_next("take", True)

    def read(self) -> "Tensor | Awaitable[np.ndarray]":
        """As `take`, without consuming."""
        stage = current_stage()
        return stage.read(self) if stage is not None else self._host_next("read", False)

    async def take_scalar(self) -> int | float | bool:
        """`take` as a Python number."""
        self._host_only("take_scalar")
        if self._cell.size != 1:
            raise InferletError(
                with_hint(
                    f"`take_scalar` on {self._label}, whose cells have shape {list(self.shape)}",
                    "use `take()` for more than one element",
                )
            )
        return (await self._host_next("take_scalar", True)).item()

    def set(self, x: Any) -> None:
        """Replaces the cell that the next submitted fire would find; accepted fires keep theirs."""
        self._host_only("set")
        self._check_usable()
        if self._stage_puts:
            self._wrong_end("set", "stages put it", "host values")
        array = cells.encode(x, self._cell, self._label)
        if not self._count:
            raise InferletError(
                with_hint(f"`set` on {self._label}, which holds no cell", "`put` one first")
            )
        self._staged[0] = array
        if self._number < 0:
            return
        command = m.SetCell(self._number, array.tobytes())
        if self._owner and self._owner.run:
            self._owner.run.set_cell(self, command)
        else:
            handles.current().command(command)

    # ---- the host's end

    def _host_next(self, what: str, consumes: bool) -> Awaitable[np.ndarray]:
        if not self._stage_puts and (self._count or self._stage_reads):
            self._wrong_end(what, "the host fills it", "results of stages")
        if self._stage_reads:
            self._wrong_end(what, "a stage or a port reads it", "the host")
        return self._await_cell(consumes)

    async def _await_cell(self, consumes: bool) -> np.ndarray:
        if self._stage_puts and not self._is_watched:
            self._watch()
        cell = await self._inbox.next(self._refusal, consumes)
        if consumes:
            self._count -= 1
        return cells.decode(cell.data, self._cell)

    def _watch(self) -> None:
        """From now on the engine sends the cells, those that it holds first."""
        self._is_watched = True
        handles.current().command(m.Watch(self._number))
        for _ in range(self._held):
            self._inbox.items.append(self._owe())
        if self._owner.run:
            self._owner.run.owe(self)

    def _owe(self) -> Cell:
        """A committed cell that came without its data: it is here already, or will be sent."""
        cell = Cell(self._early.popleft() if self._early else None)
        if cell.data is None:
            self._owed.append(cell)
        return cell

    def _pay(self, data: Sequence[bytes]) -> None:
        """The cells that the engine held when the watch began, oldest first.

        Both sides count the same fires in the same order, undone ones too. Those of fires that are
        undone before word of them comes stay in `_early`: later fires bring their own cells.
        """
        for value in data:
            if self._owed:
                self._owed.popleft().data = value
            else:
                self._early.append(value)
        self._inbox.wake()

    def _commit(self, cell: Cell | None) -> None:
        """A fire that appends to this channel has settled; `cell` when the host watches it."""
        if cell is not None:
            self._inbox.add(cell)
        else:
            self._held += 1

    def _refusal(self, ahead: int) -> InferletError | None:
        """Why the cell after `ahead` others can never come, or None."""
        failure = handles.current().failure or (self._owner and self._owner.failure)
        has_cell = len(self._inbox.items) > ahead
        if failure:
            data_may_come = has_cell and not handles.current().failure
            return None if data_may_come else failure()
        if has_cell or self._count > ahead:
            return None
        if self._owner and self._owner.is_filling(self):
            return self._owner.fills_later()
        return InferletError(
            with_hint(
                f"nothing will fill {self._label}: no accepted fire puts a cell on it that is "
                "not taken yet",
                "submit a pass that puts it before awaiting it",
            )
        )

    # ---- used by passes and pipelines

    @property
    def _label(self) -> str:
        name = f" `{self.name}`" if self._is_named else ""
        return f"channel{name} (made at {at(self._line)})"

    def _define(self) -> None:
        """Tells the engine of the channel and its seeds, at the first submit that uses it."""
        if self._number >= 0:
            return
        runtime = handles.current()
        self._number = runtime.number("channel")
        self._is_seeded = bool(self._staged)
        runtime.channels[self._number] = self
        runtime.command(m.DefineChannel(self._number, self._cell, self._capacity))
        for array in self._staged:
            runtime.command(m.Put(self._number, array.tobytes()))
        runtime.drop_with(self, m.DropChannel(self._number))

    def _claim(self, owner: "PipelineState", puts: bool, reads: bool) -> None:
        """A pass of `owner` that was just accepted puts or reads the channel."""
        if puts and not self._stage_puts:
            self._held = self._count  # the host's cells count as seeds
        self._owner = owner
        owner.channels.add(self)
        self._stage_puts |= puts
        self._stage_reads |= reads

    def _append(self, array: np.ndarray) -> None:
        check_cell(array.nbytes, self._label)
        self._staged.append(array)
        self._count += 1

    def _check_usable(self) -> None:
        if handles.is_installed():
            handles.current().check_alive()
        if self._owner and self._owner.failure:
            raise self._owner.failure()

    def _host_only(self, what: str) -> None:
        if current_stage() is not None:
            raise TraceError(
                with_hint(
                    f"`{what}` of {self._label} is called inside a stage\n  at {at(user_line())}",
                    "stages `take`, `read` and `put`; call it on the host",
                )
            )

    def _wrong_end(self, what: str, why: str, second: str) -> NoReturn:
        raise TraceError(
            with_hint(
                f"the host cannot `{what}` {self._label}: {why}",
                f"use a second channel for {second}",
            )
        )
