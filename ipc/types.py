"""Types that cross a process boundary. Knows the wire's vocabulary; refuses numpy and torch."""

import enum
from math import prod

import msgspec

# What no channel may exceed, whatever the limits of its process.
MAX_CELL_BYTES = 1 << 31
MAX_CAPACITY = 1 << 16
# Of epilogues' results on their way to one process, of one pass and of all: with its channels' cells,
# less than what the hub keeps for a process that does not read (pie_cli.engine.quotas.MAX_UNREAD).
MAX_RESULT_BYTES = 192 << 20
MAX_RESULT_BYTES_OF_ALL = 512 << 20


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of everything that one process says to another. Each union's members have tags."""


class DType(enum.IntEnum):
    """Element type of a tensor. Codes are part of the canonical encoding and are never reused."""

    f32 = 1
    i32 = 2
    u32 = 3
    bool_ = 4
    bf16 = 5
    f16 = 6

    @property
    def label(self) -> str:
        """The name that users write: `f32`, `i32`, `u32`, `bool`, `bf16`, `f16`."""
        return self.name.rstrip("_")

    @property
    def with_article(self) -> str:
        """`an i32`, `a u32`."""
        return f"{'an' if self.label[0] in 'if' else 'a'} {self.label}"

    @property
    def size(self) -> int:
        """Bytes of one element on the wire and in a ring."""
        return _SIZES[self]

    @classmethod
    def from_name(cls, name: str) -> "DType":
        """The dtype with that label; KeyError when there is none."""
        return cls["bool_" if name == "bool" else name]


_SIZES = {
    DType.f32: 4, DType.i32: 4, DType.u32: 4, DType.bool_: 1, DType.bf16: 2, DType.f16: 2,
}  # fmt: skip


class TensorType(msgspec.Struct, frozen=True, array_like=True):
    """dtype and static shape of one tensor, cell, or model output."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    def __str__(self) -> str:
        return f"{self.dtype.label}{list(self.shape)}"


class ModelInfo(msgspec.Struct, frozen=True):
    """Facts of the served model that an inferlet may ask for."""

    name: str
    architecture: str
    path: str
    vocab_size: int  # ids that the tokenizer spells
    output_vocab_size: int  # width of a logits row, padding columns included
    layers: int
    width: int
    context_length: int
    dtype: str
    outputs: tuple[str, ...] = ("logits", "hidden")

    def output_type(self, name: str, num_rows: int) -> TensorType:
        """Type of a named output for a lane with `num_rows` rows read out; KeyError if not an output."""
        if name not in self.outputs:
            raise KeyError(name)
        last = self.output_vocab_size if name == "logits" else self.width
        return TensorType(DType.f32, (last,) if num_rows == 1 else (num_rows, last))


class EngineInfo(msgspec.Struct, frozen=True):
    """Constants of the running engine (contract, section 20)."""

    protocol: int
    page_size: int
    num_pages: int
    frame_size: int = 2
    channel_capacity: int = 7
    max_embed_length: int = 8192
    device: str = "cpu"

    @property
    def run_ahead_window(self) -> int:
        return self.channel_capacity - 1


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one process may hold. Bytes unless another unit is named."""

    memory: int = 1 << 30
    cpu: int = 24 * 3600  # seconds
    descriptors: int = 64
    pages: int = 1 << 31
    pipelines: int = 1024
    channels: int = 256 << 20
    passes: int = 10_000  # queued
    output: int = 64 << 20
    messages: int = 20_000  # a second, of all that the process says to the hub
    inbox: int = 10_000  # messages that it has not received


class Operand(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A port of a pass: a constant list, or the channel that feeds it (then `values` is empty)."""

    values: tuple[int, ...] = ()
    channel: int = -1

    @property
    def is_channel(self) -> bool:
        return self.channel >= 0


class BoundProgram(msgspec.Struct, frozen=True, array_like=True):
    """A program with its channel slots and constants filled in.

    `channels[slot]` is a channel id; `constants` is the little-endian pool in order of first use.
    """

    program_id: bytes
    channels: tuple[int, ...]
    constants: bytes


class Placement(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The ports of an explicit placement (contract, 12.2). A stage's put makes `fold` consume."""

    positions: Operand  # of each row
    slots: Operand  # of each row
    kv_len: Operand  # of each lane
    fold: Operand | None = None  # of each lane
    consumes_fold: bool = False  # the pass puts the channel that feeds `fold`


class Mask(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Which slots each row attends: `[rows, width]`, from a bool channel or one byte an entry."""

    width: int
    values: bytes = b""
    channel: int = -1

    @property
    def is_channel(self) -> bool:
        return self.channel >= 0


class PassSpec(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One forward pass as the user described it. Rows `[indptr[i], indptr[i+1])` belong to lane i.

    `readout` lists row indices in lane order; `readout_counts[i]` of them belong to lane i. Without
    `placement` the geometry is folding: rows are appended to the lane's working set and frozen.

    With `indptr_channel`, `indptr` gives the number of lanes alone, and an empty `readout` means the
    last row of each lane that has a count. With `readout_channel`, `readout` is empty.
    """

    pass_id: int
    num_rows: int
    tokens: Operand
    indptr: tuple[int, ...]
    working_sets: tuple[int, ...]
    readout: tuple[int, ...]
    readout_counts: tuple[int, ...]
    prologue: BoundProgram | None = None
    epilogue: BoundProgram | None = None
    has_results: bool = False
    placement: Placement | None = None
    mask: Mask | None = None
    groups: tuple[int, ...] = ()  # the id of each lane's group, -1: none; empty: no groups
    checkpoints: Operand | None = None
    indptr_channel: int = -1
    readout_channel: int = -1

    @property
    def num_lanes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_readouts(self) -> int:
        return sum(self.readout_counts)

    @property
    def appends_plainly(self) -> bool:
        """Whether every row goes to the end of its set and attends all that is before it."""
        return self.placement is None and self.mask is None and not self.groups
