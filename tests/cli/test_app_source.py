"""Which files are sent along with an app."""

import pytest

from pie_cli.app_source import docstring, read_app, read_modules
from pie_cli.usage import UsageError


def write(folder, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def modules(folder, source: str) -> list[str]:
    return list(read_modules(str(folder / "app.py"), source))


def test_only_what_the_imports_name_is_read(tmp_path):
    write(tmp_path, a="import b", b="", c="", json="")
    assert modules(tmp_path, "import a, os\nfrom numpy import c") == ["a", "b"]


def test_modules_beside_a_link_and_beside_what_it_points_to_are_found(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    write(tmp_path, a="", both="link")
    write(there, app="", b="", both="there")
    (tmp_path / "app.py").symlink_to(there / "app.py")
    found = read_modules(str(tmp_path / "app.py"), "import a, b, both")
    assert found == {"a": "", "b": "", "both": "link"}


def test_imports_inside_functions_and_cycles_count(tmp_path):
    write(tmp_path, a="import b", b="def f():\n  import a")
    assert modules(tmp_path, "def main(input):\n  import a") == ["a", "b"]


def test_a_package_is_read_by_what_is_named_of_it(tmp_path):
    (tmp_path / "p").mkdir()
    for name, text in {"__init__": "", "m": "from . import n", "n": "", "o": ""}.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert modules(tmp_path, "from p import m") == ["p", "p.m", "p.n"]
    assert modules(tmp_path, "import p.o") == ["p", "p.o"]


def test_source_that_does_not_parse_names_nothing(tmp_path):
    write(tmp_path, a="")
    assert modules(tmp_path, "import a\ndef main(:") == []


def test_names_do_not_lead_out_of_the_folder(tmp_path):
    write(tmp_path, secret="x = 1")
    (tmp_path / "apps").mkdir()
    source = "from .. import secret\nfrom ..secret import x\nimport secret"
    assert modules(tmp_path / "apps", source) == []


def test_a_missing_app_and_a_folder_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="No inferlet at"):
        read_app(str(tmp_path / "nope.py"))
    with pytest.raises(UsageError, match="is a folder"):
        read_app(str(tmp_path))


def test_the_docstring_is_the_apps_description():
    assert docstring('"""What it does.\n\n    more\n"""', "app.py") == "What it does.\n\nmore"
    assert docstring("x = 1", "app.py") == ""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("nope.py", None), ("files.py", None), ("chta.py", "chat.py"), ("chat", "chat.py"),
        ("inferlet/np1.py", "inferlets/np1.py"), ("helo.py", "inferlets/hello.py"),
    ],
)  # fmt: skip
def test_a_missing_app_gets_a_near_name_alone(tmp_path, monkeypatch, typed, offered):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inferlets").mkdir()
    (tmp_path / "inferlet").mkdir()
    for name in ("np1.py", "sh.py", "chat.py", "inferlets/hello.py", "inferlets/np1.py"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as caught:
        read_app(typed)
    found = caught.value.hint.partition("did you mean `")[2].partition("`")[0]
    assert found == (offered or "")
