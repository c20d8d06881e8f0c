"""Folders and the environment's values."""

import os
import stat
from pathlib import Path

import pytest

from pie_cli import settings
from pie_cli.usage import UsageError


@pytest.mark.parametrize("length", [10, 60, 90, 200])
@pytest.mark.parametrize("model", ["m", "x" * 80, "owner/name with spaces"])
def test_socket_paths_fit_whatever_the_home_and_the_model(monkeypatch, length, model):
    monkeypatch.setenv("PIE_HOME", "/" + "h" * length)
    folder = settings.engine_folder(model)
    for address in (folder.hub_address, folder.worker_address):
        assert len(address.removeprefix("ipc://")) <= 107


def test_models_and_homes_have_engine_folders_of_their_own(monkeypatch):
    folders = set()
    for home in ("/a", "/b", "/" + "h" * 200, "/" + "i" * 200):
        monkeypatch.setenv("PIE_HOME", home)
        for model in ("m", "n", "o/m", "o-m", "x" * 80, "x" * 81):
            folders.add(settings.engine_folder(model).path)
    assert len(folders) == 24


def test_the_runtime_folder_is_used_where_there_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PIE_HOME", "/a")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    assert settings.run_folder().parent == Path("/tmp/pie")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no/such/folder")
    assert settings.run_folder() == Path("/a/run")


def test_the_engines_folder_is_for_its_user_alone(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    settings.make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(UsageError, match="does not belong to you"):
        settings.make_private(link)


def test_only_so_many_logs_of_a_model_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PIE_HOME", str(tmp_path))
    monkeypatch.setattr(settings, "KEPT_LOGS", 3)
    for number in range(5):
        path = settings.new_log("m")
        (path.parent / f"engine-m-2000010{number}-0.log").touch()
    kept = sorted(os.listdir(tmp_path / "logs"))
    assert kept == [f"engine-m-2000010{number}-0.log" for number in (2, 3, 4)]
