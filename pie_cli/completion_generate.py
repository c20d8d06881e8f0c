"""Writes `completion_words.py` from the command tree: `python -m pie_cli.completion_generate`.

A test compares the file with what this would write.
"""

from enum import Enum
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("completion_words.py")
HEAD = '''"""Verbs, their arguments and options, and what values are. Generated from the command tree.

`python -m pie_cli.completion_generate` writes this file. A kind is `files`, `folders`, the name of
a source in `completion.py`, or the words themselves; "" takes anything, None is a flag.
"""

'''
#: What values are, by the metavar or name of a parameter.
KINDS = {
    "ARGS…": "files",
    "APP.py": "files", "@FILE": "files", "NAME=PATH": "files", "FILE": "files", "PATH": "files",
    "FILE.png": "files", "SOURCE": "files", "DIR": "folders", "ID": "processes",
    "ID…": "processes", "SETTING": "settings", "KEY=N,…": "limits",
}  # fmt: skip
#: Where a metavar says too little: (verb, parameter) -> kind.
OWN = {("run", "name"): "", ("completion", "shell"): "bash zsh fish", ("new", "name"): "", ("models add", "name"): "", ("key new", "name"): "", ("key remove", "name"): "keys"}
NAMES_OF_MODELS = {"model", "name"}


def text() -> str:
    """The whole module."""
    lines = ["VERBS: dict[str, tuple[list[str], dict[str, str | None]]] = {"]
    for verb, (arguments, options) in sorted(table().items()):
        lines += [f"    {quoted(verb)}: (", f"        {quoted(arguments)},", "        {"]
        lines += [f"            {quoted(name)}: {quoted(kind)}," for name, kind in options.items()]
        lines += ["        },", "    ),"]
    return HEAD + "\n".join([*lines, "}"]) + "\n"


def quoted(value: Any) -> str:
    return repr(value).replace("'", '"')


def table() -> dict[str, tuple[list[str], dict[str, str | None]]]:
    """Verb -> (kinds of its arguments, option -> kind of its value)."""
    import typer

    from pie_cli.app import app

    found: dict[str, tuple[list[str], dict[str, str | None]]] = {}

    def visit(verb: str, command: Any) -> None:
        arguments: list[str] = []
        options: dict[str, str | None] = {}
        for parameter in command.params:
            kind = kind_of(verb, parameter)
            if parameter.param_type_name == "argument":
                arguments.append(kind)
                continue
            is_flag = parameter.is_flag
            options |= {name: None if is_flag else kind for name in parameter.opts}
        options |= {"--help": None}
        verbs = getattr(command, "commands", {})
        if verbs:
            arguments = [" ".join(verbs)]
        found[verb] = (arguments, dict(sorted(options.items())))
        for name, inner in verbs.items():
            visit(f"{verb} {name}".strip(), inner)

    visit("", typer.main.get_command(app))
    return found


def kind_of(verb: str, parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " ".join(choice.value for choice in annotation)
    if (verb, parameter.name) in OWN:
        return OWN[verb, parameter.name]
    for word in (*(parameter.metavar or "").split("|"), parameter.name):
        if word in KINDS:
            return KINDS[word]
    return "models" if parameter.name in NAMES_OF_MODELS else ""


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
