"""Chat formats, one module a family, and the finder that knows a model's family by its template."""

import contextlib

from jinja2.exceptions import TemplateError

from inferlet.errors import InferletError, with_hint
from inferlet.formats.chatml import ChatML
from inferlet.runtime.tokenizer import Vocabulary

Format = ChatML  # the union of all families
FAMILIES = (ChatML,)


def of(vocabulary: Vocabulary) -> Format:
    """The format of a model; InferletError when no family fits its chat template."""
    if vocabulary.chat_format is None:
        vocabulary.chat_format = _find(vocabulary)
    return vocabulary.chat_format


def warm(vocabulary: Vocabulary) -> None:
    """Makes what a format makes on first use, for all processes that are forked later."""
    # A template that fails here fails again where a program uses it, with the program's lines.
    with contextlib.suppress(InferletError, TemplateError):
        chat = of(vocabulary)
        for _ in (chat.first_user(""), chat.user(""), chat.assistant(""), chat.cue(), chat.seal()):
            pass


def _find(vocabulary: Vocabulary) -> Format:
    for family in FAMILIES:
        if family.fits(vocabulary):
            return family(vocabulary)
    lack = "a chat template of an unknown family" if vocabulary.template else "no chat template"
    hint = "use `chat.prefix() + model.encode(text)` for raw prompts"
    raise InferletError(with_hint(f"this model has {lack}", hint))
