"""`chat.Decoder` with real tokenizers: text equals the whole decoding, in linear work."""

import random

import pytest

from inferlet import chat, model
from inferlet.chat import Event
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary
from tests.inferlet.template_support import vocabulary_of

pytestmark = pytest.mark.timeout(900)  # the first run fetches packages
# One of each tokenizer: byte-level BPE, and SentencePiece with bytes to fall back on.
TOKENIZERS = (
    "qwen3", "llama3.1", "gemma3", "deepseek-v3", "gpt-oss", "mistral-v3", "mistral-nemo",
    "phi-3.5", "phi-4",
)  # fmt: skip
TEXTS = (
    "Hello, wörld!", "  two  spaces\n\n\tand tabs", "日本語のテキスト。", "Привет, мир", "👩‍👩‍👧‍👦🏳️‍🌈🎉",
    "नमस्ते दुनिया", "שלום עולם", "مرحبا بالعالم", "e\u0301\u0302 \u200b\ufeff", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "def f(x):\n    return x ** 2\n",
    "1234567890 3.14159", "a", " ", "\n", "你好，世界。", "<think>", "☃ﬀ½",
)  # fmt: skip


@pytest.fixture(params=TOKENIZERS)
def vocabulary(request):
    made = vocabulary_of(request.param)
    handles.install(Hub(Client(), vocabulary=made).runtime)
    yield made
    handles.install(None)


def chunks_of(tokens, pick):
    """The tokens in pieces of random sizes, some empty."""
    at = 0
    while at < len(tokens):
        size = pick.choice((0, 1, 1, 1, 2, 3, 17))
        yield tokens[at : at + size]
        at += size


def decode(tokens, pick, stop):
    """All deltas, and the whole text of `Done`."""
    decoder, pieces = chat.Decoder(), []
    for chunk in chunks_of(tokens, pick):
        match decoder.feed(chunk):
            case Event.Delta(piece):
                assert piece
                pieces.append(piece)
            case event:
                assert event == Event.Idle()
    end = decoder.feed([stop])
    assert isinstance(end, Event.Done)
    return "".join(pieces), end.text


def ordinary(made: Vocabulary) -> list[int]:
    """Ids that are text and end nothing."""
    size = made.tokenizer.get_vocab_size()
    textless = made.special | set(chat.stop_tokens())
    return [token for token in range(size) if token not in textless and made.token_bytes(token)]


def test_valid_text_comes_back_whole_however_it_is_cut(vocabulary):
    pick = random.Random(7)
    stop = chat.stop_tokens()[0]
    for number in range(60):
        text = "".join(pick.choices(TEXTS, k=pick.randrange(1, 6)))
        tokens = model.encode(text)
        deltas, whole = decode(tokens, pick, stop)
        assert deltas == whole == model.decode(tokens), number
        assert "\ufffd" not in whole
        # SentencePiece's own decoder takes one space off the start of a text.
        judged = vocabulary.tokenizer.decode(tokens, skip_special_tokens=False)
        assert whole in (judged, " " + judged)


def test_any_tokens_come_as_the_whole_decoding(vocabulary):
    pick = random.Random(8)
    ids, stop = ordinary(vocabulary), chat.stop_tokens()[0]
    for _ in range(100):
        tokens = pick.choices(ids, k=pick.randrange(1, 40))
        deltas, whole = decode(tokens, pick, stop)
        assert whole == model.decode(tokens)
        assert whole.startswith(deltas)
        assert whole[len(deltas) :].strip("\ufffd") == ""  # bytes that waited for others


def test_no_delta_is_half_a_character(vocabulary):
    decoder, family = chat.Decoder(), "👩‍👩‍👧‍👦 नमस्ते 日本"
    events = [decoder.feed([token]) for token in model.encode(family * 3)]
    assert all("\ufffd" not in event.text for event in events if isinstance(event, Event.Delta))


class Counting:
    """Counts the characters and bytes that are looked at."""

    def __init__(self, inner):
        self.inner, self.work = inner, 0

    def decode(self, data, final=False):
        self.work += len(data)
        return self.inner.decode(data, final)


@pytest.mark.parametrize("size", [1, 7])
def test_a_long_reply_is_linear_work(size):
    """100,000 tokens: each byte is decoded once, and no token's text is made twice."""
    made = byte_vocabulary()
    handles.install(Hub(Client(), vocabulary=made).runtime)
    decoder = chat.Decoder()
    decoder._utf8 = counting = Counting(decoder._utf8)
    calls = 0
    inner = decoder._bytes_of

    def bytes_of(token):
        nonlocal calls
        calls += 1
        return inner(token)

    decoder._bytes_of = bytes_of
    tokens = list("aé日🎉".encode()) * 10_000
    for at in range(0, len(tokens), size):
        decoder.feed(tokens[at : at + size])
    assert len(tokens) == counting.work == calls == 100_000
    assert decoder.feed([257]) == Event.Done("aé日🎉" * 10_000)
    handles.install(None)
