"""pie models: what is printed where, and the exit codes. No torch, no network."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pie_cli import models

NAME = "tiny"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(models.app, arguments)


def test_an_engine_elsewhere_that_the_settings_choose_is_said_to_have_other_models(monkeypatch):
    monkeypatch.setenv("PIE_ENGINE", "tcp://127.0.0.1:1")
    done = invoke("show", "nope")
    assert "`pie models` is about this machine's models; tcp://127.0.0.1:1 (`PIE_ENGINE`)" in done.stderr
    assert "no model `nope`" in done.stderr


def write_model(folder: Path) -> Path:
    """The smallest folder that the store takes for a model: one tensor of six numbers."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float32",
        "max_position_embeddings": 64,
        "num_hidden_layers": 1,
        "vocab_size": 3,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("<|im_start|>")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(24)
    (folder / "model.safetensors").write_bytes(data)
    return folder


@pytest.fixture(autouse=True)
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-hub"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model `tiny` in the store, used where it lies."""
    folder = write_model(tmp_path / NAME)
    assert invoke("add", str(folder)).exit_code == 0
    return folder


def test_an_empty_store_is_an_empty_array() -> None:
    result = invoke("list", "--json")
    assert (result.exit_code, result.stdout) == (0, "[]\n")
    assert "`pie models add SOURCE`" in invoke("list").stdout


def test_list_gives_the_seven_keys(model: Path) -> None:
    (row,) = json.loads(invoke("list", "--json").stdout)
    assert list(row) == ["name", "architecture", "parameters", "dtype", "size", "path", "default"]
    assert row | {"size": 0} == {
        "name": NAME,
        "architecture": "LlamaForCausalLM",
        "parameters": 6,
        "dtype": "float32",
        "size": 0,
        "path": str(model),
        "default": True,
    }


def test_list_marks_the_default_and_a_damaged_model(model: Path, tmp_path: Path) -> None:
    second = write_model(tmp_path / "second")
    invoke("add", str(second))
    (second / "config.json").unlink()
    lines = invoke("list").stdout.splitlines()
    assert lines[1].split()[:2] == ["second", "damaged"]
    assert lines[2].split()[:2] == ["*", NAME]
    assert f"second: `{second}` has no `config.json`" in lines


def test_add_says_what_it_added_on_stderr(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "Some Model")
    result = invoke("add", str(folder), "--name", "mine")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("added mine: LlamaForCausalLM, float32, ")


def test_show_gives_the_facts(model: Path) -> None:
    facts = json.loads(invoke("show", NAME, "--json").stdout)
    expected = {
        "context": 64,
        "layers": 1,
        "vocabulary": 3,
        "chat_family": "chatml",
        "outputs": ["logits", "hidden"],
        "switches": [],
    }
    assert expected.items() <= facts.items()
    shown = invoke("show", NAME).stdout
    assert "outputs       logits, hidden\n" in shown
    assert "switches      -\n" in shown


@pytest.mark.parametrize("verb", [("show",), ("remove", "-y"), ("default",)])
@pytest.mark.usefixtures("model")
def test_an_unknown_model_is_exit_2_and_the_known_ones(verb: tuple[str, ...]) -> None:
    result = invoke(*verb, "other")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: no model `other` in the store; there are: tiny" in result.stderr
    assert "hint: `pie models add SOURCE` adds one" in result.stderr


@pytest.mark.parametrize("source", ["/nowhere", "--name-like"])
def test_a_bad_source_is_exit_2(source: str) -> None:
    result = invoke("add", "--", source)
    assert result.exit_code == 2
    assert f"error: no model at `{source}`" in result.stderr


def test_a_hub_repository_is_exit_3_when_offline() -> None:
    result = invoke("add", "some/model")
    assert result.exit_code == 3
    assert "the hub cannot be reached" in result.stderr


def test_remove_without_a_terminal_needs_the_option(model: Path) -> None:
    result = invoke("remove", NAME)
    assert result.exit_code == 2
    assert "`-y` removes without asking" in result.stderr
    assert invoke("remove", NAME, "-y").exit_code == 0
    assert json.loads(invoke("list", "--json").stdout) == []
    assert (model / "model.safetensors").exists()


@pytest.mark.parametrize(("answer", "left"), [("n", [NAME]), ("y", [])])
@pytest.mark.usefixtures("model")
def test_remove_asks_on_a_terminal(answer: str, left: list[str]) -> None:
    ours, theirs = pty.openpty()
    code = "import sys; from pie_cli.models import app; app(prog_name='pie models')"
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-c", code, "remove", NAME],
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert f"Remove {NAME} (" in done.stderr
    assert done.stdout == ""
    assert [row["name"] for row in json.loads(invoke("list", "--json").stdout)] == left


def test_resolve_is_for_the_other_commands(model: Path) -> None:
    assert models.resolve()["path"] == models.resolve(NAME)["path"] == str(model)
    with pytest.raises(models.StoreFailure, match="no model `other`") as caught:
        models.resolve("other")
    assert caught.value.exit_code == 2
