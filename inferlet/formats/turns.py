"""Cuts a model's chat template into turns: the fillers of the contract's section 3.

The template is rendered with known contents, and the text between them tells its turns apart.
Nothing is written by hand for a family, so default system turns, trimmed text, dates and dropped
reasoning are the template's. Each turn is cut at the side where it meets a turn that is known.

    opening       all before the first user's text: BOS, a default system turn, a header
    before_reply  a first user's turn, which `assistant(text)` and `cue()` follow
    before_user   that turn and a reply, which `user(text)` follows
    closing       what ends a rendering and is gone once a turn follows: of no turn

Refuses templates whose turns read differently once later ones follow.
"""

from typing import Any

from jinja2.exceptions import TemplateError

from inferlet.errors import InferletError, with_hint
from inferlet.formats import harmony, switches, thinking
from inferlet.formats.template import Message, Template
from inferlet.runtime.tokenizer import Vocabulary

# Contents that no template holds.
S, U0, A0, U1, A1, U2 = (f"\u2042{name}\u2042" for name in ("s", "u", "a", "v", "b", "w"))
# Tokens that end a reply wherever they exist; models rarely name all of theirs.
ENDS = ("<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eom_id|>", "<|call|>")
# Pieces that follow others are cut by comparing: both sides must hold the same date.
_STILL = {"strftime_now": lambda pattern: "2024-01-01"}


def system_message(text: str) -> Message:
    return {"role": "system", "content": text}


