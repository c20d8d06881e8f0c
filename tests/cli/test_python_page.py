"""The page about the Python client: its blocks run, in order, as they stand."""

import re

from tests.cli.conftest import ROOT

PAGE = ROOT / "docs/python-api.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_every_block_of_the_page_runs(engine, monkeypatch):
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 7
    namespace: dict = {"__name__": "page"}
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), namespace)  # noqa: S102


def test_the_page_names_every_error_and_every_argument_of_launch():
    import inspect

    from pie_cli import client

    text = PAGE.read_text(encoding="utf-8")
    errors = {name for name in client.__all__ if name.endswith(("Error", "Request", "Full"))}
    arguments = set(inspect.signature(client.Client.launch).parameters) - {"self", "app"}
    assert [name for name in errors | arguments if f"`{name}`" not in text] == []
