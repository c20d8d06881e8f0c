"""Tools: their declaration, their answers, the grammar of calls, and the decoder of a reply."""

import codecs
import contextlib
import json
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferlet import formats, grammar, naming
from inferlet.errors import GrammarError, InferletError, with_hint
from inferlet.formats import calls, thinking
from inferlet.formats.calls import Call, language
from inferlet.formats.toolbox import Toolbox
from inferlet.grammar import Grammar, Matcher
from inferlet.runtime import handles, json_text
from inferlet.runtime.cells import integers
from inferlet.runtime.handles import Runtime

__all__ = ["Call", "Decoder", "Event", "answer", "create_matcher", "equip", "format"]

Specs = Sequence[str | Mapping[str, Any]]
# Where a markup has no quotes around strings, `Decoder` tells `"12"` from 12 by these.
_declared: "weakref.WeakKeyDictionary[Runtime, dict[str, Any]]" = weakref.WeakKeyDictionary()


def equip(specs: Specs) -> list[int]:
    """One complete turn that declares the tools in the model's native form."""
    functions = _functions(specs)
    for index, function in enumerate(functions):
        if not isinstance(function.get("parameters"), dict | bool | None):
            raise ValueError(
                f"the `parameters` of `specs[{index}]` ({function['name']!r}) are no JSON Schema: "
                "give an object"
            )
    vocabulary = handles.current().vocabulary
    has_markup = calls.of(vocabulary) is not None
    if not functions or not (has_markup or "tools" in vocabulary.template):
        return []
    _declare(functions)
    declared = [{"type": "function", "function": function} for function in functions]
    if has_markup:
        return _toolbox().equip(declared)
    with contextlib.suppress(InferletError):  # a template may know tools in ways of its own
        return _toolbox().equip(declared)
    return []


def answer(name: str, value: Any) -> list[int]:
    """One complete turn that carries a tool's result."""
    if not isinstance(name, str):
        raise TypeError(f"`tools.answer` got a name of type {naming.kind(name)}; it takes a str")
    if not isinstance(value, str):
        try:
            json_text.dumps(value, "the value")
        except (TypeError, ValueError) as error:
            what = f"`tools.answer` for {name!r} got what JSON cannot hold: {error}"
            hint = "give text, dicts, lists, numbers and None; of a numpy value its `.tolist()`"
            raise type(error)(with_hint(what, json_text.repair(error, hint))) from None
        value = json.dumps(value, ensure_ascii=False)
    return _toolbox().answer(_unicode(name, "name"), _unicode(value, "value"))


def _unicode(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = f"the {what} for `tools.answer` is no Unicode text: {error.reason}"
        raise ValueError(reason) from None
    return text


def format(specs: Specs) -> Grammar | None:
    """The grammar of one or more valid calls; None without tools or a tool format."""
    functions = _functions(specs)
    vocabulary = handles.current().vocabulary
    markup = calls.of(vocabulary)
    if not functions or markup is None:
        return None
    _declare(functions)
    source = json.dumps(functions, ensure_ascii=False)

    def to_lark(_: str) -> str:
        return language.lark_of(functions, markup, vocabulary)

    return grammar.shared("tool calls", source, to_lark, has_special=True)


def create_matcher(specs: Specs) -> Matcher:
    """A matcher for one or more valid calls."""
    made = format(specs)
    if made is None:
        lack = "this model has no tool format" if len(specs) else "`specs` is empty"
        hint = "give at least one tool" if not len(specs) else "use `Grammar.from_json_schema`"
        raise GrammarError(with_hint(f"there are no calls to match: {lack}", hint))
    return Matcher(made)


def _declare(functions: list[dict[str, Any]]) -> None:
    schemas = {function["name"]: function.get("parameters") or {} for function in functions}
    _declared.setdefault(handles.current(), {}).update(schemas)


def _toolbox() -> Toolbox:
    vocabulary = handles.current().vocabulary
    if vocabulary.toolbox is None:
        turns, markup = formats.of(vocabulary), calls.of(vocabulary)
        vocabulary.toolbox = Toolbox(vocabulary, turns, markup)
    return vocabulary.toolbox


def _functions(specs: Specs) -> list[dict[str, Any]]:
    """The inner objects; ValueError names the first item that is none."""
    if isinstance(specs, str | Mapping):
        raise TypeError("`specs` is one schema; it takes a sequence of them")
    if not isinstance(specs, Iterable):
        raise TypeError(f"`specs` is {naming.shown(specs)}; it takes a sequence of schemas")
    found: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(specs):
        function = _function(index, item)
        if function["name"] in found:
            raise ValueError(f"`specs[{index}]` is a second function named {function['name']!r}")
        found[function["name"]] = function
    return list(found.values())


def _function(index: int, item: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = json.loads(item) if isinstance(item, str) else item
        value = json.loads(json.dumps(value, allow_nan=False))  # what JSON can say, and a copy
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`specs[{index}]` is no Unicode text: {error.reason}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"`specs[{index}]` is no JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"`specs[{index}]` is no JSON object with a `name` of one letter or more")
    return value


class Event:
    """What `Decoder.feed` returns: exactly one of these."""

    @dataclass(frozen=True)
    class Start:
        """No call is complete."""

    @dataclass(frozen=True)
    class Call:
        """A complete call."""

        call: Call


class Decoder:
    """Finds the calls in a reply as it comes, wherever tokens and feeds cut it."""

    def __init__(self) -> None:
        runtime = handles.current()
        self._vocabulary = runtime.vocabulary
        markup = calls.of(runtime.vocabulary)
        think = thinking.markers_of(runtime.vocabulary)
        types = calls.Types(dict(_declared.get(runtime, {})))
        self._scanner = markup and calls.Scanner(markup, types, think)
        self._stops = grammar.stop_ids()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._found: deque[Call] = deque()

    @property
    def inside(self) -> bool:
        """Whether a call marker is open."""
        return self._scanner is not None and self._scanner.is_inside

    def feed(self, tokens: Sequence[int]) -> Event.Start | Event.Call:
        """The next complete call, if there is any; later ones come with the next feeds."""
        tokens = integers(tokens, "`tokens`")
        if min(tokens, default=0) < 0:
            raise ValueError(f"token id {min(tokens)} is negative")
        if self._scanner is not None:
            self._read(tokens)
        return Event.Call(self._found.popleft()) if self._found else Event.Start()

    def _read(self, tokens: list[int]) -> None:
        fresh: list[str] = []
        for token in tokens:
            if token not in self._stops:
                fresh.append(self._utf8.decode(self._vocabulary.token_bytes(token) or b""))
                continue
            self._found += self._scanner.feed("".join(fresh))
            fresh = []
            self._utf8.reset()  # a reply has ended: what it left open is no call
            self._found += self._scanner.finish()
        self._found += self._scanner.feed("".join(fresh))
