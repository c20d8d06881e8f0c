"""Rings on the device: cells of all channels with one dtype and shape lie in one slab.

Owns memory and bytes; knows neither channels nor counts. Gathering the fronts of G instances is one
`index_select`, committing G puts one `index_copy_`. Host writes are collected and copied together.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import torch
from torch import Tensor

from ipc.types import TensorType
from worker.eta.kernels import STORAGE

MIN_CELLS = 64


class _Slab:
    """`[cells, *shape]`, growing by doubling, with a list of free ranges."""

    def __init__(self, cell: TensorType, device: torch.device) -> None:
        self.cell = cell
        self.device = device
        self.cells = self._new(0)
        self.writes: dict[int, bytes] = {}  # host puts not yet copied: a later one wins
        self._free: list[tuple[int, int]] = []  # (start, length), sorted, never adjacent
        self._used = 0

    def _new(self, count: int) -> Tensor:
        shape = (count, *self.cell.shape)
        return torch.zeros(shape, dtype=STORAGE[self.cell.dtype], device=self.device)

    def allocate(self, count: int) -> int:
        for place, (start, length) in enumerate(self._free):
            if length >= count:
                rest = [(start + count, length - count)] if length > count else []
                self._free[place : place + 1] = rest
                self._used += count
                return start
        self._grow(count)
        return self.allocate(count)

    def _grow(self, count: int) -> None:
        old = len(self.cells)
        small = MIN_CELLS if self.cell.nbytes <= 4096 else 0
        new = self._new(max(2 * old, old + count, small))
        new[:old] = self.cells
        self.cells = new
        self._add_free(old, len(new) - old)

    def free(self, start: int, count: int) -> None:
        self._used -= count
        if self._used == 0:  # nobody is left: give the memory back
            self.cells, self._free = self._new(0), []
            self.writes.clear()
            return
        self._add_free(start, count)

    def _add_free(self, start: int, count: int) -> None:
        insort(self._free, (start, count))
        joined: list[tuple[int, int]] = []
        for at, length in self._free:
            if joined and sum(joined[-1]) == at:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((at, length))
        self._free = joined

    def flush(self) -> None:
        if not self.writes:
            return
        indices = to_device(list(self.writes), self.device)
        data = bytearray(b"".join(self.writes.values()))
        rows = torch.frombuffer(data, dtype=STORAGE[self.cell.dtype])
        rows = rows.reshape(-1, *self.cell.shape).to(self.device)
        self.cells.index_copy_(0, indices, rows)
        self.writes.clear()


class DeviceRings:
    """Implements `worker.state.Rings`, and gathers and scatters for the launcher."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._slabs: dict[TensorType, _Slab] = {}

    def allocate(self, cell: TensorType, count: int) -> int:
        slab = self._slabs.get(cell)
        if slab is None:
            slab = self._slabs[cell] = _Slab(cell, self.device)
        return slab.allocate(count)

    def free(self, cell: TensorType, base: int, count: int) -> None:
        slab = self._slabs[cell]
        slab.free(base, count)
        if not len(slab.cells):
            del self._slabs[cell]

    def write(self, cell: TensorType, index: int, data: bytes) -> None:
        """Takes effect before the next gather or read."""
        self._slabs[cell].writes[index] = data

    def flush(self) -> None:
        for slab in self._slabs.values():
            slab.flush()

    def read(self, cell: TensorType, indices: Sequence[int]) -> list[bytes]:
        slab = self._slabs[cell]
        slab.flush()
        data = memoryview(to_bytes(self.gather(cell, indices)))
        return [bytes(data[at : at + cell.nbytes]) for at in range(0, len(data), cell.nbytes)]

    def gather(self, cell: TensorType, indices: Sequence[int]) -> Tensor:
        """Cells `[len(indices), *shape]`, copied."""
        at = to_device(indices, self.device)
        return self._slabs[cell].cells.index_select(0, at)

    def scatter(self, cell: TensorType, indices: Sequence[int], rows: Tensor) -> None:
        at = to_device(indices, self.device)
        self._slabs[cell].cells.index_copy_(0, at, rows)


def to_device(indices: Sequence[int], device: torch.device) -> Tensor:
    """int64 indices, without waiting for the device."""
    host = torch.tensor(indices, dtype=torch.int64)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


def as_bytes(rows: Tensor) -> Tensor:
    """uint8 `[G, bytes of one row]` of `[G, *shape]`: little-endian, row-major."""
    flat = rows.reshape(rows.shape[0], -1).contiguous()
    return flat.view(torch.uint8)


def to_bytes(rows: Tensor) -> bytes:
    return as_bytes(rows).cpu().numpy().tobytes()
