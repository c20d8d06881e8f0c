"""Canonical bytes of a program, and back. One program has one encoding: any other bytes for it are
rejected, so an id names what runs.

    "ETA" version
    nodes     count, then per node: op code, distance back to each operand, attributes
    effects   count, then per effect: op code, slot, and for a put the node
    results   count, then the nodes
    pool      nothing: constants carry dtype and shape, their values travel beside the program

Integers are LEB128; a string is its length and UTF-8; a shape is its rank and extents.
"""

import hashlib
from typing import Any

from ipc.eta.check import MAX_NODES
from ipc.eta.graph import HELD, SPENT, Builder, Program
from ipc.eta.ops import BY_CODE, BY_NAME, EFFECT, Op
from ipc.types import DType

MAGIC = b"ETA\x01"
MAX_CODE_BYTES = 8 << 20
_MAX_STRING = 256
_MAX_RANK = 4
_DTYPES = frozenset(int(dtype) for dtype in DType)


class DecodeError(Exception):
    """Bytes that are not the canonical encoding of a program."""


def program_id(code: bytes) -> bytes:
    """SHA-256 of the encoding: programs are shared between users, so it must resist collisions."""
    return hashlib.sha256(code).digest()


def encode(program: Program) -> bytes:
    """Bytes of a canonical program (from `Builder.finish` or `decode`)."""
    out = bytearray(MAGIC)
    _write_uint(out, len(program.nodes))
    for index, node in enumerate(program.nodes):
        _write_uint(out, node.op.code)
        for arg in node.args:
            _write_uint(out, index - arg)
        for (_, kind), value in zip(node.op.attrs, node.attrs, strict=True):
            _write_attr(out, kind, value)
    _write_uint(out, len(program.effects))
    for effect in program.effects:
        _write_uint(out, effect.op.code)
        _write_uint(out, effect.slot)
        if effect.op.args:
            _write_uint(out, effect.node)
    _write_uint(out, len(program.results))
    for node_index in program.results:
        _write_uint(out, node_index)
    return bytes(out)


def _write_uint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_attr(out: bytearray, kind: str, value: Any) -> None:
    if kind == "shape":
        _write_uint(out, len(value))
        for extent in value:
            _write_uint(out, extent)
    elif kind == "str":
        data = value.encode()
        _write_uint(out, len(data))
        out += data
    else:
        _write_uint(out, value)


def decode(code: bytes) -> Program:
    """The program of canonical bytes; DecodeError for anything else."""
    if len(code) > MAX_CODE_BYTES:
        raise DecodeError(f"the program has {len(code)} bytes; the most is {MAX_CODE_BYTES}")
    if code[: len(MAGIC)] != MAGIC:
        raise DecodeError("the bytes do not start as a program of this version")
    program = _Reader(code).program()
    if encode(program) != code:
        raise DecodeError("the bytes are not the canonical encoding of their program")
    return program


class _Reader:
    """Replays bytes through a Builder, which makes the canonical form."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._at = len(MAGIC)
        self._builder = Builder()
        self._nodes: list[int] = []

    def program(self) -> Program:
        for _ in range(self._count(MAX_NODES)):
            self._nodes.append(self._node())
        for _ in range(self._count(MAX_NODES)):
            self._effect()
        results = [self._ref() for _ in range(self._count(MAX_NODES))]
        if self._at != len(self._code):
            raise DecodeError(f"{len(self._code) - self._at} bytes follow the program")
        for node in self._builder.nodes:
            if node.op.name in ("front", "earlier") and not self._builder.has_source(node):
                raise DecodeError(
                    f"the {node.op.name} of slot {node.attrs[0]} is used but never read"
                )
        return self._builder.finish(results).program

    def _node(self) -> int:
        op = self._op()
        if EFFECT in op.traits:
            raise DecodeError(f"`{op.name}` is an effect, not a value")
        args = []
        for _ in op.args:
            back = self._uint()
            if not 1 <= back <= len(self._nodes):
                raise DecodeError(f"operand {back} back of node {len(self._nodes)} does not exist")
            args.append(self._nodes[-back])
        attrs = {name: self._attr(kind) for name, kind in op.attrs}
        return self._builder.add(op.name, args, attrs)

    def _effect(self) -> None:
        op = self._op()
        slot = self._uint()
        if op is BY_NAME["put"]:
            self._builder.put(slot, self._ref())
        elif op is BY_NAME["take"]:
            self._builder.take(slot)
        elif op is BY_NAME["read"]:
            self._builder.read(slot)
        elif op.name in (HELD, SPENT):
            if self._builder.is_late(slot, op.name):
                raise DecodeError(f"`{op.name}` of slot {slot} comes too late")
            self._builder.meet(slot, op.name)
        else:
            raise DecodeError(f"`{op.name}` is a value, not an effect")

    def _op(self) -> Op:
        code = self._uint()
        if code not in BY_CODE:
            raise DecodeError(f"op code {code} is unknown to this engine")
        return BY_CODE[code]

    def _ref(self) -> int:
        index = self._uint()
        if index >= len(self._nodes):
            raise DecodeError(f"node {index} does not exist")
        return self._nodes[index]

    def _count(self, limit: int) -> int:
        count = self._uint()
        if count > limit:
            raise DecodeError(f"a count of {count} exceeds {limit}")
        return count

    def _attr(self, kind: str) -> Any:
        match kind:
            case "shape":
                return tuple(self._uint() for _ in range(self._count(_MAX_RANK)))
            case "str":
                return self._text()
            case "dtype":
                value = self._uint()
                if value not in _DTYPES:
                    raise DecodeError(f"dtype code {value} is unknown")
                return DType(value)
        return self._uint()

    def _text(self) -> str:
        size = self._count(_MAX_STRING)
        data = self._code[self._at : self._at + size]
        self._at += size
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise DecodeError("a name is not UTF-8") from None

    def _uint(self) -> int:
        # Five bytes hold every legal value; more can only be hostile.
        value = 0
        for shift in range(0, 35, 7):
            if self._at >= len(self._code):
                raise DecodeError("the program ends too early")
            byte = self._code[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise DecodeError("an integer is longer than five bytes")
