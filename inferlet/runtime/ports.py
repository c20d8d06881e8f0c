"""Ports of a pass as bound: rows, lanes, readouts, placement. Checks what needs no working set."""

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from inferlet.channel import Channel
from inferlet.errors import InferletError, TraceError, with_hint
from inferlet.forward import ForwardPass, Numbers
from inferlet.runtime import handles
from ipc import geometry
from ipc.geometry import GeometryError
from ipc.types import DType, Mask, Operand, Placement, TensorType

NumberOf = Callable[[Channel], int]


@dataclass
class Shape:
    """Rows, lanes and readout of a pass: all that its stages' types depend on."""

    num_rows: int
    indptr: tuple[int, ...]
    readout: tuple[int, ...]  # in lane order; as the user wrote it when lanes come from a channel
    readout_counts: tuple[int, ...]

    @property
    def num_lanes(self) -> int:
        return len(self.indptr) - 1


def shape_of(fwd: ForwardPass) -> Shape:
    """The shape of a pass whose ports fit each other; InferletError otherwise."""
    if fwd._tokens is None:
        raise InferletError(with_hint(f"{fwd._label} embeds nothing", "call `.embed(tokens)`"))
    if fwd._geometry is None:
        raise InferletError(
            with_hint(
                f"{fwd._label} has no state",
                "call `.state([ws], StateGeometry.folding())` before submitting it",
            )
        )
    num_rows = _num_rows(fwd)
    indptr = _indptr(fwd, num_rows)
    lanes = len(indptr) - 1
    if len(fwd._working_sets) != lanes:
        raise InferletError(
            with_hint(
                f"{fwd._label} has {lanes} lanes; `state` got {len(fwd._working_sets)} working "
                "sets",
                "give one working set a lane: `embed(tokens, indptr)` splits rows into lanes",
            )
        )
    _check_placement(fwd, num_rows, lanes)
    readout, counts = _readout(fwd, indptr)
    return Shape(num_rows, indptr, readout, counts)


def _num_rows(fwd: ForwardPass) -> int:
    tokens, limit = fwd._tokens, handles.current().engine.max_embed_length
    if isinstance(tokens, Channel):
        if tokens.dtype is not DType.i32 or len(tokens.shape) != 1:
            raise TraceError(
                with_hint(
                    f"{fwd._label} embeds {tokens._label}, which is {tokens._cell}",
                    "tokens come from an i32 channel of shape [rows]",
                )
            )
        num_rows = tokens.shape[0]
    else:
        num_rows = len(tokens)
        check_tokens(tokens, fwd._label)
    if num_rows > limit:
        _check_context(fwd, num_rows)
        raise InferletError(
            with_hint(
                f"{fwd._label} embeds {num_rows} rows; one pass takes at most {limit}",
                "cut the prompt into several passes: the result is the same",
            )
        )
    return num_rows


def _check_context(fwd: ForwardPass, num_rows: int) -> None:
    """Of a pass with too many rows, since to cut it would be of no use beyond the context."""
    end = handles.current().model.context_length
    if fwd._geometry._is_explicit or fwd._indptr is not None or len(fwd._working_sets) != 1:
        return
    first = fwd._working_sets[0].folded()
    if isinstance(fwd._tokens, list):
        num_rows -= sum(token < 0 for token in fwd._tokens)
    if first + num_rows > end:
        raise InferletError(
            with_hint(
                f"{fwd._label} reaches position {first + num_rows - 1}; the model's context ends "
                f"at {end - 1}",
                "shorten the prompt: at most `model.context_length()` tokens, in as many passes as "
                f"it takes (one takes {handles.current().engine.max_embed_length} rows)",
            )
        )


def check_tokens(tokens: list[int], label: str) -> None:
    """InferletError for an id that is neither in the vocabulary nor -1 (absent)."""
    size = handles.current().model.output_vocab_size
    for row, token in enumerate(tokens):
        if not -1 <= token < size:
            raise InferletError(
                with_hint(
                    f"token id {token} in row {row} of {label} is outside the vocabulary: "
                    f"0 to {size - 1}, or -1 for an absent row",
                    "take ids from `model.encode`, or below `model.output_vocab_size()`",
                )
            )


