"""Renders a model's own chat template, as its authors meant it: sandboxed Jinja."""

import datetime
import json
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferlet.runtime.tokenizer import Vocabulary

Message = dict[str, Any]
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class _Generation(Extension):
    """`{% generation %}` marks a reply for training; it adds no text."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Template:
    """`render(messages)` is the text that the model was trained on."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        # The same settings as `transformers` uses: templates are written for them.
        self._environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        self._environment.filters["tojson"] = _tojson
        self._environment.globals["raise_exception"] = _raise
        self._environment.globals["strftime_now"] = _now
        self._tree = self._environment.parse(vocabulary.template)
        self._template = self._environment.from_string(vocabulary.template)
        names = {name: vocabulary.named_token(name) for name in _TOKENS}
        tokens = {name: token for name, token in names.items() if token}
        self._defaults = {"tools": None, "documents": None, **tokens}

    def render(self, messages: list[Message], *, cue: bool = False, **options: Any) -> str:
        """`cue`: with the start of a reply at the end."""
        given = {**self._defaults, **options}
        return self._template.render(messages=messages, add_generation_prompt=cue, **given)

    def options(self) -> set[str]:
        """Names of the variables that it reads."""
        return {name.name for name in self._tree.find_all(nodes.Name) if name.ctx == "load"}

    def words(self, option: str) -> list[str]:
        """Words that it compares `option` with, in their order."""
        found: list[Any] = []
        for compare in self._tree.find_all(nodes.Compare):
            sides = [compare.expr, *(operand.expr for operand in compare.ops)]
            if any(isinstance(side, nodes.Name) and side.name == option for side in sides):
                constants = (const.value for side in sides for const in _constants(side))
                found += [value for value in constants if isinstance(value, str)]
        return list(dict.fromkeys(found))


def _constants(side: nodes.Expr) -> Sequence[nodes.Const]:
    return [side] if isinstance(side, nodes.Const) else list(side.find_all(nodes.Const))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    options = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
