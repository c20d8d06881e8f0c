"""Chat formats: what a model's own chat template says, cut into turns.

template  renders the template        turns     cuts its renderings into turns
harmony   replies with channels       chatml    what templates of this family leave open
thinking  think markers               stream    the text of a reply, for finding markers
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
