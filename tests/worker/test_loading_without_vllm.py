"""What `worker.model.load` does around vLLM, shown without importing it."""

import os

import pytest

from worker.model import load, vllm_environment


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is no model folder: it has no config\.json"):
        load(str(tmp_path), name="nothing")


def test_what_libraries_write_to_stdout_goes_to_stderr(capfd):
    with vllm_environment.stdout_on_stderr():
        os.write(1, b"meanwhile\n")
    os.write(1, b"afterwards\n")
    assert capfd.readouterr() == ("afterwards\n", "meanwhile\n")


def test_settings_of_the_user_are_kept(monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.delenv("VLLM_CPU_ATTN_SPLIT_KV", raising=False)
    vllm_environment.prepare()
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_CPU_ATTN_SPLIT_KV"] == "0"
