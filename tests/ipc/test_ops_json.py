"""`ipc/eta/ops.json` is enough to write an encoder: this one knows nothing else, and gives the bytes
of every golden program and of random ones, however their nodes were recorded."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.eta.encode import encode
from ipc.eta.text import listing
from tests import eta_programs

ROOT = Path(__file__).resolve().parents[2]
FACTS = json.loads((ROOT / "ipc/eta/ops.json").read_text())
OPS = {op["name"]: op for op in FACTS["ops"]}
GOLDEN = sorted((ROOT / "tests/golden/programs").glob("*.txt"))


def uint(value):
    return bytes([value & 127 | 128]) + uint(value >> 7) if value > 127 else bytes([value])


def attribute(kind, value):
    if kind == "shape":
        return uint(len(value)) + b"".join(map(uint, value))
    if kind == "str":
        return uint(len(value.encode())) + value.encode()
    return uint(FACTS["dtypes"][value] if kind == "dtype" else value)


def canonical(nodes, effects, results):
    """Nodes `(name, args, attrs)`, effects `(name, slot, node)`: shared, ordered, renumbered."""
    slots = {}
    for _, slot, _ in effects:
        slots.setdefault(slot, len(slots))
    order, number = [], {}

    def visit(index):
        name, args, attrs = nodes[index]
        args = tuple(visit(arg) for arg in args)
        if name in ("front", "earlier"):
            attrs = [slots[attrs[0]]]
        key = index if name == "constant" else (name, args, json.dumps(attrs))
        if key not in number:
            number[key] = len(order)
            order.append((name, args, attrs))
        return number[key]

    puts = [visit(node) if node is not None else None for _, _, node in effects]
    done = [(name, slots[slot], put) for (name, slot, _), put in zip(effects, puts, strict=True)]
    return order, done, [visit(node) for node in results]


def encoded(nodes, effects, results):
    nodes, effects, results = canonical(nodes, effects, results)
    out = bytes.fromhex(FACTS["magic"]) + uint(len(nodes))
    for index, (name, args, attrs) in enumerate(nodes):
        out += uint(OPS[name]["code"]) + b"".join(uint(index - arg) for arg in args)
        kinds = [attr["kind"] for attr in OPS[name]["attrs"]]
        out += b"".join(map(attribute, kinds, attrs))
    out += uint(len(effects))
    for name, slot, node in effects:
        out += uint(OPS[name]["code"]) + uint(slot)
        out += uint(node) if OPS[name]["args"] else b""
    return out + uint(len(results)) + b"".join(map(uint, results))


def read(text):
    """Nodes, effects and results of a listing."""
    nodes, effects, results = [], [], []
    for words in (line.split() for line in text.splitlines()):
        numbers = [int(word[1:]) for word in words[1:] if word[0] == "%"]
        if words[0] == "return":
            results = numbers
        elif OPS.get(words[0], {"effect": False})["effect"]:
            effects.append((words[0], int(words[1]), numbers[0] if numbers else None))
        else:
            texts = [word.partition("=")[2] for word in words[2:] if "=" in word]
            kinds = [attr["kind"] for attr in OPS[words[2]]["attrs"]]
            attrs = [text if kind == "dtype" else json.loads(text)
                     for kind, text in zip(kinds, texts, strict=True)]  # fmt: skip
            nodes.append((words[2], numbers, attrs))
    return nodes, effects, results


def scrambled(nodes, effects, results, seed):
    """The same stage with its nodes in another order, some twice, and dead ones; slots renamed."""
    chance = random.Random(seed)
    made, new, waiting = [], {}, list(range(len(nodes)))
    while waiting:
        index = chance.choice([i for i in waiting if all(arg in new for arg in nodes[i][1])])
        waiting.remove(index)
        name, args, attrs = nodes[index]
        attrs = [attrs[0] + 7] if name in ("front", "earlier") else attrs
        for _ in range(1 if name == "constant" else chance.randint(1, 2)):
            new[index] = len(made)
            made.append((name, [new[arg] for arg in args], attrs))
        made.append(("iota", [], [chance.randint(1, 9)]))
        made.append(("not_", [len(made) - 1], []))
    moved = [(op, slot + 7, None if node is None else new[node]) for op, slot, node in effects]
    return made, moved, [new[node] for node in results]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(5))
def test_a_golden_program_has_the_same_bytes_by_an_encoder_from_the_table(path, seed):
    head, text = path.read_text().split("\n\n", 1)
    assert encoded(*scrambled(*read(text), seed)).hex() == head.split()[1]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_random_program_has_the_same_bytes_by_an_encoder_from_the_table(seed, steps):
    made, _ = eta_programs.program(random.Random(seed), steps)
    assert encoded(*scrambled(*read(listing(made)), seed)) == encode(made)