def seed(port: Any) -> list[int] | None:
    """A port's list, or the seed of its channel; None when it has none yet."""
    if not isinstance(port, Channel):
        return port
    return port._staged[0].tolist() if port._staged else None


def _indptr(fwd: ForwardPass, num_rows: int) -> tuple[int, ...]:
    if fwd._indptr is None:
        return (0, num_rows)
    if isinstance(fwd._indptr, Channel):
        _check_cell(fwd, "indptr", fwd._indptr, TensorType(DType.u32, (0,)))
        if fwd._indptr.shape[0] < 2:
            raise TraceError(
                with_hint(
                    f"`indptr` of {fwd._label} has a single offset; one lane needs two",
                    geometry.HINTS["indptr"],
                )
            )
    found = seed(fwd._indptr)
    if found is None:  # what it will be is not known; how many lanes there are is
        return (*[0] * (fwd._indptr.shape[0] - 1), num_rows)
    with as_inferlet_error(fwd):
        geometry.check_indptr(found, num_rows)
    return tuple(found)


def _check_placement(fwd: ForwardPass, num_rows: int, lanes: int) -> None:
    positions, slots, kv_len, fold = fwd._geometry._ports()
    for name, port, count in (
        ("positions", positions, num_rows),
        ("slots", slots, num_rows),
        ("kv_len", kv_len, lanes),
        ("fold", fold, lanes),
        ("checkpoints", fwd._checkpoints, None),
    ):
        if isinstance(port, Channel):
            _check_cell(fwd, name, port, TensorType(DType.u32, (count or 0,)))
        elif port is not None and count not in (None, len(port)):
            raise InferletError(
                with_hint(
                    f"`{name}` of {fwd._label} has {len(port)} entries; it needs {count}",
                    f"give one for each {'lane' if name in ('kv_len', 'fold') else 'row'}",
                )
            )
    mask = fwd._mask
    if isinstance(mask, Channel):
        _check_cell(fwd, "mask", mask, TensorType(DType.bool_, (num_rows, 0)))
    elif mask is not None and len(mask) != num_rows:
        raise InferletError(
            with_hint(
                f"`mask` of {fwd._label} has {len(mask)} rows; it needs {num_rows}",
                "give the mask a row for each token of the pass",
            )
        )
    for lane in fwd._groups:
        if lane >= lanes:
            raise InferletError(
                with_hint(
                    f"`group` of {fwd._label} names lane {lane} of {lanes}",
                    f"name lanes from 0 to {lanes - 1}",
                )
            )


def _check_cell(fwd: ForwardPass, name: str, channel: Channel, wanted: TensorType) -> None:
    """An extent of 0 stands for any."""
    fits = channel.dtype is wanted.dtype and len(channel.shape) == len(wanted.shape)
    if fits and all(want in (0, got) for want, got in zip(wanted.shape, channel.shape)):
        return
    shape = ", ".join(str(extent or "n") for extent in wanted.shape)
    raise TraceError(
        with_hint(
            f"`{name}` of {fwd._label} is fed by {channel._label}, which is {channel._cell}; it "
            f"needs {wanted.dtype.label}[{shape}]",
            f"make the channel with `Channel([{shape}], dtype.{wanted.dtype.label})`",
        )
    )


