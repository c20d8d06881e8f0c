"""`pie bench` without a model: what the figures are made of, and how they are shown."""

import json
import types

import pytest

from pie_cli import bench, bench_contestants, bench_plot
from pie_cli import bench_workloads as work
from pie_cli.__main__ import command
from pie_cli.bench_contestants import Dice
from pie_cli.usage import UsageError

DOCUMENT = {
    "machine": "a machine",
    "model": "a-model",
    "results": [
        work.Result("uniform-8", "tokens/s", 100.0, 50.0, 2.0).as_dict(),
        work.Result("launch", "ms", 5.0).as_dict(),
    ],
}


class Clock:
    """Stands still but for what contestants take."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Contestant.clock = Clock()
    monkeypatch.setattr(work, "time", clock)
    return clock


class Contestant:
    """Takes so long for a token; answers with the sums of prompts, plus `other`."""

    clock: Clock

    def __init__(self, name: str, seconds: float, other: int = 0) -> None:
        self.name, self._seconds, self._other = name, seconds, other
        self.asked: list[tuple[int, int]] = []

    def generate(self, prompts, new):
        self.asked.append((len(prompts), new))
        self.clock.now += self._seconds * new
        return [[sum(prompt) + self._other] * new for prompt in prompts]


def test_a_ratio_above_one_is_better_whatever_the_unit():
    faster = work.compared("a", "tokens/s", {"pie": 20.0, "vllm": 10.0}, more_is_better=True)
    assert faster == work.Result("a", "tokens/s", 20.0, 10.0, 2.0)
    quicker = work.compared("b", "ms", {"pie": 5.0, "vllm": 10.0}, more_is_better=False)
    assert quicker == work.Result("b", "ms", 5.0, 10.0, 2.0)
    alone = work.compared("c", "ms", {"pie": 5.0}, more_is_better=False)
    assert (alone.vllm, alone.ratio) == (None, None)


def test_both_get_the_same_prompts_in_turn_and_the_slower_one_has_less():
    pie, vllm, said = Contestant("pie", 0.1), Contestant("vllm", 0.4), []
    workload = work.Uniform("uniform-4", 4, 8, 5)
    result = work.uniform(workload, [pie, vllm], Dice(50_000), 3, said.append)
    assert pie.asked == vllm.asked == [(4, 5)] * 3
    assert result == work.Result("uniform-4", "tokens/s", 40.0, 10.0, 4.0)
    assert said == []


def test_other_tokens_than_the_yardsticks_are_told():
    said: list[str] = []
    contestants = [Contestant("pie", 1), Contestant("vllm", 1, other=1)]
    work.uniform(work.Uniform("uniform-2", 2, 4, 2), contestants, Dice(100), 1, said.append)
    assert said == ["note: uniform-2: 2 of 2 lanes have other tokens in vLLM"]


def test_latency_is_that_of_the_first_token_and_of_each_later_one():
    first, later = work.latency([Contestant("pie", 0.002)], Dice(100), 2)
    assert (first.workload, first.unit, later.workload) == ("first-token", "ms", "next-token")
    assert (first.pie, later.pie) == (2.0, 2.0)


def test_prompts_hold_no_special_tokens_and_differ_from_round_to_round():
    dice = Dice(49_152)
    prompts = dice.prompts(3, 100)
    assert [len(prompt) for prompt in prompts] == [100] * 3
    assert all(1000 <= token <= 30_000 for prompt in prompts for token in prompt)
    assert dice.prompts(3, 100) != prompts
    small = Dice(64).prompts(1, 1000)[0]
    assert min(small) >= 16 and max(small) <= 48


def test_names_of_workloads_are_unique():
    names = [each.name for each in work.QUICK + work.LONG]
    assert len(set(names)) == len(names)
    assert "uniform-8" in names


def test_the_document_has_the_keys_of_the_contract(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *_: DOCUMENT)
    assert command(["bench", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["machine", "model", "results"]
    assert all(
        list(each) == ["workload", "unit", "pie", "vllm", "ratio"] for each in document["results"]
    )
    assert document["results"][1]["vllm"] is None


def test_the_table_has_a_row_for_each(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *_: DOCUMENT)
    command(["bench"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a-model on a machine"
    assert lines[3].split() == ["uniform-8", "tokens/s", "100.00", "50.00", "2.00"]
    assert lines[4].split() == ["launch", "ms", "5.00", "-", "-"]


def test_a_plot_is_a_picture_with_a_bar_for_each_figure(monkeypatch, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(bench, "measure", lambda *_: DOCUMENT)
    assert command(["bench", "--plot", str(tmp_path / "figures.png")]) == 0
    with Image.open(tmp_path / "figures.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert {(0x2A, 0x6F, 0x97), (0xC9, 0xAD, 0xA7)} <= colours


@pytest.mark.parametrize("name", ["figures.pdf", "no/such/folder/figures.png"])
def test_a_plot_that_cannot_be_written_is_told_before_anything_is_measured(name, tmp_path):
    with pytest.raises(UsageError, match="--plot"):
        bench_plot.check(str(tmp_path / name))


def test_bad_options_are_exit_2(capsys):
    assert command(["bench", "--against", "other"]) == 2
    assert command(["bench", "--rounds", "0"]) == 2
    assert command(["bench", "--model", "none"]) == 2
    assert "no model `none`" in capsys.readouterr().err


class Pie(Contestant):
    """Of the command: it knows its model, and is interrupted when it is to measure latency."""

    def __init__(self, model: str | None) -> None:
        super().__init__("pie", 0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def facts(self):
        return types.SimpleNamespace(model=types.SimpleNamespace(name="a-model", vocab_size=900))


@pytest.mark.parametrize("is_early", [False, True])
def test_ctrl_c_shows_what_was_measured_so_far(monkeypatch, capsys, is_early):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_contestants, "Pie", Pie)
    monkeypatch.setattr(work, "uniform" if is_early else "latency", interrupt)
    assert command(["bench", "--json"]) == 130
    out = capsys.readouterr().out
    if is_early:
        assert out == ""
    else:
        names = [each["workload"] for each in json.loads(out)["results"]]
        assert names == [each.name for each in work.QUICK]