def user_message(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant_message(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _talk(*texts: str) -> list[Message]:
    """User and assistant in turn, the user first."""
    makers = (user_message, assistant_message)
    return [makers[index % 2](text) for index, text in enumerate(texts)]


def ends_of(vocabulary: Vocabulary) -> set[int]:
    """Ids that end any text of a model, with a template or without."""
    ends = [vocabulary.named_token("eos_token"), *ENDS]
    return {*vocabulary.end_ids, *map(vocabulary.token_id, ends)} - {None}


class Turns:
    """The turns of one model's template."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """InferletError when the template cannot be cut."""
        self._vocabulary = vocabulary
        self._heads: dict[str, tuple[str, list[int]]] = {}  # what few pieces follow
        self._template = Template(vocabulary)
        self._closing = self._find_closing()
        self._cut()
        if not self._closing and not self._meets_between_tokens():
            # A space that is one token with the word behind it belongs to the turn behind.
            self._closing = self._before_reply[len(self._before_reply.rstrip()) :]
            self._cut()
        self._has_system = self._keeps_system_apart()
        self._check()

    def starts_with(self, token: str) -> bool:
        """Whether a sequence starts with this, and no turn does."""
        return self._opening.startswith(token) and self._before_user.count(token) == 1

    # ---- the fillers

    def system(self, text: str, **options: Any) -> list[int]:
        if not self._has_system:
            return self.first_user(text, **options)
        whole = self._render([system_message(text), user_message(U0)], **options)
        return self._encode("", _without_end(whole, self._user(U0)))

    def system_user(self, system: str, user: str) -> list[int]:
        if self._refuses_system:
            return self.system(system) + self.user(user)
        return self._encode("", self._render([system_message(system), user_message(user)]))

    def first_user(self, text: str, **options: Any) -> list[int]:
        return self._encode("", self._render([user_message(text)], **options))

    def user(self, text: str) -> list[int]:
        return self._encode(self._before_user, self._user(text))

    def assistant(self, text: str) -> list[int]:
        """As the template has it in the middle of a history, where it may drop reasoning."""
        return self._encode(self._before_reply, self._assistant(text))

    def system_thinking(self, text: str, effort: str) -> list[int]:
        slots, words = switches.efforts(self._template)
        stated = {word: self._with_effort(slots, word) for word in words}
        accepted = [word for word, options in stated.items() if self._takes(options)]
        if effort not in accepted:
            raise ValueError(f"effort {effort!r}; this model accepts {', '.join(accepted)}")
        return self.system(text, **stated[effort])

    def cue(self) -> list[int]:
        return self._encode(self._before_reply, self._cue())

    def cue_without_thinking(self) -> list[int]:
        return self.cue_thinking(False)

    def cue_thinking(self, on: bool) -> list[int]:
        cue = self._cue(**switches.thinking(self._template, on=bool(on)))
        return self._encode(self._before_reply, cue)

    def seal(self) -> list[int]:
        return self._encode(A0, self._seal)

    def stop_tokens(self) -> list[int]:
        return sorted({*ends_of(self._vocabulary), self._last_end} - {None})

    # ---- cutting

    def _find_closing(self) -> str:
        """What ends a rendering and is not there once a turn follows: a template may close a
        history that asks for no reply, or begin a reply whether it is asked to or not."""
        plain, cued = (self._render_raw(_talk(U0), cue=cue, **_STILL) for cue in (False, True))
        whole = self._render_raw(_talk(U0, A0, U1), **_STILL)
        _, to_reply, to_user, _ = _split(whole, U0, A0, U1)
        if plain == cued:
            reply_end = _split(self._render_raw(_talk(U0, A0), **_STILL), A0)[1]
            closing = self._unlike(reply_end, to_user)
            return closing if plain.endswith(closing) else ""
        return self._unlike(_split(plain, U0)[1], to_reply)

    def _unlike(self, end: str, following: str) -> str:
        """The part of `end` that does not begin `following`, from the start of a token on."""
        if following.startswith(end):
            return ""
        differs = [
            i for i, pair in enumerate(zip(end, following, strict=False)) if len({*pair}) > 1
        ]
        common = differs[0] if differs else len(following)
        starts = [at for at, _ in self._specials(end) if at <= common]
        return end[starts[-1] if starts else common :]

    def _cut(self) -> None:
        """Finds what stands between the contents of turns."""
        self._opening, user_end = self._around(_talk(U0), U0)
        whole = self._render(_talk(U0, A0, U1), **_STILL)
        opening, user_to_reply, reply_to_user, end = _split(whole, U0, A0, U1)
        if opening != self._opening or end != user_end:
            raise _uncut("a user's turn reads differently where another comes before")
        self._before_reply = self._opening + U0 + user_end
        _, reply_end = self._around(_talk(U0, A0), A0)
        self._seal = self._seal_within(reply_to_user, reply_end)
        self._before_user = self._opening + U0 + user_to_reply + A0 + self._seal
        self._last_end = self._end_of(reply_end, self._closing or reply_to_user)

    def _end_of(self, reply_end: str, following: str) -> int | None:
        """The control token that ends a reply: the first of its end that is no part of a think
        marker. A template without one has the model say what begins the next turn."""
        markers = "".join(thinking.markers_of(self._vocabulary) or ())
        ids = [number for _, number in self._specials(reply_end)]
        telling = [number for number in ids if self._vocabulary.added[number] not in markers]
        later = [number for _, number in self._specials(following)]
        return next(iter(telling or ids[-1:] or later), None)

    def _seal_within(self, reply_to_user: str, reply_end: str) -> str:
        """The part of the text between a reply and the next user's that belongs to the reply."""
        if reply_end and reply_to_user.startswith(reply_end):
            return reply_end
        # The last reply ends in a way of its own. A user's turn begins as after a system turn.
        start = self._user_start()
        if start and reply_to_user.endswith(start):
            return reply_to_user.removesuffix(start)
        if not reply_end:
            return ""
        raise _uncut("a reply ends differently once a user's turn follows")

    def _user_start(self) -> str:
        """What a system turn is followed by, up to the user's text; "" when it is not to be told."""
        try:
            alone = self._render([system_message(S)], **_STILL)
            pair = self._render([system_message(S), user_message(U0)], **_STILL)
        except InferletError:
            return ""
        return pair[len(alone) :].partition(U0)[0] if pair.startswith(alone) and S in alone else ""

    def _meets_between_tokens(self) -> bool:
        """Whether a user's turn and what follows it are the tokens of the whole."""
        whole = self._render_raw(_talk(U0), cue=True, **_STILL)
        turns = self._encode("", self._before_reply) + self.cue()
        return turns == self._vocabulary.encode(whole)

    def _keeps_system_apart(self) -> bool:
        """Whether a system turn stands by itself; sets `_refuses_system` for templates that drop
        or forbid it."""
        self._refuses_system = False
        try:
            whole = self._render([system_message(S), user_message(U0)], **_STILL)
        except InferletError:
            whole = ""
        if S not in whole:
            self._refuses_system = True
        return S in whole and whole.endswith(self._user(U0))

    def _check(self) -> None:
        """A history of each kind, put together from turns, is the template's rendering of it."""
        later = [self._assistant(A0), self._user(U1), self._assistant(A1), self._user(U2)]
        openings = [([], self._before_reply)]
        if self._has_system:
            pair = [system_message(S), user_message(U0)]
            openings.append(([system_message(S)], self._render(pair, **_STILL)))
        for system, opening in openings:
            history = [*system, *_talk(U0, A0, U1, A1, U2)]
            whole = self._render_raw(history, cue=True, **_STILL)
            if whole != "".join((opening, *later, self._cue())):
                raise _uncut("old turns read differently once new ones follow")

    def _with_effort(self, slots: list[str], effort: str) -> dict[str, Any]:
        if not slots:
            return {}
        return {**switches.thinking(self._template, on=True), **dict.fromkeys(slots, effort)}

    def _takes(self, options: dict[str, Any]) -> bool:
        """Whether the template does not refuse these options."""
        try:
            self.system(S, **options)
        except InferletError:
            return False
        return True

    # ---- the pieces as text

    def _user(self, text: str) -> str:
        whole = self._render(_talk(U0, A0, text), **_STILL)
        return _without_start(whole, self._before_user)

    def _assistant(self, text: str) -> str:
        text = harmony.final_of(text, self._vocabulary)
        whole = self._render(_talk(U0, text, U1), **_STILL)
        return _without_end(_without_start(whole, self._before_reply), self._user(U1))

    def _cue(self, **options: Any) -> str:
        plain = self._render(_talk(U0), **options, **_STILL)
        return _without_start(self._render_raw(_talk(U0), cue=True, **options, **_STILL), plain)

    def _around(self, messages: list[Message], content: str) -> tuple[str, str]:
        """What comes before and after a content, in a rendering of these turns alone."""
        before, after = _split(self._render(messages, **_STILL), content)
        return before, after

    def _render(self, messages: list[Message], **options: Any) -> str:
        return self._render_raw(messages, **options).removesuffix(self._closing)

    def _render_raw(self, messages: list[Message], **options: Any) -> str:
        try:
            return self._template.render(messages, **options)
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            hint = "change the text, or use `chat.prefix() + model.encode(text)`"
            says = str(error) or type(error).__name__
            text = f"this model's chat template fails for such turns: {says}"
            raise InferletError(with_hint(text, hint)) from error

    # ---- tokens

    def _encode(self, before: str, piece: str) -> list[int]:
        """The ids of `piece` behind `before`: some tokenizers treat the start of a text, or what
        follows a special token, in a way of their own."""
        if before not in self._heads:
            starts = [at for at, _ in self._specials(before)]
            tail = before[starts[-1] :] if starts else before
            self._heads[before] = tail, self._vocabulary.encode(tail)
        tail, head = self._heads[before]
        whole = self._vocabulary.encode(tail + piece)
        if whole[: len(head)] == head:
            return whole[len(head) :]
        return self._vocabulary.encode(piece)  # no cut between tokens there, as in a live reply

    def _specials(self, text: str) -> list[tuple[int, int]]:
        """Where tokens begin that are found in a text before it is cut into words; their ids."""
        encoding = self._vocabulary.tokenizer.encode(text, add_special_tokens=False)
        added = self._vocabulary.added
        ids = zip(encoding.offsets, encoding.ids, strict=True)
        return [(start, number) for (start, _), number in ids if number in added]


def _split(whole: str, *contents: str) -> list[str]:
    pieces = []
    for content in contents:
        if whole.count(content) != 1:
            raise _uncut("it does not say each turn's text once")
        piece, _, whole = whole.partition(content)
        pieces.append(piece)
    return [*pieces, whole]


def _without_start(whole: str, start: str) -> str:
    if not whole.startswith(start):
        raise _uncut("it renders old turns anew with each new one")
    return whole[len(start) :]


def _without_end(whole: str, end: str) -> str:
    if not whole.endswith(end):
        raise _uncut("it renders a turn otherwise when another comes before")
    return whole.removesuffix(end)


def _uncut(reason: str) -> InferletError:
    hint = "write the turns with `chat.prefix()` and `model.encode`"
    text = f"this model's chat template has no fixed turns: {reason}"
    return InferletError(with_hint(text, hint))
