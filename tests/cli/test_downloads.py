"""Files of apps on an engine elsewhere, which may say anything: nothing outside the folder, no
more than was said, and no exception."""

import hashlib
from pathlib import Path

import pytest

from ipc import client as c
from pie_cli.downloads import Downloads

DATA = b"the file"


class Talk:
    """Downloads into a folder, and what they ask the engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "files"
        self.asked: list[c.ReadFile] = []
        self._downloads = Downloads(self.asked.append)
        self._downloads.sent(c.Run(1, "a.py", "", {}, "{}", {}, files_folder=str(self.folder)))

    def hear(self, message: c.FromHub) -> list[c.FromHub]:
        return self._downloads.received(message)

    def stored(self, process: str = "p-1", size: int = len(DATA), number: int = 1):
        self.hear(c.Launched(1, process, 0.0, "full"))
        digest = hashlib.sha256(DATA).hexdigest()
        return self.hear(c.Stored(process, 0.0, number, "/etc/passwd", size, digest))

    def found(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder.parent)) for path in self.folder.rglob("*"))


@pytest.fixture
def talk(tmp_path, monkeypatch) -> Talk:
    monkeypatch.setenv("PIE_HOME", str(tmp_path / "home"))
    return Talk(tmp_path)


def answered(talk: Talk, data: bytes, process: str = "p-1") -> list[c.FromHub]:
    return talk.hear(c.FileData(talk.asked[-1].request, process, data))


def test_a_file_comes_where_the_client_wants_it(talk: Talk):
    assert talk.stored() == []
    (stored,) = answered(talk, DATA)
    assert stored.path == str(talk.folder / "p-1-1") and not stored.error
    assert Path(stored.path).read_bytes() == DATA


@pytest.mark.parametrize(
    "process", ["../p", "a/b", "/p", "", ".", "..", "p\0", "p\n", "é", "x" * 300]
)
def test_what_is_no_process_stores_nothing(talk: Talk, process):
    (stored,) = talk.stored(process)
    assert stored.error and not talk.asked and talk.found() == []
    assert list(talk.folder.parent.rglob("*part*")) == []


@pytest.mark.parametrize("size", [-1, c.MAX_FILE + 1, 1 << 62])
def test_a_size_that_no_file_has_is_not_asked_for(talk: Talk, size):
    (stored,) = talk.stored(size=size)
    assert "bytes" in stored.error and not talk.asked and talk.found() == []


@pytest.mark.parametrize("data", [b"", b"less", DATA + b"more", bytes(1 << 20)])
def test_data_of_another_size_is_no_file(talk: Talk, data):
    talk.stored()
    (stored,) = answered(talk, data)
    assert stored.error and talk.found() == []


@pytest.mark.parametrize("number", [-1, 0, 1 << 62])
def test_any_number_is_a_name_in_the_folder(talk: Talk, number):
    talk.stored(number=number)
    (stored,) = answered(talk, DATA)
    assert Path(stored.path).parent == talk.folder


def test_an_answer_that_names_another_process_is_still_the_files(talk: Talk):
    talk.stored()
    (stored,) = answered(talk, DATA, process="other")
    assert stored.process == "p-1" and not stored.error


def test_an_answer_that_nobody_waits_for_is_dropped(talk: Talk):
    assert talk.hear(c.FileData(77, "p-1", DATA)) == []
    talk.stored()
    answered(talk, DATA)
    assert answered(talk, DATA) == [] and talk.found() == ["files/p-1-1"]
