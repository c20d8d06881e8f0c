"""Chat formats, one module a family, and the finder that knows a model's family by its template."""

from inferlet.errors import InferletError, with_hint
from inferlet.formats.chatml import ChatML
from inferlet.runtime.tokenizer import Vocabulary

Format = ChatML  # the union of all families
FAMILIES = (ChatML,)


def find(vocabulary: Vocabulary) -> Format:
    """The format of a model; InferletError when no family fits its chat template."""
    for family in FAMILIES:
        if family.fits(vocabulary):
            return family(vocabulary)
    what = (
        "has a chat template of an unknown family"
        if vocabulary.template
        else ("has no chat template")
    )
    raise InferletError(
        with_hint(f"this model {what}", "use `chat.prefix() + model.encode(text)` for raw prompts")
    )
