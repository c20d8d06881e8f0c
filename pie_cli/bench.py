"""`pie bench`: measures this engine, and vLLM in the same run when asked."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pie_cli.bench_contestants import Contestant
    from pie_cli.bench_workloads import Result, Uniform


INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C after something was measured: the document that there is."""

    def __init__(self, document: dict) -> None:
        super().__init__("interrupted")
        self.document = document


class Against(str, Enum):
    """Whom to compare with."""

    vllm = "vllm"


def bench(
    model: Annotated[str | None, typer.Option(metavar="NAME", help="A model of the store.")] = None,
    against: Annotated[Against | None, typer.Option(help="Measure this too, in turns.")] = None,
    full: Annotated[bool, typer.Option("--full", help="More lanes and long lengths too.")] = False,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Of each workload.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.png", help="Draw the figures.")
    ] = None,
) -> int:
    """Measure throughput, latency, launches and messages.

    Greedy decoding of random prompts; launches are in the time. Takes minutes on two cores:
    after Ctrl-C the figures so far are shown.
    """
    from pie_cli import bench_plot, remote
    from pie_cli.client_errors import EngineError, PieError
    from pie_cli.connection import EngineLost
    from pie_cli.output import ProgressBar
    from pie_cli.usage import UsageError

    remote.refuse("`pie bench` measures this machine")
    if plot:
        bench_plot.check(plot)  # before the minutes
    bar, code = ProgressBar(), 0
    try:
        document = measure(model, against is not None, full, rounds, bar)
    except Interrupted as interrupt:
        document, code = interrupt.document, INTERRUPTED
    except EngineError as error:
        raise EngineLost(str(error), error.hint, error.log) from None
    except PieError as error:
        raise UsageError(str(error), error.hint) from None
    finally:
        bar.clear()
    if plot:
        bench_plot.draw(plot, document)
    print(json.dumps(document) if as_json else as_table(document))
    return code


def measure(model: str | None, with_vllm: bool, full: bool, rounds: int, bar: object) -> dict:
    """All workloads in turn: the document of `--json`. Raises Interrupted."""
    from pie_cli import bench_workloads as work
    from pie_cli.bench_contestants import Dice, Pie, Vllm
    from pie_cli.output import note

    workloads = work.QUICK + (work.LONG if full else ())
    with ExitStack() as stack:
        bar.show(0.0, "bench: loading")
        pie = stack.enter_context(Pie(model))
        pie.generate([[1, 2, 3]], 4)  # once the model is loaded
        facts = pie.facts().model
        contestants: list[Contestant] = [pie]
        if with_vllm:
            bar.show(0.05, "bench: loading vLLM")
            tokens = max(each.prompt + each.new for each in workloads)
            lanes = max(each.lanes for each in workloads)
            vllm = Vllm(facts.path, lanes, tokens, facts.dtype)
            contestants.append(stack.enter_context(vllm))
        dice = Dice(facts.vocab_size)
        results: list[Result] = []
        try:
            for result in run(workloads, contestants, dice, rounds, bar, note):
                results.append(result)
        except KeyboardInterrupt:
            if not results:
                raise
            raise Interrupted(document_of(facts.name, results)) from None
    return document_of(facts.name, results)


def document_of(model: str, results: "list[Result]") -> dict:
    """The document of `--json`."""
    shown = [result.as_dict() for result in results]
    return {"machine": machine(), "model": model, "results": shown}


def run(
    workloads: "tuple[Uniform, ...]", contestants: "list[Contestant]", dice: object, rounds: int,
    bar: object, note: object,
) -> "Iterator[Result]":  # fmt: skip
    """The figures as they come, each workload warmed up by a short one."""
    from pie_cli import bench_workloads as work

    for each in contestants:
        each.generate(dice.prompts(2, 8), 4)
    for number, workload in enumerate(workloads):
        bar.show(0.1 + 0.7 * number / len(workloads), f"bench: {workload.name}")
        yield work.uniform(workload, contestants, dice, rounds, note)
    bar.show(0.8, "bench: latency")
    yield from work.latency(contestants, dice, rounds)
    bar.show(0.9, "bench: launches")
    yield work.launches(contestants[0])
    bar.show(0.95, "bench: messages")
    yield work.messages(contestants[0], dice)


def machine() -> str:
    """What was measured on, in words."""
    from pie_cli.doctor_checks import processor

    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, {platform.system()}"


def as_table(document: dict) -> str:
    from pie_cli.output import table

    rows = [["workload", "unit", "pie", "vllm", "ratio"]]
    for each in document["results"]:
        figures = [each["pie"], each["vllm"], each["ratio"]]
        shown = ["-" if figure is None else f"{figure:,.2f}" for figure in figures]
        rows.append([each["workload"], each["unit"], *shown])
    head = f"{document['model']} on {document['machine']}"
    legend = "ratio: pie over vllm, more is better"
    has_ratio = any(each["ratio"] is not None for each in document["results"])
    return "\n".join([head, "", table(rows), *(["", legend] if has_ratio else [])])
