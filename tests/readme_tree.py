"""Writes the README's file tree from the first line of every module: `python -m tests.readme_tree`."""

import ast
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("ipc", "inferlet", "worker", "pie_cli", "inferlets")
BEGIN, END = "<!-- tree -->\n", "<!-- end of tree -->\n"
WIDTH = 90  # of a comment


def first_line(path: Path) -> str:
    """The first sentence of a module's docstring, shortened."""
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".")
    return textwrap.shorten(sentence, WIDTH, placeholder=" …")


def tree() -> str:
    """The tree between the markers, fenced."""
    lines = []
    for folder in FOLDERS:
        lines.append(f"{folder}/")
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT / folder).as_posix()
            comment = first_line(path)
            if path.name != "__init__.py" or comment:
                lines.append(f"  {name:<34} {comment}".rstrip())
    lines.append(f"{'tests/':<36} the same folders; bench/ compares, golden/ keeps bytes")
    return "```\n" + "\n".join(lines) + "\n```\n"


def with_tree(readme: str) -> str:
    """The README with its tree made anew."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + tree() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_tree(path.read_text()))
