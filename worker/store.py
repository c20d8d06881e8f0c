"""The model store: names under PIE_HOME/models, the default among them, and the Hugging Face cache.

Run as `python -m worker.store VERB … --json-lines`; each line of stdout is then one object:
`{"progress": {"what", "done", "total"}}`, and at the end `{"result": …}` or
`{"error": {"message", "hint"}}`. Without `--json-lines` the result alone goes to stdout. Exit
codes: 0; 2 the request is at fault; 3 the machine is; 130 interrupted. Imports no torch.

    models/NAME/            a model that the store owns (config.json, tokenizer.json, *.safetensors)
    models/NAME/pie.json    {"source"}, or {"source", "path"} when the model lies elsewhere
    models/.default         the default's name
    models/.adding-*        a model on its way in; never seen by readers, removed by the next `add`
"""

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worker.store_facts import Facts, StoreError, read_facts, read_json
from worker.store_sources import EMBEDDED, Progress, fetch, hub_cache, suggest_name

CARD = "pie.json"
DEFAULT = ".default"
STAGING = ".adding-"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Store:
    """The models of one PIE_HOME. Every change happens under one lock, by a rename."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "models"

    def names(self) -> list[str]:
        """The store's own names, sorted."""
        if not self.folder.is_dir():
            return []
        entries = (path for path in self.folder.iterdir() if path.is_dir())
        return sorted(path.name for path in entries if not path.name.startswith("."))

    def default(self) -> str | None:
        """The chosen name, or the first one when none was chosen."""
        names = self.names()
        try:
            chosen = (self.folder / DEFAULT).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            chosen = ""
        return chosen if chosen in names else (names[0] if names else None)

    def path(self, name: str) -> Path:
        """Where the model's files lie: in the store, or where its card points."""
        folder = self.folder / name
        card = read_json(folder / CARD) if (folder / CARD).is_file() else {}
        return Path(card["path"]) if "path" in card else folder

    def find(self, name: str) -> tuple[str, Path]:
        """(name, folder) of a model of the store or of the Hugging Face cache."""
        names = self.names()
        same = [known for known in names if known.lower() == name.lower()]
        if name in names or same:
            found = name if name in names else same[0]
            return found, self.path(found)
        cached = cached_models()
        if name in cached:
            return name, cached[name]
        known = ", ".join([*names, *cached]) or "none"
        raise StoreError(
            f"no model `{name}` in the store; there are: {known}",
            hint="`pie models add SOURCE` adds one",
        )

    def facts(self, name: str) -> tuple[str, Path, Facts]:
        """(name, folder, facts); StoreError when the model is unknown or damaged."""
        found, folder = self.find(name)
        if not folder.is_dir():
            raise StoreError(
                f"model `{found}` should lie at `{folder}`, but there is no such folder",
                hint=f"put it back, or `pie models remove {found}`",
            )
        return found, folder, read_facts(folder)

    def add(self, source: str, name: str | None, progress: Progress) -> str:
        """Adds a model and returns its name; the first one becomes the default."""
        name = self._free_name(source, name)
        with self._lock(progress):
            self._remove_leftovers()
            self._check_free(name)  # another `add` may have held the lock before
            staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.folder))
            try:
                folder = fetch(source, staging, progress)
                read_facts(folder)
                card = {"source": source} | ({} if folder == staging else {"path": str(folder)})
                (staging / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
                staging.chmod(0o755)
                _sync(staging)
                staging.rename(self.folder / name)
                _sync(self.folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            if not (self.folder / DEFAULT).exists():
                self._write_default(name)
        return name

    def resolve(self, name: str | None, progress: Progress) -> dict[str, Any]:
        """What the engine needs to load a model; an empty store gets the embedded one first."""
        if name is None and self.default() is None:
            try:
                self.add(EMBEDDED, None, progress)
            except NameTaken:
                pass  # by another process, while this one waited for the lock
        return self.show(name or self.default() or "")

    def show(self, name: str) -> dict[str, Any]:
        """All facts of one model."""
        found, folder, facts = self.facts(name)
        return {
            "name": found,
            "path": str(folder),
            **asdict(facts),
            "default": found == self.default(),
        }

    def list(self) -> list[dict[str, Any]]:
        """One row for each model; a damaged one has no facts, and says why in `error`."""
        default = self.default()
        stored = {name: self.path(name) for name in self.names()}
        cached = {
            name: path for name, path in cached_models().items() if path not in stored.values()
        }
        return [_row(name, path, name == default) for name, path in (stored | cached).items()]

    def remove(self, name: str) -> dict[str, Any]:
        """Forgets a model; its files are deleted only where the store owns them."""
        with self._lock(lambda *_: None):
            found, folder = self.find(name)
            entry = self.folder / found
            if not entry.is_dir():
                raise StoreError(
                    f"`{found}` lies in the Hugging Face cache, not in the store",
                    hint="`hf cache rm` deletes it there",
                )
            # Out of sight first: a deletion that is cut short leaves no half model.
            doomed = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.folder))
            entry.rename(doomed / found)
            shutil.rmtree(doomed)
            if self._chosen() == found:
                (self.folder / DEFAULT).unlink()
        return {"name": found, "path": str(folder), "deleted": folder == entry}

    def set_default(self, name: str) -> str:
        """Chooses the model that `pie run` takes."""
        if name not in self.names():
            found, _ = self.find(name)
            if found not in self.names():
                raise StoreError(
                    f"`{name}` is not in the store", hint=f"`pie models add {name}` adds it"
                )
            name = found
        self.show(name)  # a damaged one raises
        self._write_default(name)
        return name

    def _chosen(self) -> str | None:
        path = self.folder / DEFAULT
        return path.read_text(encoding="utf-8").strip() if path.exists() else None

    def _write_default(self, name: str) -> None:
        part = self.folder / f"{DEFAULT}.part"
        part.write_text(name + "\n", encoding="utf-8")
        part.replace(self.folder / DEFAULT)

    def _free_name(self, source: str, name: str | None) -> str:
        if name is not None and not NAME.fullmatch(name):
            raise StoreError(
                f"`{name}` cannot be a model's name",
                hint="letters, digits, `.`, `_` and `-`, beginning with a letter or digit",
            )
        name = name or suggest_name(source)
        self._check_free(name)
        return name

    def _check_free(self, name: str) -> None:
        if name.lower() in [known.lower() for known in self.names()]:
            raise NameTaken(
                f"there is already a model `{name}`",
                hint=f"give another with `--name`, or `pie models remove {name}` first",
            )

    def _remove_leftovers(self) -> None:
        """Staging folders of an `add` that was killed: whoever holds the lock may delete them."""
        for path in self.folder.glob(f"{STAGING}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _lock(self, progress: Progress) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another `pie` that changes the store", 0, None)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


