"""Files of and for one process on a disk that has no room, and their bounds."""

import errno
import hashlib
import os
from types import SimpleNamespace

import pytest

from ipc import client as c
from ipc import messages as m
from pie_cli.engine import file_inbox, file_store
from pie_cli.engine.file_inbox import FileInbox
from pie_cli.engine.file_store import FileStore
from pie_cli.engine.requests import Requests


def whole(data: bytes) -> m.SendFilePart:
    return m.SendFilePart(len(data), data, hashlib.sha256(data).digest())


def part(data: bytes, request: int = 1) -> c.FilePart:
    return c.FilePart(request, "p", len(data), data, hashlib.sha256(data).digest())


class FullDisk:
    """A file on it."""

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_of_an_app_on_a_full_disk_is_said_to_be_lost_and_the_next_is_stored(
    tmp_path, monkeypatch
):
    store = FileStore(str(tmp_path), "p")
    with monkeypatch.context() as patch:
        patch.setattr(
            "builtins.open", lambda descriptor, mode: (os.close(descriptor), FullDisk())[1]
        )
        stored = store.put(whole(b"abc"), "p", 1.0)
    assert "No space left" in stored.error and stored.number == 1
    assert not list(tmp_path.iterdir())
    stored = store.put(whole(b"abc"), "p", 2.0)
    assert (stored.error, stored.path) == ("", str(tmp_path / "p-2"))
    assert (tmp_path / "p-2").read_bytes() == b"abc"


@pytest.fixture(params=["unnamed", "named"])
def unnamed_or_not(request, monkeypatch) -> str:
    """File systems that know files without a name, and those that do not."""
    if request.param == "named":
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # to write a folder: EISDIR
    return request.param


def test_half_a_file_has_no_name_where_that_can_be(tmp_path, unnamed_or_not):
    store = FileStore(str(tmp_path), "p")
    (tmp_path / "p-1").write_text("older")
    store.put(m.SendFilePart(3, b"ab"), "p", 1.0)
    parts = {"p-1"} | ({".p-1.part"} if unnamed_or_not == "named" else set())
    assert {path.name for path in tmp_path.iterdir()} == parts
    assert store.put(m.SendFilePart(3, b"c", whole(b"abc").sha256), "p", 1.0).error == ""
    store.put(m.SendFilePart(3, b"ab"), "p", 1.0)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["p-1"]
    assert (tmp_path / "p-1").read_bytes() == b"abc"


def test_a_file_never_goes_through_a_link_that_waits_for_it(tmp_path, unnamed_or_not):
    (tmp_path / "victim").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".p-1.part").symlink_to(tmp_path / "victim")
    (out / "p-1").symlink_to(tmp_path / "victim")
    assert not FileStore(str(out), "p").put(whole(b"abc"), "p", 1.0).error
    assert (tmp_path / "victim").read_text() == "mine"
    assert (out / "p-1").read_bytes() == b"abc" and not (out / "p-1").is_symlink()


def test_a_process_may_store_so_much_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(file_store, "MAX_FILES", 2)
    monkeypatch.setattr(file_store, "MAX_BYTES", 10)
    store = FileStore(str(tmp_path), "p")
    for _ in range(2):
        store.put(whole(b""), "p", 1.0)
    assert not store.is_beyond
    store.put(whole(b""), "p", 1.0)
    assert store.is_beyond
    store = FileStore(str(tmp_path), "q")
    store.put(whole(b"x" * 11), "q", 1.0)
    assert store.is_beyond


def test_a_file_for_a_process_on_a_full_disk_is_answered_and_the_rest_ignored(
    tmp_path, monkeypatch
):
    inbox = FileInbox(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(file_inbox.tempfile, "SpooledTemporaryFile", lambda *_, **__: FullDiskInbox())
        first = c.FilePart(1, "p", 6, b"abc")
        outcome, reason = inbox.put(("me", 1), first)
        assert outcome == c.FAILED and "No space left" in reason
        assert inbox.put(("me", 1), c.FilePart(1, "p", 6, b"def", b"x" * 32)) is None
    assert inbox.put(("me", 1), part(b"abcdef")) == (c.ACCEPTED, "")


class FullDiskInbox(FullDisk):
    def close(self) -> None:
        pass


def test_files_that_wait_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(file_inbox, "MAX_WAITING", 2)
    monkeypatch.setattr(file_inbox, "MAX_BYTES", 10)
    inbox = FileInbox(str(tmp_path))
    outcomes = [inbox.put(("me", i), part(b"x" * 5, i))[0] for i in range(3)]
    assert outcomes == [c.ACCEPTED, c.ACCEPTED, c.FULL]
    inbox.ask()
    assert list(inbox.next_parts()) == [m.FilePart(5, b"x" * 5)]
    assert inbox.put(("me", 4), part(b"x" * 6, 4))[0] == c.FULL, "by bytes"
    assert inbox.put(("me", 5), part(b"x" * 5, 5))[0] == c.ACCEPTED


def test_parts_of_two_senders_do_not_mix(tmp_path):
    inbox = FileInbox(str(tmp_path))
    data = {"a": b"a" * 6, "b": b"b" * 6}
    for piece in (slice(0, 3), slice(3, 6)):
        for who, all_of_it in data.items():
            digest = hashlib.sha256(all_of_it).digest() if piece.start else b""
            inbox.put((who, 1), c.FilePart(1, "p", 6, all_of_it[piece], digest))
    inbox.ask()
    inbox.ask()
    assert [given.data for given in inbox.next_parts()] == list(data.values())


def test_a_sender_that_leaves_takes_its_incomplete_file_along(tmp_path):
    inbox = FileInbox(str(tmp_path))
    inbox.put(("a", 1), c.FilePart(1, "p", 6, b"abc"))
    inbox.forget_all_of("a")
    inbox.end()
    assert list(inbox.next_parts()) == [m.FilesClosed()]
    assert inbox.put(("b", 1), part(b"late"))[0] == c.CLOSED


@pytest.mark.parametrize("size", [-1, c.MAX_FILE + 1])
def test_a_file_of_an_impossible_size_is_damaged(tmp_path, size):
    inbox = FileInbox(str(tmp_path))
    assert inbox.put(("a", 1), c.FilePart(1, "p", size, b""))[0] == c.DAMAGED


def test_files_that_are_refused_and_never_end_fill_no_memory(tmp_path):
    inbox = FileInbox(str(tmp_path))
    answers: list[c.Answered] = []
    nobody = SimpleNamespace(by_id={})
    requests = Requests(nobody, None, lambda _, answer: answers.append(answer), "fake")
    for request in range(10_000):
        beginning = c.FilePart(request, "p", -1, b"a")
        assert inbox.put(("client", request), beginning) == (c.DAMAGED, "")
        assert inbox.put(("client", request), beginning) is None, "it is answered once"
        requests.handle("client", beginning)
        requests.handle("client", beginning)
    assert len(answers) == 10_000
    assert max(len(inbox._refused), len(requests._refused_files)) < 2000