def _readout(fwd: ForwardPass, indptr: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lanes = len(indptr) - 1
    has_seed = not isinstance(fwd._indptr, Channel) or seed(fwd._indptr) is not None or lanes == 1
    if isinstance(fwd._readout, Channel):
        _check_cell(fwd, "readout", fwd._readout, TensorType(DType.u32, (0,)))
    if fwd._epilogue is None:  # nobody reads outputs
        return (), (0,) * lanes
    found = seed(fwd._readout)
    if found is None and fwd._readout is not None and lanes == 1:
        _check_readouts(fwd, *fwd._readout.shape)
        return (), fwd._readout.shape
    if fwd._readout is None and not has_seed:
        return (), (1,) * lanes
    if not has_seed or (found is None and fwd._readout is not None):
        raise InferletError(
            with_hint(
                f"how many rows {fwd._label} reads out of each lane is not known",
                "seed the channels of `readout` and `indptr`, or give lists",
            )
        )
    _check_readouts(fwd, len(found) if found is not None else lanes)
    with as_inferlet_error(fwd):
        rows = geometry.readout_by_lane(found, indptr)
    counts = tuple(sum(start <= row < end for row in rows) for start, end in pairwise(indptr))
    if isinstance(fwd._readout, Channel):
        return (), counts
    if isinstance(fwd._indptr, Channel):
        return tuple(fwd._readout or ()), counts
    return tuple(rows), counts


def _check_readouts(fwd: ForwardPass, count: int) -> None:
    most = handles.current().engine.max_embed_length
    if count > most:
        raise InferletError(
            with_hint(
                f"{fwd._label} reads {count} rows out; one pass reads out at most {most}",
                "name each row once, and `gather` it in the stage as often as needed",
            )
        )


@contextmanager
def as_inferlet_error(fwd: ForwardPass) -> Iterator[None]:
    """Raises a GeometryError as what the user sees, with the pass that it is about."""
    try:
        yield
    except GeometryError as error:
        raise InferletError(with_hint(f"{fwd._label}: {error}", error.hint)) from None


# ---- for the wire


def port_channels(fwd: ForwardPass) -> list[Channel]:
    """The channels that feed ports, in the contract's order."""
    ports = (fwd._tokens, fwd._indptr, *fwd._geometry._ports(), _read_out(fwd), fwd._mask)
    return [port for port in (*ports, fwd._checkpoints) if isinstance(port, Channel)]


def consumed_channels(fwd: ForwardPass) -> list[Channel]:
    """Those whose cells a prologue's put would be consumed from."""
    positions, slots, _, fold = fwd._geometry._ports()
    return [port for port in (fwd._tokens, positions, slots, fold) if isinstance(port, Channel)]


def host_bytes(fwd: ForwardPass) -> int:
    """At least what the host's own lists and mask take on the wire."""
    lists = (fwd._tokens, fwd._indptr, *fwd._geometry._ports(), fwd._readout, fwd._checkpoints)
    longest = 5  # bytes of one number
    mask = fwd._mask.nbytes if isinstance(fwd._mask, np.ndarray) else 0
    return mask + longest * sum(len(port) for port in lists if isinstance(port, list))


def _read_out(fwd: ForwardPass) -> Numbers | None:
    return fwd._readout if fwd._epilogue is not None else None


def spec_fields(
    fwd: ForwardPass, lanes: int, number_of: NumberOf, puts: Container[Channel]
) -> dict[str, Any]:
    """The fields of a PassSpec that say where rows go. `puts`: what the stages put."""

    def operand(port: Numbers) -> Operand:
        if isinstance(port, Channel):
            return Operand(channel=number_of(port))
        return Operand(values=tuple(port))

    fields: dict[str, Any] = {"tokens": operand(fwd._tokens)}
    if fwd._geometry._is_explicit:
        positions, slots, kv_len, fold = fwd._geometry._ports()
        fields["placement"] = Placement(
            operand(positions), operand(slots), operand(kv_len),
            None if fold is None else operand(fold), isinstance(fold, Channel) and fold in puts,
        )  # fmt: skip
    if isinstance(fwd._mask, Channel):
        fields["mask"] = Mask(fwd._mask.shape[1], channel=number_of(fwd._mask))
    elif fwd._mask is not None:
        fields["mask"] = Mask(fwd._mask.shape[1], fwd._mask.tobytes())
    if fwd._groups:
        fields["groups"] = tuple(fwd._groups.get(lane, -1) for lane in range(lanes))
    if fwd._checkpoints is not None:
        fields["checkpoints"] = operand(fwd._checkpoints)
    if isinstance(fwd._indptr, Channel):
        fields["indptr_channel"] = number_of(fwd._indptr)
    if isinstance(_read_out(fwd), Channel):
        fields["readout_channel"] = number_of(fwd._readout)
    return fields
