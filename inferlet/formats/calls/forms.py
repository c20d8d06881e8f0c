"""How each markup writes calls, for their grammar. A template tells the variants of a family apart.

`{name}` stands for the function's name, `{json name}` for it as JSON, `{index}` for a number and
`{id}` for nine letters or digits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from inferlet.formats.calls import gemma
from inferlet.formats.calls.bare import BareJson, Pythonic
from inferlet.formats.calls.gemma import Gemma
from inferlet.formats.calls.headed import DEEPSEEK, Harmony, Headed, Listed, Mistral
from inferlet.formats.calls.hermes import Hermes
from inferlet.formats.calls.notations import Tags
from inferlet.formats.calls.scan import Markup
from inferlet.formats.calls.tagged import Dsml, Glm, QwenXml, Xtml
from inferlet.formats.calls.writer import GAP, NEWLINE


@dataclass(frozen=True)
class Form:
    """A call is `before` arguments `after`; calls stand between `begin` and `end`."""

    before: str
    after: str = ""
    begin: str = ""
    between: str = ""
    end: str = ""
    notation: "str | Tags" = "json"  # or "gemma", "python"


_OBJECT = '{"name": {json name}, "arguments": '
_HARMONY_HEADS = (
    "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
    " to=functions.{name}<|channel|>commentary json<|message|>",
)


def forms_of(markup: Markup, template: str) -> tuple[Form, ...]:
    """The ways in which a reply may write its calls."""
    return _FORMS[type(markup)](markup, template)


def _hermes(markup: Hermes, template: str) -> tuple[Form, ...]:
    return (Form(f"<tool_call>\n{_OBJECT}", "}\n</tool_call>", between="\n"),)


def _headed(markup: Headed, template: str) -> tuple[Form, ...]:
    if markup.openers != (DEEPSEEK.opener,):
        return (
            Form(
                "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                "<|tool_calls_section_begin|>",
                end="<|tool_calls_section_end|>",
            ),
        )
    around = {"begin": "<｜tool▁calls▁begin｜>", "end": "<｜tool▁calls▁end｜>"}
    if "```json" in template:
        before = f"{DEEPSEEK.opener}function{DEEPSEEK.separator}{{name}}\n```json\n"
        whole = Form(before, f"\n```{DEEPSEEK.closer}", between="\n", **around)
        return whole, replace(whole, end="")  # as the template writes a single call
    before = f"{DEEPSEEK.opener}{{name}}{DEEPSEEK.separator}"
    return (Form(before, DEEPSEEK.closer, **around),)


def _mistral(markup: Mistral, template: str) -> tuple[Form, ...]:
    if "[ARGS]" in template:
        named = Form("[TOOL_CALLS]{name}[ARGS]")
        if "[CALL_ID]" not in template:
            return (named,)
        return (Form("[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]"), named)
    around = {"begin": f"[TOOL_CALLS]{GAP}[", "between": ", ", "end": "]"}
    return (Form(_OBJECT, ', "id": "{id}"}', **around), Form(_OBJECT, "}", **around))


def _listed(markup: Listed, template: str) -> tuple[Form, ...]:
    opener = next((one for one in markup.openers if one in template), markup.openers[0])
    closer = "]<|/tool_call|>" if "<|/tool_call|>" in template else "]"
    if opener.endswith("["):
        return (Form(_OBJECT, "}", opener, ", ", "]"),)
    return (Form(_OBJECT, "}", f"{opener}[", ", ", closer),)


def _harmony(markup: Harmony, template: str) -> tuple[Form, ...]:
    return tuple(Form(head, between="<|end|><|start|>assistant") for head in _HARMONY_HEADS)


def _bare_json(markup: BareJson, template: str) -> tuple[Form, ...]:
    return (Form('{"name": {json name}, "parameters": ', "}", between="; "),)


def _pythonic(markup: Pythonic, template: str) -> tuple[Form, ...]:
    if "<|tool_call_start|>" in template:
        return (Form("{name}(", ")", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>", "python"),)
    return (Form("{name}(", ")", "[", ", ", "]", "python"),)


def _gemma(markup: Gemma, template: str) -> tuple[Form, ...]:
    return (Form(f"{gemma.OPEN}call:{{name}}", gemma.CLOSE, notation="gemma"),)


def _qwen_xml(markup: QwenXml, template: str) -> tuple[Form, ...]:
    banned = ("</parameter>", "</function>", "\n<parameter=")
    tags = Tags("<parameter={key}>\n", "\n</parameter>\n", banned)
    marker = "seed:tool_call" if "<seed:tool_call>" in template else "tool_call"
    before = f"<{marker}>\n<function={{name}}>\n"
    return (Form(before, f"</function>\n</{marker}>", between="\n", notation=tags),)


def _glm(markup: Glm, template: str) -> tuple[Form, ...]:
    head = f"<arg_key>{{key}}</arg_key>{NEWLINE}<arg_value>"
    tags = Tags(head, f"</arg_value>{NEWLINE}", ("</arg_value>", "</tool_call>"))
    before = f"<tool_call>{{name}}{NEWLINE}"
    return (Form(before, "</tool_call>", between=NEWLINE, notation=tags),)


def _dsml(markup: Dsml, template: str) -> tuple[Form, ...]:
    tags = Tags(
        '<｜DSML｜parameter name="{key}" string="', "</｜DSML｜parameter>\n",
        ("</｜DSML｜parameter>", "</｜DSML｜ parameter>"), 'true">', 'false">',
    )  # fmt: skip
    section = "function_calls" if "function_calls" in template else "tool_calls"
    return (
        Form(
            '<｜DSML｜invoke name="{name}">\n', "</｜DSML｜invoke>\n",
            f"<｜DSML｜{section}>\n", "", f"</｜DSML｜{section}>", tags,
        ),
    )  # fmt: skip


def _xtml(markup: Xtml, template: str) -> tuple[Form, ...]:
    tags = Tags(
        '<|open|>argument key="{key}" type="', "<|close|>argument<|sep|>",
        ("<|close|>argument<|sep|>",), 'string"<|sep|>', '{type}"<|sep|>', is_html=True,
    )  # fmt: skip
    return (
        Form(
            '<|open|>call tool="{name}" index="{index}"<|sep|>', "<|close|>call<|sep|>",
            "<|open|>tools<|sep|>", "", "<|close|>tools<|sep|>", tags,
        ),
    )  # fmt: skip


_FORMS: dict[type[Markup], Callable[..., tuple[Form, ...]]] = {
    Hermes: _hermes, Headed: _headed, Mistral: _mistral, Listed: _listed, Harmony: _harmony,
    BareJson: _bare_json, Pythonic: _pythonic, Gemma: _gemma, QwenXml: _qwen_xml, Glm: _glm,
    Dsml: _dsml, Xtml: _xtml,
}  # fmt: skip
