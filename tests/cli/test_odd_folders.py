"""Files of an engine that are something else: exit 3, and which path it is."""

import pytest

HELLO = "inferlets/hello.py"


@pytest.mark.parametrize("name", ["lock", "start.lock", "engine.json", "hub.sock"])
def test_a_folder_where_a_file_belongs_is_exit_3_and_named(own_engine, name):
    path = own_engine.home / "run" / "fake" / name
    path.mkdir(parents=True)
    done = own_engine.pie("run", HELLO)
    assert done.returncode == 3
    assert f"`{path}`: Is a directory" in done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr
    path.rmdir()
    assert own_engine.pie("run", HELLO).returncode == 0


def test_settings_that_are_a_folder_are_exit_2_and_named(own_engine):
    path = own_engine.home / "config.toml"
    path.mkdir()
    done = own_engine.pie("run", HELLO)
    assert done.returncode == 2
    assert f"cannot read `{path}`: Is a directory" in done.stderr
