"""`pie bench` on the real model: what it measures is what runs. Figures are not judged here."""

import json

import pytest

from pie_cli.bench_contestants import Pie

pytestmark = pytest.mark.model


def test_the_contestant_generates_what_an_app_does(home, pie, result, app, monkeypatch):
    prompt = [100, 200, 300]
    from pie_cli.bench_apps import GREEDY

    expected = result(app(GREEDY), {"prompt": prompt, "new": 5})
    monkeypatch.setenv("PIE_HOME", str(home))
    with Pie("smollm2") as contestant:
        assert contestant.generate([prompt, prompt], 5) == [expected, expected]
        assert contestant.launch_seconds() > 0
        before = contestant.messages()
        contestant.generate([prompt], 20)
        assert contestant.messages() > before
        assert contestant.facts().model.name == "smollm2"


@pytest.mark.slow
def test_the_figures_are_of_every_workload(pie, tmp_path):
    path = tmp_path / "figures.png"
    done = pie("bench", "--rounds", "1", "--json", "--plot", path, timeout=800)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    figures = {each["workload"]: each for each in document["results"]}
    wanted = {"uniform-1", "uniform-8", "uniform-32", "first-token", "next-token", "launch"}
    assert wanted < set(figures)
    assert all(each["pie"] > 0 and each["vllm"] is None for each in figures.values())
    assert path.read_bytes().startswith(b"\x89PNG")
