"""Values on their way to the host: one buffer and one copy a wave, cut into bytes on arrival."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.channels import as_bytes, to_device

Place = tuple[int, int]  # which tensor, which row of it


class Packer:
    """Collects rows of tensors `[G, *shape]`, then copies them to the host together."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}  # id(tensor) -> number; `_tensors` keeps them alive
        self._rows: list[dict[int, int]] = []  # per tensor: row -> place among the wanted ones

    def add(self, tensor: Tensor, row: int) -> Place:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._tensors)
            self._tensors.append(tensor)
            self._rows.append({})
        return number, self._rows[number].setdefault(row, len(self._rows[number]))

    def add_first(self, tensor: Tensor, count: int) -> int:
        """The first `count` rows, for `Packed.column`; before any other row of the tensor."""
        number = self._numbers.get(id(tensor))
        if number is not None:
            return number  # added with as many rows: a stage may give a value twice
        number = self._numbers[id(tensor)] = len(self._tensors)
        self._tensors.append(tensor)
        self._rows.append(dict(zip(range(count), range(count))))
        return number

    def pack(self) -> Packed:
        parts, sizes = [], []
        for tensor, rows in zip(self._tensors, self._rows):
            data = as_bytes(select_rows(tensor, list(rows)))
            parts.append(data.flatten())
            sizes.append(data.shape[1])
        return Packed(parts, sizes)


def select_rows(tensor: Tensor, rows: list[int]) -> Tensor:
    """`tensor[rows]`; the tensor itself when that is all of it."""
    if rows == list(range(tensor.shape[0])):
        return tensor
    return tensor.index_select(0, to_device(rows, tensor.device))


class Packed:
    """The bytes of one wave; on CUDA they are still being copied until `wait`."""

    def __init__(self, parts: list[Tensor], sizes: list[int]) -> None:
        self._sizes = sizes
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + len(part))
        self._event = None
        self._data: memoryview | None = None
        self._buffer = torch.cat(parts) if parts else None
        if self._buffer is not None and self._buffer.is_cuda:
            host = torch.empty_like(self._buffer, device="cpu", pin_memory=True)
            self._buffer = host.copy_(self._buffer, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()
        if self._buffer is not None:
            self._data = memoryview(self._buffer.numpy())

    def get(self, place: Place) -> bytes:
        number, row = place
        size = self._sizes[number]
        start = self._starts[number] + row * size
        return bytes(self._data[start : start + size])

    def column(self, number: int, count: int) -> list[bytes]:
        """The first `count` rows of a tensor, one by one."""
        size, start = self._sizes[number], self._starts[number]
        data = bytes(self._data[start : start + count * size])
        return [data[at : at + size] for at in range(0, len(data), size)]
