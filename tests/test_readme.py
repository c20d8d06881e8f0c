"""The README is true: its tree is the repository's, and its inferlet is one that runs."""

import re

from inferlet import testing
from tests.readme_tree import ROOT, with_tree

README = (ROOT / "README.md").read_text()


def test_the_tree_is_the_repositorys():
    """When it is not: `python -m tests.readme_tree`."""
    assert README == with_tree(README)


def test_the_inferlet_runs_as_it_stands():
    source = re.search(r"## An inferlet\n\n```python\n(.*?)```", README, re.S).group(1)
    app: dict = {}
    exec(compile(source, "README.md", "exec"), app)
    assert isinstance(testing.run(app["main"], {"prompt": "Hello"})["text"], str)


def test_every_path_that_it_names_exists():
    for path in re.findall(r"`((?:inferlets|ipc|inferlet|tests|worker|pie_cli)/[\w./]+)`", README):
        assert (ROOT / path).exists(), path
