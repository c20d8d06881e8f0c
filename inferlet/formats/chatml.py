"""ChatML: `<|im_start|>role\\ncontent<|im_end|>\\n`. Qwen, SmolLM and many fine-tunes.

Every turn is cut out of a rendering of the model's own template, so default system turns, trimmed
text and dropped reasoning come out as the template has them. Turns begin and end with special
tokens: the ids of a whole rendering are those of its turns, one after the other.
"""

from inferlet.errors import InferletError
from inferlet.formats.template import Message, Template
from inferlet.runtime.tokenizer import Vocabulary

OPEN, CLOSE = "<|im_start|>", "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
EFFORTS = ("low", "medium", "high")


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def turn(role: str, content: str) -> str:
    return f"{OPEN}{role}\n{content}{CLOSE}\n"


_SYSTEM, _USER = _message("system", "s"), _message("user", "u")


def _after(start: str, whole: str) -> str:
    """What a turn adds to the rendering of the turns before it."""
    if not whole.startswith(start):
        raise InferletError("this model's chat template renders old turns anew with each new one")
    return whole[len(start) :]


_BODY = "\u2042"  # a character that no template holds
_REPLY = _message("assistant", _BODY)


class ChatML:
    """The fillers of contract section 3 for one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode
        self._token_id = vocabulary.token_id
        eos = vocabulary.named_token("eos_token")
        self._end_ids = (vocabulary.token_id(eos), *vocabulary.end_ids)
        self._template = Template(vocabulary)

    @staticmethod
    def fits(vocabulary: Vocabulary) -> bool:
        ids = (vocabulary.token_id(OPEN), vocabulary.token_id(CLOSE))
        return OPEN in vocabulary.template and CLOSE in vocabulary.template and None not in ids

    def system(self, text: str) -> list[int]:
        return self._encode(self._template.render([_message("system", text)]))

    def system_user(self, system: str, user: str) -> list[int]:
        pair = [_message("system", system), _message("user", user)]
        return self._encode(self._template.render(pair))

    def first_user(self, text: str) -> list[int]:
        return self._encode(self._template.render([_message("user", text)]))

    def user(self, text: str) -> list[int]:
        history = [_SYSTEM, _USER, _REPLY]
        whole = self._template.render([*history, _message("user", text)])
        return self._encode(_after(self._template.render(history), whole))

    def assistant(self, text: str) -> list[int]:
        """As the template has it in the middle of a history, where it may drop reasoning."""
        before = self._template.render([_SYSTEM, _USER])
        whole = self._template.render([_SYSTEM, _USER, _message("assistant", text), _USER])
        after = turn("user", _USER["content"])
        return self._encode(_after(before, whole).removesuffix(after))

    def system_thinking(self, text: str, effort: str) -> list[int]:
        if effort not in EFFORTS:
            raise ValueError(f"effort {effort!r}; this model accepts {', '.join(EFFORTS)}")
        return self.system(text)

    def cue(self) -> list[int]:
        return self._cue()

    def cue_without_thinking(self) -> list[int]:
        return self._cue(enable_thinking=False)

    def cue_thinking(self, on: bool) -> list[int]:
        return self._cue(enable_thinking=True) if on else self.cue_without_thinking()

    def seal(self) -> list[int]:
        whole = self._template.render([_SYSTEM, _USER, _message("assistant", _BODY)])
        return self._encode(whole.rpartition(_BODY)[2])

    def stop_tokens(self) -> list[int]:
        ids = {self._token_id(CLOSE), self._token_id(END_OF_TEXT), *self._end_ids}
        return sorted(ids - {None})

    def _cue(self, **options: bool) -> list[int]:
        messages = [_SYSTEM, _USER]
        whole = self._template.render(messages, cue=True, **options)
        return self._encode(_after(self._template.render(messages, **options), whole))
