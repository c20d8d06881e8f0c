"""What a live, idle inferlet has for itself."""

import asyncio
import json
from pathlib import Path

import pytest

from inferlet.testing import byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.bench import launch as bench
from tests.sandbox.conftest import BEST_TIER

NUM_LIVE = 8
MAX_BYTES = 3_000_000  # of an inferlet that is idle; measured with Python 3.11: 2.45 MB


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    byte_vocabulary().tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return tmp_path


def test_an_idle_inferlet_shares_most_of_its_memory(model_folder: Path):
    async def scenario() -> list[int]:
        measured = bench.Bench(BEST_TIER, str(model_folder), num_spares=0)
        await measured.launcher.start()
        processes = [(await measured.launch())[0] for _ in range(NUM_LIVE)]
        await asyncio.sleep(bench.SETTLE)
        sizes = [bench.own_memory(process.pid) for process in processes]
        await measured.end(processes)
        await measured.launcher.close()
        return sizes

    try:
        sizes = asyncio.run(scenario())
    except PermissionError:  # the kernel shows no process that cannot be dumped, but to root
        pytest.skip("only root may see what an inferlet holds")
    assert max(sizes) < MAX_BYTES, sizes
    assert min(sizes) > 500_000  # else this is no measurement
