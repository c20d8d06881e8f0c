"""Rows of the cases about templates and text that no other file holds: C2, C4, U1, U4."""

import pytest
from tokenizers import Tokenizer, decoders, models

from inferlet import chat, model, reasoning
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML
from tests.inferlet.test_chat import THINKING


@pytest.fixture
def use():
    def install(made):
        handles.install(Hub(Client(), vocabulary=made).runtime)
        return made

    yield install
    handles.install(None)


@pytest.mark.parametrize("template", [CHATML, THINKING])
@pytest.mark.parametrize("text", ["<think>\nhalf", "<think>a</think>", "</think>", "<think>"])
def test_c2_a_reply_with_half_a_think_block_is_one_turn(use, template, text):
    use(byte_vocabulary(template))
    turn = model.decode(chat.assistant(text))
    assert turn.startswith("<|im_start|>assistant\n") and turn.endswith("<|im_end|>\n")
    assert turn.count("<|im_start|>") == 1


def test_c4_only_a_cue_has_an_assistants_header(use):
    use(byte_vocabulary(THINKING))
    for tokens in (chat.system("x"), chat.first_user("x"), chat.user("x"), chat.seal()):
        assert "assistant" not in model.decode(tokens)
    assert model.decode(chat.cue()) == "<|im_start|>assistant\n"


@pytest.mark.parametrize("held", [1, 2])
def test_u1_a_prompt_that_ends_in_half_a_character_is_in_no_delta(use, held):
    use(byte_vocabulary(THINKING))
    character = "日".encode()
    prompt, rest = [*b"<think>", *character[:held]], [*character[held:], *b"x"]
    reply = chat.Decoder()
    assert reply.feed(rest) == chat.Event.Delta("\ufffd" * (3 - held) + "x")
    decoder = reasoning.Decoder.for_cue(prompt)
    assert decoder.feed(rest) == reasoning.Event.Delta("\ufffd" * (3 - held) + "x")


def byte_fallback_vocabulary():
    """Like SentencePiece's: a few words, and a token for each byte, `<0x00>` to `<0xFF>`."""
    words = ["<unk>", "\u2581", "你", *(f"<0x{byte:02X}>" for byte in range(256))]
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return Vocabulary(tokenizer, {"eos_token": "<|im_end|>"}, CHATML)


def test_u4_a_chinese_answer_of_byte_tokens_comes_whole(use):
    use(byte_fallback_vocabulary())
    text, decoder, pieces = "你好，世界。", chat.Decoder(), []
    tokens = model.encode(text)
    assert len(tokens) > len(text)
    for token in tokens:
        event = decoder.feed([token])
        if isinstance(event, chat.Event.Delta):
            pieces.append(event.text)
    assert "".join(pieces) == text
    assert len(pieces) == len(text)


def test_u3_bytes_that_wait_and_a_space_make_a_replacement_and_never_raise(use):
    use(byte_vocabulary(CHATML))
    decoder = chat.Decoder()
    assert decoder.feed([0xE6, 0x97]) == chat.Event.Idle()
    assert decoder.feed([*b" x"]) == chat.Event.Delta("\ufffd x")
    assert decoder.feed([0xE6]) == chat.Event.Idle()
    assert decoder.feed([*b" y", 257]) == chat.Event.Done("\ufffd x\ufffd y")


def test_u6_a_stop_among_other_tokens_leaves_their_text_and_none_of_its_own(use):
    use(byte_vocabulary(CHATML))
    assert chat.Decoder().feed([*b"ab", 257, *b"cd"]) == chat.Event.Done("ab")
