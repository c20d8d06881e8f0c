"""Writes what follows from the op table: `inferlet/eta/ops.py`, `ipc/eta/OPS.md` and
`ipc/eta/ops.json`. Run `python -m ipc.eta.generate`; a test compares the files with the table.
"""

import json
from pathlib import Path

from ipc.eta.check import MAX_ELEMENTS, MAX_NODES
from ipc.eta.encode import MAGIC, MAX_CODE_BYTES
from ipc.eta.ops import EFFECT, EXTRA, HAND, INTERNAL, TABLE, Op
from ipc.types import DType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "ipc/eta/ops.py by python -m ipc.eta.generate"
# Written by hand though no row has their name.
COMPOSED = ("pivot_threshold", "sort_desc", "top_k")

_ARGUMENTS = {
    "uint": 'int_argument("{op}", "{attr}", {attr})',
    "shape": 'shape_argument("{op}", {attr})',
    "dtype": 'dtype_argument("{op}", {attr})',
}
# What a line of 100 leaves after `    return `.
_WIDTH = 89
# All that an encoder in another language must know besides the rows.
_FORMAT = [
    "A program is the magic, then three lists, each a count and its items: nodes, effects, results.",
    (
        "A node is its op's code, for each of `args` how many nodes back the operand lies (1: the node "
        "before), then its `attrs` in order."
    ),
    "An effect is its op's code, its slot, and when the op has an operand, the number of the node.",
    (
        "Effects are what changes something: the first read of a front, the first take since a put, "
        "each put. A take or read after a put gives the node that was put."
    ),
    "A result is the number of a node. Nodes are numbered from 0.",
    (
        "uint: LEB128, seven bits a byte, low bits first, in the fewest bytes; codes, counts, numbers "
        "and distances are uints. dtype: its code, a uint. shape: its rank, then its extents. "
        "str: its length in bytes, then UTF-8."
    ),
    (
        "Canonical form: nodes of equal op, operands and attributes are one node, but each `constant` "
        "is a node of its own. Nodes that no put or result needs are left out."
    ),
    (
        "Nodes come in depth-first order, operands from left to right and before the node, from what "
        "each put puts, in the order of effects, and then from the results."
    ),
    "Slots are numbered by their first effect; `slot` of `front` and `earlier` is that number.",
    (
        "Values of constants are not in the program: the pool has them in order of the nodes, "
        "little-endian and row-major, a bool as a byte."
    ),
    "The identity of a program is the SHA-256 of its bytes.",
]
_ANNOTATIONS = {"uint": "int", "shape": "int | Sequence[int]", "dtype": "DType"}


def files() -> dict[str, str]:
    """Path in the repository -> contents."""
    return {
        "inferlet/eta/ops.py": python_module(),
        "ipc/eta/OPS.md": markdown(),
        "ipc/eta/ops.json": json_table(),
    }


def python_module() -> str:
    rows = [op for op in TABLE if not op.traits & {INTERNAL, HAND}]
    by_hand = sorted([op.name for op in TABLE if HAND in op.traits] + list(COMPOSED))
    names = sorted([op.name for op in rows] + by_hand)
    imports = "".join(f"    {name},\n" for name in by_hand)
    exports = "".join(f'    "{name}",\n' for name in names)
    return (
        f'"""The eta operations. Generated from {SOURCE}. Do not edit."""\n\n'
        "from collections.abc import Sequence\nfrom typing import Any\n\n"
        f"from inferlet.eta.composite import (\n{imports})\n"
        "from inferlet.eta.tensor import Tensor\n"
        "from inferlet.eta.trace import dtype_argument, int_argument, record, shape_argument\n"
        "from ipc.types import DType\n\n"
        f"__all__ = [\n{exports}]\n" + "".join(_function(op) for op in rows)
    )


def _function(op: Op) -> str:
    parameters = [f"{arg.name}: {'Any' if arg.literal else 'Tensor'}" for arg in op.args]
    parameters += [f"{attr}: {_ANNOTATIONS[kind]}" for attr, kind in op.attrs]
    parts = [f'"{op.name}"', *(arg.name for arg in op.args)]
    for attr, kind in op.attrs:
        parts.append(f"{attr}={_ARGUMENTS[kind].format(op=op.name, attr=attr)}")
    call = f"record({', '.join(parts)})"
    if len(call) > _WIDTH:
        call = "record(\n" + "".join(f"        {part},\n" for part in parts) + "    )"
    return (
        f"\n\ndef {op.name}({', '.join(parameters)}) -> Tensor:\n"
        f'    """{op.doc}"""\n    return {call}\n'
    )


def markdown() -> str:
    lines = [f"<!-- Generated from {SOURCE}. Do not edit. -->", "", "# The eta ops", ""]
    lines += [
        "The rows of programs, as the worker sees them. What a stage calls is listed with its shapes in "
        "[docs/sdk.md](../../docs/sdk.md): no row with the trait `internal`, and also "
        f"{', '.join(f'`{name}`' for name in COMPOSED)}, which record other rows.",
        "",
    ]
    lines += ["| Code | Op | Section | Operands | Attributes | Traits | Since | Meaning |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for op in TABLE:
        args = " ".join(arg.name for arg in op.args)
        attrs = " ".join(f"{name}: {kind}" for name, kind in op.attrs)
        traits = " ".join(sorted(op.traits))
        cells = [str(op.code), f"`{op.name}`", op.section, args, attrs, traits, str(op.since)]
        lines.append("| " + " | ".join([*cells, op.doc.replace("|", "\\|")]) + " |")
    return "\n".join(lines) + "\n"


def json_table() -> str:
    rows = [
        {
            "code": op.code,
            "name": op.name,
            "section": op.section,
            "args": [{"name": arg.name, "literal": arg.literal} for arg in op.args],
            "attrs": [{"name": name, "kind": kind} for name, kind in op.attrs],
            "rule": op.rule,
            "effect": EFFECT in op.traits,
            "internal": INTERNAL in op.traits,
            "extra": EXTRA in op.traits,
            "since": op.since,
            "doc": op.doc,
        }
        for op in TABLE
    ]
    head = {
        "magic": MAGIC.hex(),
        "dtypes": {dtype.label: int(dtype) for dtype in DType},
        "limits": {"nodes": MAX_NODES, "bytes": MAX_CODE_BYTES, "elements": MAX_ELEMENTS},
    }
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in head.items()]
    sentences = ",\n".join("    " + json.dumps(sentence) for sentence in _FORMAT)
    lines.append(f'  "format": [\n{sentences}\n  ]')
    body = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in rows)
    return "{\n" + ",\n".join(lines) + f',\n  "ops": [\n{body}\n  ]\n}}\n'


def main() -> None:
    for path, contents in files().items():
        (ROOT / path).write_text(contents)


if __name__ == "__main__":
    main()
