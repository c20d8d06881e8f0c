"""`tools.Decoder` for every markup: any arguments, any cuts, any garbage, and work that is linear."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlet import tools
from inferlet.formats.calls import scan
from inferlet.formats.calls.source import Source
from inferlet.runtime import handles
from tests.inferlet.call_support import STOP, decode, install
from tests.inferlet.call_writers import TOKENS, WRITERS, is_writable, vocabulary_of

VOCABULARIES = {family: vocabulary_of(family) for family in WRITERS}
MARKERS = sorted({token for tokens in TOKENS.values() for token in tokens})
hostile = st.sampled_from(
    (*MARKERS, '"', "\\", "{", "}", "[", "]", "'", "\n", "é", "🎉", "</", "<", ">", "</parameter>",
     "<arg_value>", "<function=f>", '{"name": "g", "arguments": {}}', "[g(a=1)]", "to=functions.",
     "12", "true", "null", "\u2028", "call:f{", ":", ",", "\t", "\x7f", "```")
)  # fmt: skip
texts = st.lists(hostile | st.text(max_size=4), max_size=5).map("".join)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | texts
scalars |= st.floats(allow_nan=False, allow_infinity=False)
names = st.sampled_from(("a", "b_2", "city", "x1"))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
arguments = st.dictionaries(names, values, max_size=4)
prose = st.sampled_from(("", "Sure.", "é ", "a < b\n", "Let me see:\n\n", " } ", "x > y"))
KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
         float: "number", type(None): "null"}  # fmt: skip


def pieces_of(family, text, cuts, as_tokens):
    """The tokens of a reply, cut."""
    tokens = VOCABULARIES[family].encode(text) if as_tokens else list(text.encode())
    ends = [0, *sorted(cut % (len(tokens) + 1) for cut in cuts), len(tokens)]
    return [tokens[start:end] for start, end in itertools.pairwise(ends)]


@pytest.fixture(params=WRITERS)
def family(request):
    yield request.param
    handles.install(None)


thorough = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@thorough
@given(st.data())
def test_any_arguments_come_back_however_the_reply_is_cut(family, data):
    install(VOCABULARIES[family])
    said = data.draw(arguments.filter(lambda value: is_writable(family, value)))
    cuts = data.draw(st.lists(st.integers(0, 10**6), max_size=12))
    types = {key: {"type": KINDS[type(value)]} for key, value in said.items()}
    tools.equip([{"name": "f", "parameters": {"type": "object", "properties": types}}])
    text = data.draw(prose) + WRITERS[family](said) + data.draw(prose)
    [(name, found)] = decode(pieces_of(family, text, cuts, data.draw(st.booleans())))
    assert name == "f" and json.loads(found) == said
    assert list(json.loads(found)) == list(said)


@thorough
@given(st.data())
def test_garbage_gives_the_same_valid_calls_however_it_is_cut(family, data):
    install(VOCABULARIES[family])
    call = WRITERS[family]({"a": "x", "b_2": [1, {"city": None}]})
    whole = data.draw(st.lists(hostile | st.sampled_from([call, call[:-1], call[3:]]), max_size=9))
    place, end = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 200))
    text = "".join(whole)
    text = text[:place] + text[place + end % 5 :]
    found = decode(pieces_of(family, text, [], True))
    for name, arguments_json in found:
        assert name and isinstance(json.loads(arguments_json), dict)
    cuts = data.draw(st.lists(st.integers(0, 10**6), max_size=12))
    assert decode(pieces_of(family, text, cuts, True)) == found
    assert decode([[byte] for byte in text.encode()]) == found


# ---- work


class Counted(Source):
    """Counts the characters that are consumed, and those that wait for more."""

    num_read = 0

    @property
    def at(self):
        return self._at

    @at.setter
    def at(self, at):
        Counted.num_read += max(0, at - getattr(self, "_at", at))
        self._at = at

    def give(self, fresh):
        super().give(fresh)
        Counted.num_read += len(self.text)


@pytest.fixture
def counted(monkeypatch):
    """How many characters were looked at since the last time, in markup and between it."""
    searched = [0]
    first_of = scan.first_of

    def counted_first_of(text, markers, start=0):
        at, marker = first_of(text, markers, start)
        searched[0] += at - start + len(marker)
        return at, marker

    monkeypatch.setattr(scan, "Source", Counted)
    monkeypatch.setattr(scan, "first_of", counted_first_of)

    def count():
        found = searched[0] + Counted.num_read
        searched[0] = Counted.num_read = 0
        return found

    count()
    return count


def feed_one_by_one(text):
    decoder, found = tools.Decoder(), []
    for byte in text.encode():
        event = decoder.feed([byte])
        if isinstance(event, tools.Event.Call):
            found.append(event.call)
    return found


PER_CHARACTER = (
    64  # looks: a marker's beginning may wait, and is looked at with each of its letters
)
SIZE = 6_000


def test_a_long_argument_is_looked_at_once_as_it_comes(family, counted):
    install(VOCABULARIES[family])
    value = 'a "b" {c} <d> [e] é\\' * (SIZE // 20)
    text = WRITERS[family]({"a": value, "b_2": [[1, "x"]] * (SIZE // 20)})
    tools.equip([{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}])
    [call] = feed_one_by_one(text)
    assert json.loads(call.arguments_json)["a"] == value
    assert counted() < PER_CHARACTER * len(text)


@pytest.mark.parametrize("at_once", [True, False])
def test_text_that_is_no_call_is_looked_at_a_few_times(family, counted, at_once):
    """What opens and breaks, again and again, and what opens and never ends."""
    install(VOCABULARIES[family])
    call = WRITERS[family]({"a": "x", "b_2": "y"})
    for part in (call, call[: len(call) // 2], call[:-2] + " ", call[:12], "{[<", '{"', "[f(", "<"):
        text = part * (SIZE // len(part))
        decode([list(text.encode())]) if at_once else feed_one_by_one(text)
        assert counted() < PER_CHARACTER * len(text), part


def test_a_stop_token_ends_everything(family):
    install(VOCABULARIES[family])
    call = WRITERS[family]({"a": "x"})
    decoder = tools.Decoder()
    decoder.feed([*call[:-2].encode(), STOP])
    assert not decoder.inside
    assert isinstance(decoder.feed(list(call.encode())), tools.Event.Call)
