"""`pie config`: where settings come from, and a file that is edited without losing anything."""

import json
import os

import pytest

from pie_cli import config
from pie_cli.__main__ import command
from pie_cli.config_verbs import edited
from pie_cli.usage import UsageError

NAME = "engine.keep_alive"


def show(capsys) -> dict[str, dict]:
    assert command(["config", "show", "--json"]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_flag_goes_before_the_environment_that_before_the_file(clean_environment, monkeypatch):
    assert config.setting(NAME) == config.Setting(config.KEYS[NAME], 300.0, "default")
    command(["config", "set", NAME, "7"])
    assert (config.setting(NAME).value, config.setting(NAME).source) == (7.0, "file")
    monkeypatch.setenv("PIE_KEEP_ALIVE", "8")
    assert (config.setting(NAME).value, config.setting(NAME).source) == (8.0, "environment")
    assert (config.setting(NAME, 9).value, config.setting(NAME, 9).source) == (9.0, "flag")


def test_show_says_who_set_what(clean_environment, capsys, monkeypatch):
    command(["config", "set", "run.model", "mine"])
    monkeypatch.setenv("PIE_SANDBOX", "full")
    rows = show(capsys)
    assert set(rows) == set(config.KEYS)
    assert (rows["run.model"]["value"], rows["run.model"]["source"]) == ("mine", "file")
    assert (rows["engine.sandbox"]["value"], rows["engine.sandbox"]["source"]) == (
        "full", "environment",
    )  # fmt: skip
    assert rows[NAME]["source"] == "default"


def test_set_and_unset_keep_comments_and_other_tables(clean_environment):
    before = '# mine\n[engine] # the engine\n# idle\nkeep_alive = 60 # s\n\n[run]\nmodel = "a"\n'
    config.path().write_text(before)
    assert command(["config", "set", "engine.sandbox", "full"]) == 0
    assert command(["config", "set", "run.client", "me"]) == 0
    text = config.path().read_text()
    assert text.replace('sandbox = "full"\n', "").replace('client = "me"\n', "") == before
    assert config.value("engine.sandbox") == "full" and config.value(NAME) == 60
    command(["config", "unset", "engine.sandbox"])
    command(["config", "unset", "run.client"])
    assert config.path().read_text() == before


def test_a_first_setting_makes_the_file_and_its_table(clean_environment):
    command(["config", "set", NAME, "0"])
    assert config.path().read_text() == "[engine]\nkeep_alive = 0\n"
    command(["config", "set", "run.files", "a b"])
    assert config.value("run.files") == os.path.abspath("a b")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (NAME, "soon", "`soon` is no number of seconds"),
        (NAME, "-1", "`-1` is no number of seconds"),
        (NAME, "nan", "`nan` is no number of seconds"),
        ("engine.sandbox", "none", "`none` is not one of auto, full"),
        ("run.client", "a b", "`a b` is no name"),
        ("engine.speed", "1", "no setting `engine.speed`"),
    ],
)
def test_what_cannot_be_set_is_exit_2(clean_environment, capsys, name, value, words):
    assert command(["config", "set", "--", name, value]) == 2
    assert words in capsys.readouterr().err
    assert not config.path().exists()


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_bad_value_in_the_environment_names_the_variable(monkeypatch, text):
    monkeypatch.setenv("PIE_KEEP_ALIVE", text)
    with pytest.raises(UsageError, match="PIE_KEEP_ALIVE"):
        config.value(NAME)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[engine\n", "is no TOML"),
        ("[engine]\nspeed = 1\n", "sets `engine.speed`, which is no setting"),
        ("speed = 1\n", "sets `speed`, which is no setting"),
        ('[engine]\nkeep_alive = "soon"\n', "`engine.keep_alive` in "),
        ("[engine]\nkeep_alive = true\n", "is no number of seconds"),
        ("[run]\nmodel = 3\n", "is no text"),
    ],
)
def test_a_bad_file_is_exit_2_and_names_the_place(clean_environment, capsys, text, words):
    config.path().write_text(text)
    assert command(["config", "show"]) == 2
    error = capsys.readouterr().err
    assert words in error and str(config.path()) in error


def test_a_bad_setting_can_be_removed_or_replaced(clean_environment):
    config.path().write_text("[engine]\nspeed = 1\nkeep_alive = -1\n")
    assert command(["config", "unset", "engine.speed"]) == 0
    assert command(["config", "set", NAME, "5"]) == 0
    assert config.path().read_text() == "[engine]\nkeep_alive = 5\n"


def test_a_file_in_another_form_is_not_damaged(clean_environment, capsys):
    config.path().write_text("engine = { keep_alive = 5 }\n")
    assert config.value(NAME) == 5
    assert command(["config", "set", NAME, "6"]) == 2
    assert "edit the file by hand" in capsys.readouterr().err
    assert config.path().read_text() == "engine = { keep_alive = 5 }\n"


def test_editing_a_text_twice_changes_it_once():
    once = edited("", NAME, "1")
    assert edited(once, NAME, "1") == once
    assert edited(edited(once, NAME, "2"), NAME, "1") == once


def test_a_model_that_the_store_lacks_is_kept_with_a_warning(clean_environment, capsys):
    (config.settings.home() / "models" / "there").mkdir(parents=True)
    for name, is_warned in (("there", False), ("absent", True)):
        assert command(["config", "set", "run.model", name]) == 0
        assert ("the store has no model `absent`" in capsys.readouterr().err) is is_warned
        assert config.value("run.model") == name


@pytest.mark.parametrize("verb", ["run", "serve"])
def test_a_refused_model_that_was_configured_comes_with_its_place(own_engine, verb):
    words = ["run", "inferlets/hello.py"] if verb == "run" else ["serve"]
    own_engine.pie("config", "set", "run.model", "absent")
    done = own_engine.pie(*words)
    place = f"`run.model` in `{own_engine.home}/config.toml`"
    assert done.returncode == 2 and "no model `absent` in the store" in done.stderr
    assert f"the name comes from {place}" in done.stderr
    assert "hint: `pie config unset run.model` takes the store's default; `pie models" in done.stderr
    own_engine.extra["PIE_MODEL"] = "other"
    done = own_engine.pie(*words)
    assert "the name comes from `PIE_MODEL`" in done.stderr
    assert "hint: without `PIE_MODEL` it is the store's default; `pie models" in done.stderr
    assert "the name comes from" not in own_engine.pie(*words, "--model", "typed").stderr
