"""Verbs, their arguments and options, and what values are. Generated from the command tree.

`python -m pie_cli.completion_generate` writes this file. A kind is `files`, `folders`, the name of
a source in `completion.py`, or the words themselves; "" takes anything, None is a flag.
"""

VERBS: dict[str, tuple[list[str], dict[str, str | None]]] = {
    "": (
        ["run serve ps attach send logs trace kill stop check inspect new python bench doctor completion version models key config"],
        {
            "--engine": "",
            "--help": None,
            "--install-completion": None,
            "--key": "files",
            "--version": None,
        },
    ),
    "attach": (
        ["processes"],
        {
            "--client": "",
            "--events": None,
            "--help": None,
            "--json": None,
            "--no-past": None,
            "--no-stdin": None,
            "--raw": None,
            "--stream": None,
        },
    ),
    "bench": (
        [],
        {
            "--against": "vllm",
            "--full": None,
            "--help": None,
            "--json": None,
            "--model": "models",
            "--plot": "files",
            "--rounds": "",
        },
    ),
    "check": (
        ["files"],
        {
            "--file": "files",
            "--help": None,
            "--input": "files",
            "--json": None,
        },
    ),
    "completion": (
        ["bash zsh fish"],
        {
            "--help": None,
        },
    ),
    "config": (
        ["show set unset"],
        {
            "--help": None,
        },
    ),
    "config set": (
        ["settings", ""],
        {
            "--help": None,
        },
    ),
    "config show": (
        ["settings"],
        {
            "--help": None,
            "--json": None,
        },
    ),
    "config unset": (
        ["settings"],
        {
            "--help": None,
        },
    ),
    "doctor": (
        [],
        {
            "--help": None,
            "--json": None,
        },
    ),
    "inspect": (
        ["files"],
        {
            "--dot": None,
            "--file": "files",
            "--help": None,
            "--input": "files",
            "--json": None,
        },
    ),
    "key": (
        ["new list remove"],
        {
            "--help": None,
        },
    ),
    "key list": (
        [],
        {
            "--help": None,
            "--json": None,
        },
    ),
    "key new": (
        [""],
        {
            "--help": None,
            "-o": "files",
        },
    ),
    "key remove": (
        ["keys"],
        {
            "--help": None,
        },
    ),
    "kill": (
        ["processes"],
        {
            "--help": None,
        },
    ),
    "logs": (
        ["processes"],
        {
            "--follow": None,
            "--help": None,
            "--json": None,
            "-f": None,
        },
    ),
    "models": (
        ["list add show remove default"],
        {
            "--help": None,
        },
    ),
    "models add": (
        ["files"],
        {
            "--help": None,
            "--name": "",
        },
    ),
    "models default": (
        ["models"],
        {
            "--help": None,
        },
    ),
    "models list": (
        [],
        {
            "--help": None,
            "--json": None,
        },
    ),
    "models remove": (
        ["models"],
        {
            "--help": None,
            "--yes": None,
            "-y": None,
        },
    ),
    "models show": (
        ["models"],
        {
            "--help": None,
            "--json": None,
        },
    ),
    "new": (
        [""],
        {
            "--help": None,
        },
    ),
    "ps": (
        [],
        {
            "--help": None,
            "--json": None,
            "--watch": None,
            "--wide": None,
        },
    ),
    "python": (
        ["files"],
        {
            "--help": None,
        },
    ),
    "run": (
        ["files"],
        {
            "--about": None,
            "--client": "",
            "--detach": None,
            "--engine": "",
            "--events": None,
            "--file": "files",
            "--help": None,
            "--input": "files",
            "--json": None,
            "--keep-alive": "",
            "--key": "files",
            "--limit": "limits",
            "--model": "models",
            "--name": "",
            "--no-stdin": None,
            "--priority": "",
            "--raw": None,
            "--salt": "",
            "--stream": None,
            "--timeout": "",
            "--watch": None,
            "-n": "",
            "-o": "folders",
        },
    ),
    "send": (
        ["processes", ""],
        {
            "--client": "",
            "--close": None,
            "--file": "files",
            "--help": None,
        },
    ),
    "serve": (
        [],
        {
            "--help": None,
            "--limit": "limits",
            "--listen": "",
            "--metrics": "",
            "--model": "models",
            "--sandbox": "auto full",
            "--unsafe-no-sandbox": None,
        },
    ),
    "stop": (
        [],
        {
            "--help": None,
        },
    ),
    "trace": (
        ["processes"],
        {
            "--help": None,
            "-o": "files",
        },
    ),
    "version": (
        [],
        {
            "--help": None,
            "--json": None,
        },
    ),
}