class NameTaken(StoreError):
    """The store already has a model of that name."""


def home() -> Path:
    """PIE_HOME, or ~/.pie."""
    return Path(os.environ.get("PIE_HOME") or "~/.pie").expanduser()


def cached_models() -> dict[str, Path]:
    """Repository id -> newest snapshot, of the usable models in the Hugging Face cache."""
    if not hub_cache().is_dir():
        return {}
    from huggingface_hub import scan_cache_dir

    models = {}
    for repository in scan_cache_dir(hub_cache()).repos:
        revisions = sorted(repository.revisions, key=lambda revision: revision.last_modified)
        usable = [
            revision.snapshot_path
            for revision in revisions
            if (revision.snapshot_path / "config.json").is_file()
        ]
        if repository.repo_type == "model" and usable:
            models[repository.repo_id] = usable[-1]
    return dict(sorted(models.items()))


def _row(name: str, path: Path, default: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name}
    row |= dict.fromkeys(("architecture", "parameters", "dtype", "size"))
    try:
        facts = asdict(read_facts(path))
        row |= {key: facts[key] for key in ("architecture", "parameters", "dtype", "size")}
    except StoreError as error:
        row["error"] = str(error)
    return row | {"path": str(path), "default": default}


def _sync(folder: Path) -> None:
    """Makes the folder's files and names durable, so that a rename never shows empty ones."""
    for path in [*(path for path in folder.iterdir() if path.is_file()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    from worker.store_command import main

    raise SystemExit(main())
