"""The inbox of one process."""

from ipc import messages as m
from pie_cli.engine import inboxes
from pie_cli.engine.inboxes import Inbox


def text(words: str) -> m.Inbox:
    return m.Inbox(False, words)


def test_messages_come_in_order_and_the_end_once():
    inbox = Inbox()
    assert inbox.next() is None
    inbox.put(text("a"))
    inbox.put(text("b"))
    inbox.close()
    assert [inbox.next() for _ in range(4)] == [text("a"), text("b"), m.InboxClosed(), None]


def test_an_inbox_is_full_by_messages_or_by_bytes(monkeypatch):
    monkeypatch.setattr(inboxes, "MAX_MESSAGES", 2)
    inbox = Inbox()
    assert [inbox.put(text("x")) for _ in range(3)] == [True, True, False]
    monkeypatch.setattr(inboxes, "MAX_BYTES", 10)
    inbox = Inbox()
    assert inbox.put(text("123456")) and not inbox.put(text("12345"))
    inbox.next()
    assert inbox.put(text("12345"))


def test_a_closed_inbox_takes_nothing_more():
    inbox = Inbox()
    inbox.close()
    assert not inbox.put(text("late"))
