"""One program, one encoding: golden bytes, strict decoding, and bytes from nowhere."""

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.eta.check import CheckError, check
from ipc.eta.encode import MAGIC, MAX_CODE_BYTES, DecodeError, decode, encode, program_id
from ipc.eta.text import listing, parse
from ipc.types import DType, TensorType
from tests.eta_programs import program

GOLDEN = sorted((Path(__file__).parents[1] / "golden/programs").glob("*.txt"))


def read(path: Path) -> tuple[bytes, bytes, str]:
    """code, id and listing of a golden program."""
    head, text = path.read_text().split("\n\n", 1)
    code, identity = (line.split()[1] for line in head.splitlines())
    return bytes.fromhex(code), bytes.fromhex(identity), text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_program_keeps_its_bytes(path):
    code, identity, text = read(path)
    assert encode(parse(text)) == code
    assert decode(code) == parse(text)
    assert listing(decode(code)) == text
    assert program_id(code) == identity == hashlib.sha256(code).digest()


# %0 = output lane=0 name="x"; return %0
OUTPUT = "02000178"
INVALID = {
    "no magic": ("455448", "do not start"),
    "another version": ("45544102" + "000000", "do not start"),
    "nothing after the magic": ("", "ends too early"),
    "bytes after the end": ("00000000", "follow the program"),
    "unknown op": ("017f" + "0000", "op code 127 is unknown"),
    "operand before the start": ("011601" + "0000", "does not exist"),
    "operand that is the node itself": (f"02{OUTPUT}1600" + "000101", "does not exist"),
    "an effect among the nodes": ("010400" + "0000", "is an effect"),
    "a value among the effects": (f"01{OUTPUT}" + "011600" + "00", "is a value"),
    "result that does not exist": (f"01{OUTPUT}" + "000105", "node 5 does not exist"),
    "put of a node that does not exist": ("00" + "01060003" + "00", "node 3 does not exist"),
    "dead node": (f"01{OUTPUT}" + "0000", "not the canonical"),
    "node twice": (f"03{OUTPUT}{OUTPUT}100201" + "000102", "not the canonical"),
    "long integer": (f"01{OUTPUT}" + "00018000", "not the canonical"),
    "nodes out of order": (
        "03" + "02000178" + "02010178" + "100102" + "000102",
        "not the canonical",
    ),
    "slots out of order": ("00" + "0204010400" + "00", "not the canonical"),
    "take twice": ("00" + "0204000400" + "00", "not the canonical"),
    "read after take": ("00" + "0204000500" + "00", "not the canonical"),
    "held after a take": ("00" + "0204000700" + "00", "`held` of slot 0 comes too late"),
    "held after a read": ("00" + "0205000700" + "00", "`held` of slot 0 comes too late"),
    "spent after a take": ("00" + "0204000800" + "00", "`spent` of slot 0 comes too late"),
    "spent after held": ("00" + "0207000800" + "00", "`spent` of slot 0 comes too late"),
    "take after spent": ("00" + "0208000400" + "00", "not the canonical"),
    "earlier that is never met": ("010900" + "000100", "the earlier of slot 0"),
    "front that is never read": ("010100" + "000100", "never read"),
    "name that is not UTF-8": ("01020001ff" + "000100", "not UTF-8"),
    "name that ends too early": ("01020005ff", "ends too early|not UTF-8"),
    "endless integer": ("ffffffffffff", "longer than five bytes"),
    "too many nodes": ("ffffff7f", "exceeds"),
    "unknown dtype": ("01030900" + "000100", "dtype code 9"),
    "shape of rank 5": ("0103010501010101" + "01000100", "exceeds 4"),
}


@pytest.mark.parametrize("name", INVALID)
def test_bytes_that_are_no_canonical_program_are_refused(name):
    body, reason = INVALID[name]
    start = b"" if name in ("no magic", "another version") else MAGIC
    with pytest.raises(DecodeError, match=reason):
        decode(start + bytes.fromhex(body))


def test_an_oversized_program_is_refused_before_it_is_read():
    with pytest.raises(DecodeError, match="the most is"):
        decode(MAGIC + bytes(MAX_CODE_BYTES))


@given(st.sampled_from(GOLDEN), st.data())
def test_a_changed_byte_gives_another_program_or_an_error(path, data):
    code = bytearray(read(path)[0])
    at = data.draw(st.integers(0, len(code) - 1))
    code[at] ^= data.draw(st.integers(1, 255))
    try:
        program = decode(bytes(code))
    except DecodeError:
        return
    assert encode(program) == code and program != decode(read(path)[0])


EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "delete", "copy"]), st.integers(0), st.integers(0)),
    min_size=1, max_size=6,
)  # fmt: skip


def edited(code: bytes, edits: list) -> bytes:
    """The code after some changes behind the magic."""
    data = bytearray(code)
    for kind, place, value in edits:
        at = len(MAGIC) + place % max(1, len(data) - len(MAGIC))
        match kind:
            case "set":
                data[at : at + 1] = bytes([value % 256])
            case "insert":
                data[at:at] = bytes([value % 16])
            case "delete":
                del data[at : at + 1 + value % 3]
            case "copy":  # of a few bytes to another place
                start = len(MAGIC) + value % max(1, len(data) - len(MAGIC))
                data[at:at] = data[start : start + 5]
    return bytes(data)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(GOLDEN) | st.integers(0, 2**32), EDITS)
def test_edited_programs_are_refused_or_mean_what_their_bytes_say(source, edits):
    """What is accepted has one encoding and one listing, and its own id."""
    if isinstance(source, int):
        made = encode(program(random.Random(source), 12)[0])
    else:
        made = read(source)[0]
    code = edited(made, edits)
    try:
        found = decode(code)
    except DecodeError:
        return
    assert encode(found) == code == encode(parse(listing(found)))
    assert (found == decode(made)) == (code == made) == (program_id(code) == program_id(made))
    slots = [TensorType(DType.f32, (4,))] * found.num_slots
    try:
        types = check(found, slots, dict.fromkeys(found.outputs(), TensorType(DType.f32, (8,))))
    except CheckError:
        return
    assert len(types) == len(found.nodes)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_decode_errors(data):
    try:
        assert encode(decode(MAGIC + data)) == MAGIC + data
    except DecodeError:
        pass


@given(st.sampled_from(GOLDEN), st.integers(0, 200))
def test_a_truncated_program_is_refused(path, size):
    code = read(path)[0]
    if size < len(code):
        with pytest.raises(DecodeError):
            decode(code[:size])


def test_a_line_that_is_no_listing_is_named():
    with pytest.raises(ValueError, match="line 2 is not a line of a listing: 'nonsense'"):
        parse("take 0\nnonsense\nreturn\n")
