"""Renders a model's own chat template, as its authors meant it: sandboxed Jinja."""

import datetime
import json
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferlet.runtime.tokenizer import Vocabulary

Message = dict[str, Any]
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class Template:
    """`render(messages)` is the text that the model was trained on."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        # The same settings as `transformers` uses: templates are written for them.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        self._template = environment.from_string(vocabulary.template)
        names = {name: vocabulary.named_token(name) for name in _TOKENS}
        self._tokens = {name: token for name, token in names.items() if token}

    def render(self, messages: list[Message], *, cue: bool = False, **options: Any) -> str:
        """`cue`: with the start of a reply at the end."""
        return self._template.render(
            messages=messages, add_generation_prompt=cue, **self._tokens, **options
        )


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
