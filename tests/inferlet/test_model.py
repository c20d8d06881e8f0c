"""model.*: the tokenizer and the facts of the engine (contract, 2)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlet import model
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub, byte_vocabulary


@pytest.fixture
def install():
    """Makes an engine with these facts the current one."""

    def make(vocabulary=None, **options):
        hub = Hub(Client(), vocabulary=vocabulary, **options)
        handles.install(hub.runtime)
        return hub

    yield make
    handles.install(None)


@pytest.fixture(scope="session")
def smollm(model_path):
    return Vocabulary.load(model_path)


@pytest.mark.parametrize("text", ["", "hello", "Grüße", "日本語 🦊", "a\n\n b\t", "x<|im_end|>y"])
@pytest.mark.parametrize("real", [True, False])
def test_decode_undoes_encode(install, request, text, real):
    install(request.getfixturevalue("smollm") if real else byte_vocabulary())
    tokens = model.encode(text)
    assert type(tokens) is list and all(type(token) is int for token in tokens)
    assert model.decode(tokens) == text


def test_every_token_of_the_real_model_decodes_as_the_library_does(install, smollm):
    install(smollm, info={"output_vocab_size": 49152})
    reference = smollm.tokenizer
    for token in range(0, 49152, 37):
        assert model.decode([token]) == reference.decode([token], skip_special_tokens=False)


@given(st.text(max_size=60))
def test_random_text_survives_the_byte_vocabulary(text):
    hub = Hub(Client())
    handles.install(hub.runtime)
    try:
        assert model.decode(model.encode(text)) == text
    finally:
        handles.install(None)


def test_encode_adds_nothing_and_knows_special_spellings(install, smollm):
    install(smollm)
    assert model.encode("") == []
    assert model.encode("<|im_start|>user") == [1, *model.encode("user")]
    assert model.encode("a<|im_end|>") == [*model.encode("a"), 2]


@pytest.mark.parametrize("wrong", [None, 3, b"x", ["x"]])
def test_encode_takes_a_str(install, wrong):
    install()
    with pytest.raises(TypeError, match="it takes a str"):
        model.encode(wrong)


def test_a_character_cut_in_two_is_replaced(install):
    install()
    whole = model.encode("ö")
    assert model.decode(whole[:1]) == "\ufffd"
    assert model.decode([255, 104]) == "\ufffdh"


@pytest.mark.parametrize("made", [tuple, np.array, lambda t: np.array(t, np.int32)])
def test_decode_takes_any_sequence_of_ints(install, made):
    install()
    assert model.decode(made([104, 105])) == "hi"


@pytest.mark.parametrize("token", [-1, 259, 10**12, 2**70])
def test_an_id_without_a_spelling_is_a_value_error(install, token):
    install(info={"output_vocab_size": 300})
    with pytest.raises(ValueError, match="no spelling"):
        model.decode([104, token])


@pytest.mark.parametrize("wrong", [5, "text", [1.0], np.zeros((1, 1), int), np.zeros(1), None])
def test_decode_refuses_what_is_no_token_sequence(install, wrong):
    install()
    with pytest.raises(TypeError):
        model.decode(wrong)


def test_facts_come_from_the_engine(install):
    install(
        info={"name": "m", "architecture": "llama", "layers": 3, "context_length": 77},
        engine={"page_size": 32, "frame_size": 3, "channel_capacity": 9, "max_embed_length": 512},
    )
    assert (model.name(), model.architecture(), model.layers()) == ("m", "llama", 3)
    assert (model.kv_page_size(), model.frame_size()) == (32, 3)
    assert (model.channel_capacity(), model.run_ahead_window()) == (9, 8)
    assert (model.max_embed_length(), model.context_length()) == (512, 77)
    assert (model.output_vocab_size(), model.outputs()) == (259, ["logits", "hidden"])


def test_outputs_is_the_callers_own_list(install):
    install()
    model.outputs().clear()
    assert "logits" in model.outputs()
