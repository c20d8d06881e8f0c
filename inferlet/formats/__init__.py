"""Chat formats: what a model's own chat template says, cut into turns.

template  renders the template        turns     cuts its renderings into turns
harmony   replies with channels       chatml    what templates of this family leave open
switches  how templates let it think  stream    the text of a reply, for finding markers
thinking  think markers
toolbox   turns of tools              calls/    markups of tool calls
"""

import contextlib

from jinja2.exceptions import TemplateError

from inferlet.errors import InferletError, with_hint
from inferlet.formats.turns import Turns, ends_of
from inferlet.runtime.tokenizer import Vocabulary


def of(vocabulary: Vocabulary) -> Turns:
    """The turns of a model; InferletError when its template cannot be cut into turns."""
    if vocabulary.chat_format is None:
        vocabulary.chat_format = _cut(vocabulary)
    return vocabulary.chat_format


def stop_tokens(vocabulary: Vocabulary) -> list[int]:
    """Also for a model without turns: raw prompts end as well."""
    try:
        return of(vocabulary).stop_tokens()
    except InferletError:
        return sorted(ends_of(vocabulary))


def prefix(vocabulary: Vocabulary) -> list[int]:
    """The BOS token of a model whose sequences start with it: its tokenizer adds it, or its
    template says it."""
    found = vocabulary.start_ids()
    bos = vocabulary.named_token("bos_token")
    number = vocabulary.token_id(bos)
    with contextlib.suppress(InferletError):
        if not found and bos and number is not None and of(vocabulary).starts_with(bos):
            found = [number]
    return found


def warm(vocabulary: Vocabulary) -> None:
    """Makes what a format makes on first use, for all processes that are forked later."""
    # A template that fails here fails again where a program uses it, with the program's lines.
    with contextlib.suppress(InferletError):
        chat = of(vocabulary)
        for _ in (chat.first_user(""), chat.user(""), chat.assistant(""), chat.cue(), chat.seal()):
            pass


def _cut(vocabulary: Vocabulary) -> Turns:
    hint = "use `chat.prefix() + model.encode(text)` for raw prompts"
    if not vocabulary.template:
        raise InferletError(with_hint("this model has no chat template", hint))
    try:
        return Turns(vocabulary)
    except TemplateError as error:
        text = f"this model's chat template is no valid Jinja: {error}"
        raise InferletError(with_hint(text, hint)) from error
