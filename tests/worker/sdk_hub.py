"""The SDK and the real engine in one process: only the model is a plain function of the tokens."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inferlet.testing import Client, Hub
from inferlet.testing.fake_worker import PEAK, SeededModel
from ipc import codec, frames
from ipc import messages as m
from ipc.transport import local_pair
from ipc.types import Limits, ModelInfo
from worker.config import Config
from worker.loop import Engine
from worker.model.base import Batch, MaskedLane

PROCESS = 1
PAGE_SIZE = 4  # small, so that forks meet partly filled pages


class FunctionModel:
    """Keeps token ids and their positions in its pages. Implements `worker.model.base.Model`."""

    mask_refusal = None

    def __init__(self, info: ModelInfo, function: Callable[[list[int]], Any]) -> None:
        width = info.output_vocab_size
        self.info = ModelInfo(**{**_fields(info), "width": width})
        self.page_size = PAGE_SIZE
        self.device = torch.device("cpu")
        self._function = function
        self.slots = np.zeros(0, np.int64)

    def page_bytes(self) -> int:
        return 8 * self.page_size

    def allocate(self, num_pages: int) -> None:
        self.slots = np.full(num_pages * self.page_size, -7, np.int64)

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        pages = self.slots.reshape(-1, self.page_size)
        for source, destination in pairs:
            pages[destination] = pages[source]

    def save_pages(self, pages: Sequence[int]) -> list[Tensor]:
        return [torch.from_numpy(self.slots.reshape(-1, self.page_size)[list(pages)])]

    def load_pages(self, pages: Sequence[int], saved: Sequence[Tensor]) -> None:
        self.slots.reshape(-1, self.page_size)[list(pages)] = saved[0].numpy()

    def clear_pages(self, pages: Sequence[int]) -> None:
        self.slots.reshape(-1, self.page_size)[list(pages)] = -7

    def forward(self, batch: Batch) -> Tensor:
        slots, ids = batch.slot_mapping.numpy(), batch.token_ids.numpy()
        self.slots[slots[slots >= 0]] = (ids | batch.positions.numpy() << 32)[slots >= 0]
        masked = {lane.lane: lane for lane in batch.masked}
        histories: list[list[int]] = []
        indptr, kv_lens = batch.query_indptr.tolist(), batch.kv_lens.tolist()
        for lane, (start, end) in enumerate(pairwise(indptr)):
            if lane in masked:
                histories += self._seen(masked[lane])
                continue
            tokens = self.tokens(batch.page_table[lane].tolist(), kv_lens[lane])
            histories += [tokens[: len(tokens) - (end - row) + 1] for row in range(start, end)]
        rows = [self._logits(histories[row]) for row in batch.readout_rows.tolist()]
        return torch.tensor(np.array(rows)).reshape(len(rows), self.info.width)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def tokens(self, pages: list[int], length: int) -> list[int]:
        """What the first `length` slots of these pages hold."""
        held = self.slots.reshape(-1, self.page_size)[pages].ravel()[:length]
        return (held & 0xFFFFFFFF).tolist()

    def _seen(self, lane: MaskedLane) -> list[list[int]]:
        """For each row the tokens that it attends, by their positions."""
        held = self.slots.reshape(-1, self.page_size)[list(lane.pages)].ravel()
        seen = [held[: lane.visible.shape[1]][row] for row in lane.visible.numpy()]
        return [(row[np.argsort(row >> 32, kind="stable")] & 0xFFFFFFFF).tolist() for row in seen]

    def _logits(self, tokens: list[int]) -> np.ndarray:
        made = np.asarray(self._function(tokens), np.float32)
        if made.ndim:
            return made
        return np.where(np.arange(self.info.width) == made, PEAK, 0).astype(np.float32)


class WorkerHub(Hub):
    """As `Hub`, with the real engine in the place of the fake one."""

    overlap = False
    num_pages = 4096
    changes: Mapping[str, Any] = {}  # of the engine's configuration

    def __init__(
        self, client: Client, model: Callable | None = None, *, faults: Any = None, **options: Any
    ) -> None:
        if faults:
            pytest.skip("the real engine has no faults to order")
        super().__init__(client, model, **options)
        function = model or SeededModel(self.info.output_vocab_size)
        model = FunctionModel(self.info, function)
        self._link, worker_end = local_pair()
        config = Config(
            max_embed_length=self.engine.max_embed_length,
            run_ahead_window=self.engine.run_ahead_window,
            patience_floor=0.0,
            patience_share=0.0,
            overlap=self.overlap,
            **self.changes,
        )
        model.allocate(self.num_pages)
        self.real = Engine(model, self.num_pages, worker_end, config)
        self.worker = self  # what tests ask of the fake engine
        self._model = model
        self._is_pumping = False
        self._link.send([m.ProcessStarted(PROCESS, Limits())], [])
        self._pump_later()

    def _on_bytes(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if kind != frames.ENGINE:
                self._on_message(codec.decode_from_inferlet(body))
                continue
            self.num_frames += 1
            self.commands += codec.decode_commands(body)
            self._link.send([], [(PROCESS, body)])
            self._pump_later()

    def _pump_later(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            try:
                asyncio.get_running_loop().call_soon(self._pump)
            except RuntimeError:
                self._is_pumping = False

    def _pump(self) -> None:
        """One step of the engine, and what it says goes in a later tick."""
        self._is_pumping = False
        has_worked = self.real.step()
        while (message := self._link.receive()) is not None:
            for _, body in message[1]:
                for event in codec.decode_events(body):
                    asyncio.get_running_loop().call_soon(self.say, event)
        if has_worked:
            self._pump_later()

    @property
    def sets_ever(self) -> Mapping[int, list[int]]:
        """Tokens of every working set that is alive."""
        process = self.real.state.processes[PROCESS]
        return {
            number: self._model.tokens(working_set.pages, working_set.length)
            for number, working_set in process.working_sets.items()
        }


class OverlappingHub(WorkerHub):
    """Waves are launched before the values of the last one have arrived, as on a GPU."""

    overlap = True


def _fields(info: ModelInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}
