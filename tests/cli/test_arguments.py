"""What was typed, as the input of a launch."""

import json

import pytest

from pie_cli import arguments
from pie_cli.arguments import parse_words, read_files, read_input
from pie_cli.run_options import parse
from pie_cli.usage import UsageError


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--max-tokens 5 --flag -k v rest", {"max_tokens": 5, "flag": True, "k": "v", "_": ["rest"]}),
        ("", {}),
        ("--a -1 --b -.5e3 --c +2", {"a": -1, "b": -500.0, "c": 2}),
        ("--a -b", {"a": True, "b": True}),
        ("--a=-b --c= --d=x=y", {"a": "-b", "c": "", "d": "x=y"}),
        ("--k 1 --k 2", {"k": 2}),
        ("--on true --off false --none null", {"on": True, "off": False, "none": "null"}),
        ("--inf 1e999 --nan nan --hex 0x10 --version 1.2.3",
         {"inf": "1e999", "nan": "nan", "hex": "0x10", "version": "1.2.3"}),
        ('--list [1,"a"] --object {"a":{}}', {"list": [1, "a"], "object": {"a": {}}}),
        ("1 two -", {"_": [1, "two", "-"]}),
    ],
)  # fmt: skip
def test_words_become_an_object(words, value):
    parsed = parse_words(words.split())
    assert parsed == value
    assert json.dumps(parsed) == json.dumps(value), "types too: 1 is not 1.0 or True"


@pytest.mark.parametrize("words", ["--k {broken", "--k [NaN]", "--k=[1,]", "--=x", "[1"])
def test_malformed_words_are_usage_errors(words):
    with pytest.raises(UsageError):
        parse_words(words.split())


def test_the_input_is_an_object_from_text_or_a_file(tmp_path):
    file = tmp_path / "input.json"
    file.write_text('\ufeff{"a": [1, null]}', encoding="utf-8")
    assert read_input(f"@{file}") == {"a": [1, None]}
    assert read_input('{"a": 1.5}') == {"a": 1.5}
    assert read_input(None) == {}


@pytest.mark.parametrize(
    "text", ["[1]", "1", "null", "{", "", "@/no/such", '{"a": Infinity}', "@/"]
)
def test_other_input_is_refused(text):
    with pytest.raises(UsageError):
        read_input(text)


def test_files_are_read_whole_and_limited_together(tmp_path, monkeypatch):
    for name, size in (("a", 6), ("b", 5)):
        (tmp_path / name).write_bytes(bytes(size))
    pairs = [f"x={tmp_path / 'a'}", f"y={tmp_path / 'b'}"]
    assert read_files(pairs) == {"x": bytes(6), "y": bytes(5)}
    monkeypatch.setattr(arguments, "MAX_FILES", 10)
    with pytest.raises(UsageError, match="too large: 5 bytes, where 4 are left"):
        read_files(pairs)


def test_a_device_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(arguments, "MAX_FILES", 1 << 20)
    with pytest.raises(UsageError, match="`--file x=/dev/zero` is too large"):
        read_files(["x=/dev/zero"])


@pytest.mark.parametrize("pair", ["doc", "=x", "doc=", "doc=/no/such", "doc=/"])
def test_a_file_that_cannot_be_attached_is_refused(pair):
    with pytest.raises(UsageError):
        read_files([pair])


def test_a_name_is_attached_once(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(UsageError, match="twice"):
        read_files([f"x={tmp_path / 'a'}"] * 2)


def test_options_may_stand_on_both_sides_of_the_app():
    options = parse(["--json", "app.py", "-n3", "--file=a=b=c", "--", "--json", "--help"])
    assert (options.app, options.one_line, options.copies) == ("app.py", True, 3)
    assert options.files == ["a=b=c"]
    assert options.words == ["--json", "--help"]


@pytest.mark.parametrize(
    "words",
    ["", "app.py other", "app.py --unknown", "app.py -n x", "app.py --timeout", "app.py --js"],
)
def test_options_that_are_not_there_are_refused(words):
    with pytest.raises(UsageError):
        parse(words.split())
