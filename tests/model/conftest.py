"""One real model for all tests of this folder: loading it takes from 8 to 60 seconds."""

from pathlib import Path

import pytest

from tests.model.drive import Driver
from worker.model import Model, load

#: More than any test writes to, so that what allocation itself touches would show.
NUM_PAGES = 4096


@pytest.fixture(scope="session")
def load_reports() -> list[tuple[float, str]]:
    """What `load` reported while `model` was loaded."""
    return []


@pytest.fixture(scope="session")
def model(model_path: Path, load_reports: list[tuple[float, str]]) -> Model:
    def report(share: float, what: str) -> None:
        load_reports.append((share, what))

    return load(str(model_path), name="smollm2", max_context=2048, progress=report)


@pytest.fixture(scope="session")
def driver(model: Model) -> Driver:
    return Driver(model, NUM_PAGES)
