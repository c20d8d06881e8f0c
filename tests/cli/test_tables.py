"""Tables and prose on terminals of any width."""

import pytest

from pie_cli.output import table
from pie_cli.tables import Narrow, fitted, wrapped

HEAD = ["id", "app", "state", "model"]
ROWS = [HEAD, ["a-very-long-name-of-a-process", "some/where/app.py", "running", "a-model"]]
NARROW = Narrow({"app": 8}, ("model", "state"))


def test_a_pipe_gets_all(capsys):
    assert fitted(ROWS, None, NARROW) == (table(ROWS), [])


@pytest.mark.parametrize(
    ("room", "heads", "app"),
    [
        (100, HEAD, "some/where/app.py"), (60, HEAD, "some/wher…"), (55, HEAD[:3], "some/where/app…"),
        (46, ["id", "app"], "some/where/app…"), (41, ["id", "app"], "some/whe…"), (20, ["id", "app"], "some/wh…"),
    ],
)  # fmt: skip
def test_columns_are_shortened_before_any_is_left_out_and_the_first_is_whole(room, heads, app):
    text, missing = fitted(ROWS, room, NARROW)
    lines = text.splitlines()
    assert lines[0].split() == heads and set(missing) == set(HEAD) - set(heads)
    assert lines[1].split()[0] == ROWS[1][0]
    assert room < 41 or max(map(len, lines)) <= room


@pytest.mark.parametrize("room", [40, 60, 200])
def test_prose_goes_on_below_between_words(room):
    words = "each of these words is whole on whatever terminal it is shown"
    text, missing = fitted([["name", "what"], ["x", words]], room, Narrow(prose=20))
    assert not missing and max(map(len, text.splitlines())) <= room
    assert " ".join(text.split()) == f"name what x {words}"


def test_a_long_line_is_broken_between_words_and_what_has_no_space_is_whole():
    path = "/a/very/long/path-that-has-hyphens/and/is/to/be/copied"
    text = wrapped(f"the file is {path} and no other", 30, 4)
    assert path in text and all(line.startswith("    ") for line in text.split("\n")[1:])
    assert wrapped(text, None, 4) == text
