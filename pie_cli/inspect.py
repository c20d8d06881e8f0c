"""`pie inspect`: the passes that an app records: listings, channels with their ends, identities."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_cli.check import FAULTY, NOT_RUN, App, Files, Input, Json, tell_end, traced

if TYPE_CHECKING:
    from pie_cli.app_trace import Report


def inspect(
    context: typer.Context,
    app: App,
    input: Input = None,
    file: Files = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
    as_json: Json = False,
) -> int:
    """Show what an app records: it runs against a fake engine, in the sandbox.

    What follows `--` is its input, as for `pie run`.
    """
    report = traced(context, app, input, file)
    if report is None:
        return NOT_RUN
    if as_json:
        channels = [{**c, "end": end_of(c)} for c in report.channels.values()]
        print(json.dumps({"passes": report.passes, "channels": channels, "fault": report.fault}))
    elif dot:
        print("\n".join(dot_lines(report)))
    elif lines := list(text_lines(report)):
        print("\n".join(lines).rstrip("\n"))
    if not as_json:
        tell_end(report)
    return FAULTY if report.fault else 0


def end_of(channel: dict[str, Any]) -> str:
    """Who fills the channel and who empties it, as the contract names it (10.4)."""
    if not channel["puts"]:
        return "host-written"
    return "device-only" if channel["reads"] else "host-read"


def label_of(channel: dict[str, Any]) -> str:
    name = f" `{channel['name']}`" if channel["name"] else ""
    return f"channel {channel['number']}{name}"


# ---- text


def text_lines(report: "Report") -> Iterator[str]:
    if not report.passes:
        yield from () if report.fault else ("no pass was submitted",)
    for channel in report.channels.values():
        seeded = ", seeded" if channel["seeded"] else ""
        facts = f"{channel['type']}, capacity {channel['capacity']}{seeded}, {end_of(channel)}"
        yield f"{label_of(channel)} ({channel['place']}): {facts}"
    for made in report.passes:
        yield ""
        yield from _pass_lines(made, report.channels)


def _pass_lines(made: dict[str, Any], channels: dict[int, dict[str, Any]]) -> Iterator[str]:
    yield f"pass {made['number']} ({made['place']}), pipeline {made['pipeline']}"
    yield f"  identity {made['identity']}"
    counts = made["readout_counts"]
    readout = counts[0] if len(counts) == 1 else counts
    size = f"rows {made['rows']}, lanes {made['lanes']}"
    yield f"  {size}, {made['geometry']}, rows read out {readout}"
    for port in made["ports"]:
        if port["channel"] is not None:
            yield f"  {port['kind']} from {label_of(channels[port['channel']])}"
        elif port["kind"] not in ("indptr", "readout"):  # every pass has these
            yield f"  {port['kind']} from the host, {port['shape']}"
    for name, stage in made["stages"].items():
        yield f"  {name}"
        yield from (f"    {line}" for line in _listing(stage, channels))
        if stage["result"] is not None:
            yield f"    result {json.dumps(stage['result'])}"


def _listing(stage: dict[str, Any], channels: dict[int, dict[str, Any]]) -> Iterator[str]:
    """The listing, with the line of the app beside each operation, and channels by their label."""
    lines = stage["listing"].splitlines()
    width = max(len(line.partition("  #")[0]) for line in lines)
    for number, line in enumerate(lines):
        text, _, made = line.partition("  # ")
        if made:
            yield f"{text.ljust(width)}  # {made} {stage['lines'][number]}"
            continue
        words = text.split()
        if words[0] == "return":
            yield text
        else:
            yield f"{text.ljust(width)}  # {label_of(channels[stage['channels'][int(words[1])]])}"


# ---- Graphviz


def dot_lines(report: "Report") -> Iterator[str]:
    yield "digraph app {"
    yield "  node [shape=box, fontname=monospace, fontsize=10];"
    for number, channel in report.channels.items():
        facts = f"{label_of(channel)}\\n{channel['type']}, capacity {channel['capacity']}"
        yield f"  c{number} [shape=cylinder, label={_quoted(facts)}];"
    for made in report.passes:
        yield from _pass_graph(made)
        for name, stage in made["stages"].items():
            yield from _stage_graph(made, name, stage)
    yield "}"


def _pass_graph(made: dict[str, Any]) -> Iterator[str]:
    """The pass itself: what feeds its ports, and the outputs that its epilogue reads."""
    node = f"p{made['number']}"
    facts = f"rows {made['rows']}, lanes {made['lanes']}, {made['geometry']}"
    label = f"pass {made['number']}\\n{facts}"
    yield f"  {node} [shape=box3d, label={_quoted(label)}];"
    for port in made["ports"]:
        if port["channel"] is not None:
            yield f"  c{port['channel']} -> {node} [label={_quoted(port['kind'])}];"


def _stage_graph(made: dict[str, Any], name: str, stage: dict[str, Any]) -> Iterator[str]:
    prefix = f"p{made['number']}{name[0]}"
    yield f"  subgraph cluster_{prefix} {{"
    yield f"    label={_quoted('pass ' + str(made['number']) + ' ' + name)};"
    edges: list[str] = []
    for line in stage["listing"].splitlines():
        text, _, kind = line.partition("  # ")
        words = text.split()
        if words[0].startswith("%"):
            node = f"{prefix}_{words[0][1:]}"
            label = _quoted(" ".join(_shown(words[2:])) + "\\n" + kind)
            yield f"    {node} [label={label}];"
            edges += _edges_into(node, words[2:], prefix, stage["channels"])
            if words[2] == "output":
                edges.append(f"  p{made['number']} -> {node};")
        elif words[0] == "put":
            target = stage["channels"][int(words[1])]
            edges.append(f"  {prefix}_{words[2][1:]} -> c{target};")
    yield "  }"
    yield from edges


def _shown(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith("%")]


def _edges_into(node: str, words: list[str], prefix: str, channels: list[int]) -> list[str]:
    edges = [f"  {prefix}_{word[1:]} -> {node};" for word in words if word.startswith("%")]
    if words[0] in ("front", "earlier"):
        slot = int(words[1].partition("=")[2])
        edges.append(f"  c{channels[slot]} -> {node};")
    return edges


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
