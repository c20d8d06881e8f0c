"""A sample of `tests/worker/test_equalities.py` on a real model: equal tokens on every engine."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inferlet.testing import Client, run_with
from tests.model.drive import Driver
from tests.worker import equality_script, sdk_hub
from worker.model import Model

pytestmark = pytest.mark.model

#: "Once upon a time, in a village by the sea, there lived" and what may follow.
OPENING = [6403, 2942, 253, 655, 28, 281, 253, 7151, 411, 260, 4273, 28, 665, 6132]
SCRIPT = [
    ("append", 0, OPENING),
    ("run", 0, (6, 4)),
    ("fork", 0, None),
    ("append", 1, [2644, 28, 253, 1165, 2644]),
    ("frame", 0, 3),
    ("draft", 0, [665, 436, 253]),
    ("masked", 1, [30, 378]),
    ("run", 1, (3, 3)),
]
ENGINES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "prompts in chunks, and frames of four passes": (
        {"changes": {"row_budget": 9, "short_rows": 2, "min_chunk": 1}, "frame_size": 4},
        {},
    ),
    "a second time, from the cache": ({}, {"again": 1}),
    "among others who want its pages": (
        {"num_pages": 7, "changes": {"idle_waves": 1, "tenure_waves": 2}},
        {"crowd": 3},
    ),
}


class Lent:
    """The session's model, whose pages are there already."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def allocate(self, num_pages: int) -> None:
        pass


@pytest.fixture
def shown(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list]]:
    model = driver.model
    monkeypatch.setattr(sdk_hub, "FunctionModel", lambda info, function: Lent(model))
    monkeypatch.setattr(equality_script, "show", lambda logits: int(logits.argmax()))
    info = {
        "output_vocab_size": model.info.output_vocab_size, "vocab_size": model.info.vocab_size,
        "context_length": 400,
    }  # fmt: skip

    def show(made: dict[str, Any], told: dict[str, int]) -> list:
        made = dict(made)
        engine = {"frame_size": made.pop("frame_size", 2)}
        hub = type("Hub", (sdk_hub.WorkerHub,), made)(Client(), info=info, engine=engine)
        hub.real.state.pool.was_used = bytearray(b"\1" * hub.num_pages)  # by other tests
        seen = asyncio.run(run_with(hub, equality_script.play, {"script": SCRIPT, **told}))
        hub.real.state.check_integrity()
        return seen

    return show


def test_i4_a_program_shows_the_same_tokens_on_every_engine(shown: Callable[..., list]) -> None:
    wanted = shown({}, {})
    assert len({repr(step) for step in wanted}) > 5
    for name, (made, told) in ENGINES.items():
        assert shown(made, told) == wanted, name
