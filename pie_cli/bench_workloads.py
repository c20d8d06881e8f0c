"""The workloads of `pie bench`: what is run, and the figures that come of it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pie_cli.bench_contestants import Contestant, Dice, Pie

LAUNCHES = 30
PROMPT, NEW = 64, 64  # tokens
LONG_PROMPT = 1024


@dataclass(frozen=True)
class Uniform:
    """So many lanes at once, all of one length."""

    name: str
    lanes: int
    prompt: int = PROMPT
    new: int = NEW


@dataclass(frozen=True)
class Result:
    """`ratio`: pie over vllm, such that more is better."""

    workload: str
    unit: str
    pie: float
    vllm: float | None = None
    ratio: float | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


QUICK = tuple(Uniform(f"uniform-{lanes}", lanes) for lanes in (1, 8, 32))
LONG = (
    Uniform("uniform-64", 64),
    Uniform("long-prompt-1", 1, LONG_PROMPT, 16),
    Uniform("long-prompt-8", 8, LONG_PROMPT, 16),
    Uniform("long-answer-8", 8, PROMPT, 512),
)

Say = Callable[[str], None]


def uniform(
    work: Uniform, contestants: list[Contestant], dice: Dice, rounds: int, say: Say
) -> Result:
    """Tokens a second: the median of rounds in which the order alternates."""
    seconds: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(rounds):
        prompts = dice.prompts(work.lanes, work.prompt)
        found: dict[str, list[list[int]]] = {}
        for each in contestants[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            found[each.name] = each.generate(prompts, work.new)
            seconds[each.name].append(time.perf_counter() - start)
        if differ := unequal(found):
            say(f"note: {work.name}: {differ} of {work.lanes} lanes have other tokens in vLLM")
    speed = {
        name: work.lanes * work.new / statistics.median(taken) for name, taken in seconds.items()
    }
    return compared(work.name, "tokens/s", speed, more_is_better=True)


def unequal(found: dict[str, list[list[int]]]) -> int:
    """In how many lanes two contestants differ."""
    first, *others = found.values()
    return sum(a != b for other in others for a, b in zip(first, other, strict=True))


def latency(contestants: list[Contestant], dice: Dice, rounds: int) -> list[Result]:
    """Of one lane alone: to the first token, and from each token to the next."""
    first: dict[str, list[float]] = {each.name: [] for each in contestants}
    later: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(rounds):
        for each in contestants[:: -1 if number % 2 else 1]:
            times = []
            for new in (1, NEW):
                prompts = dice.prompts(1, PROMPT)
                start = time.perf_counter()
                each.generate(prompts, new)
                times.append((time.perf_counter() - start) * 1e3)
            first[each.name].append(times[0])
            later[each.name].append((times[1] - times[0]) / (NEW - 1))
    return [
        compared(name, "ms", {who: statistics.median(taken) for who, taken in times.items()}, False)
        for name, times in (("first-token", first), ("next-token", later))
    ]


def compared(name: str, unit: str, figures: dict[str, float], more_is_better: bool) -> Result:
    pie, vllm = figures["pie"], figures.get("vllm")
    if vllm is None:
        return Result(name, unit, round(pie, 3))
    ratio = pie / vllm if more_is_better else vllm / pie
    return Result(name, unit, round(pie, 3), round(vllm, 3), round(ratio, 3))


def launches(pie: Pie) -> Result:
    """Milliseconds from the request to the first line of `main`."""
    pie.launch_seconds()  # the first faults in what later ones find
    times = [pie.launch_seconds() for _ in range(LAUNCHES)]
    return Result("launch", "ms", round(statistics.median(times) * 1e3, 3))


def messages(pie: Pie, dice: Dice, lanes: int = 8) -> Result:
    """What hub and worker say to each other while so many lanes decode."""
    before = pie.messages()
    pie.generate(dice.prompts(lanes, PROMPT), NEW)
    return Result(
        f"messages-{lanes}", "messages/token", round((pie.messages() - before) / (lanes * NEW), 4)
    )
