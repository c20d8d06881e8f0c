"""Call markups: how a model writes a tool call. The finder knows a markup by its own markers.

    scan      what all markups share: calls, and the walk from opener to opener
    source    the text of one call as it comes
    json_text where a JSON text ends, found while it comes
    types     of arguments without quotes
    values    what a complete JSON text says, as compact text
    hermes    JSON between `<tool_call>` and `</tool_call>`
    headed    a name, then JSON: Mistral, DeepSeek V3, Kimi, Phi-4, Harmony
    tagged    one tag for each argument: Qwen's XML, GLM, DeepSeek's DSML, Kimi K3
    gemma     values in a notation of its own
    bare      no marker at all: Llama's JSON and its Python lists

Markers stand in the template, or are tokens of their own; a model's name is never looked at.
"""

from inferlet.formats import chatml
from inferlet.formats.calls.bare import BareJson, Pythonic
from inferlet.formats.calls.gemma import Gemma
from inferlet.formats.calls.headed import DEEPSEEK, KIMI, Harmony, Headed, Listed, Mistral
from inferlet.formats.calls.hermes import Hermes
from inferlet.formats.calls.scan import Call, Markup, Scanner
from inferlet.formats.calls.tagged import Dsml, Glm, QwenXml, Xtml
from inferlet.formats.calls.types import Types
from inferlet.runtime.tokenizer import Vocabulary

__all__ = ["Call", "Hermes", "Markup", "QwenXml", "Scanner", "Types", "of"]

# The most telling marker first: `<tool_call>` belongs to several families.
_FAMILIES: tuple[tuple[str, Markup], ...] = (
    ("｜DSML｜", Dsml()),
    (Xtml.openers[0], Xtml()),
    ("<|tool_call>", Gemma()),
    ("open_tag('call'", Xtml()),  # which its template puts together from parts
    ("<|constrain|>", Harmony()),
    ('functions." + tool_call.name', Harmony()),
    (DEEPSEEK.opener, Headed(DEEPSEEK)),
    (KIMI.opener, Headed(KIMI)),
    ("[TOOL_CALLS]", Mistral()),
    ("<|tool_call|>", Listed()),
    ("functools", Listed()),
    ("<arg_key>", Glm()),
    ("<function=", QwenXml()),
    ("<|python_start|>", Pythonic()),
    ("<|tool_call_start|>", Pythonic()),
    ("<|python_tag|>", BareJson()),
    ('{"name": function name, "parameters": dictionary', BareJson()),
)


def of(vocabulary: Vocabulary) -> Markup | None:
    """The model's call markup; None when it has no tool format."""
    if not vocabulary.template:
        return None
    for marker, markup in _FAMILIES:
        if marker in vocabulary.template or vocabulary.token_id(marker) is not None:
            return markup
    # ChatML that is silent about tools has the Hermes form too.
    is_silent = chatml.fits(vocabulary) and "tools" not in vocabulary.template
    return Hermes() if is_silent or "<tool_call>" in vocabulary.template else None
