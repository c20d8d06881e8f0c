"""The SDK's own tests again, with the real scheduler, pages, rings and executor behind it."""

import pytest

from tests.inferlet import support
from tests.inferlet.test_channel import *
from tests.inferlet.test_forward import *
from tests.inferlet.test_pipeline import *
from tests.inferlet.test_run_ahead import *
from tests.inferlet.test_working_set import *
from tests.worker.sdk_hub import OverlappingHub, WorkerHub


@pytest.fixture(autouse=True, params=[WorkerHub, OverlappingHub])
def real_engine(request, monkeypatch):
    monkeypatch.setattr(support, "Hub", request.param)
