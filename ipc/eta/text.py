"""A readable listing of a program, and the program of a listing. For people and golden files; what
travels is `ipc.eta.encode`.

    %0 = front slot=1
    %1 = constant dtype=u32 shape=[2]
    %2 = add %0 %1
    take 1
    put 1 %2
    return %2
"""

import json
from collections.abc import Sequence
from typing import Any

from ipc.eta.graph import HELD, SPENT, Builder, Program
from ipc.eta.ops import BY_NAME, EFFECT, Op
from ipc.types import DType, TensorType


def listing(program: Program, types: Sequence[TensorType] | None = None) -> str:
    """One line for each node and effect; `types` (from `check`) are added as comments."""
    lines = []
    for index, node in enumerate(program.nodes):
        words = [f"%{index} =", node.op.name, *(f"%{arg}" for arg in node.args)]
        for (name, kind), value in zip(node.op.attrs, node.attrs, strict=True):
            words.append(f"{name}={_attr_text(kind, value)}")
        lines.append(" ".join(words) + (f"  # {types[index]}" if types else ""))
    for effect in program.effects:
        value = f" %{effect.node}" if effect.op.args else ""
        lines.append(f"{effect.op.name} {effect.slot}{value}")
    lines.append(" ".join(["return", *(f"%{node}" for node in program.results)]))
    return "\n".join(lines) + "\n"


def _attr_text(kind: str, value: Any) -> str:
    if kind == "dtype":
        return value.label
    return json.dumps(list(value) if kind == "shape" else value, separators=(",", ":"))


def parse(text: str) -> Program:
    """The program of a listing, in canonical form; ValueError naming a line that is no listing."""
    builder = Builder()
    nodes: list[int] = []
    results: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("  #")[0].split()
        try:
            if not words:
                continue
            if words[0] == "return":
                results = [nodes[int(word[1:])] for word in words[1:]]
            elif EFFECT in BY_NAME.get(words[0], BY_NAME["add"]).traits:
                _replay_effect(builder, nodes, words)
            else:
                nodes.append(_replay_node(builder, nodes, words[2:]))
        except (KeyError, IndexError, ValueError):
            raise ValueError(f"line {number} is not a line of a listing: {line!r}") from None
    return builder.finish(results).program


def _replay_effect(builder: Builder, nodes: list[int], words: list[str]) -> None:
    slot = int(words[1])
    if words[0] == "put":
        builder.put(slot, nodes[int(words[2][1:])])
    elif words[0] in (HELD, SPENT):
        builder.meet(slot, words[0])
    else:
        getattr(builder, words[0])(slot)


def _replay_node(builder: Builder, nodes: list[int], words: list[str]) -> int:
    op: Op = BY_NAME[words[0]]
    args = [nodes[int(word[1:])] for word in words[1 : 1 + len(op.args)]]
    given = dict(word.split("=", 1) for word in words[1 + len(op.args) :])
    attrs = {name: _attr_value(kind, given[name]) for name, kind in op.attrs}
    return builder.add(op.name, args, attrs)


def _attr_value(kind: str, text: str) -> Any:
    if kind == "dtype":
        return DType.from_name(text)
    value = json.loads(text)
    return tuple(value) if kind == "shape" else value
