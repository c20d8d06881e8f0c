"""The inbox of one process."""

import pytest

from ipc import messages as m
from ipc.errors import ProtocolError
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


def test_an_inbox_is_full_by_messages_until_the_app_has_received_some():
    inbox = Inbox(max_messages=2)
    assert [inbox.put(text("x")) for _ in range(3)] == [True, True, False]
    inbox.next()
    assert not inbox.put(text("x")), "given to the process, but not received by the app"
    inbox.received(1)
    assert inbox.put(text("x"))


def test_an_inbox_is_full_by_bytes_of_utf_8(monkeypatch):
    monkeypatch.setattr(inboxes, "MAX_BYTES", 10)
    inbox = Inbox()
    assert inbox.put(text("äää")) and not inbox.put(text("12345"))
    inbox.next()
    inbox.received(1)
    assert inbox.put(text("12345"))


def test_a_full_inbox_still_takes_what_its_sender_counts_itself():
    inbox = Inbox(max_messages=1)
    inbox.put(text("a"))
    assert inbox.put(text("b"), even_full=True)
    assert len(inbox) == 2


def test_a_process_is_given_no_more_than_it_can_go_on_with(monkeypatch):
    monkeypatch.setattr(inboxes, "GIVEN_MESSAGES", 2)
    inbox = Inbox()
    for words in "abc":
        inbox.put(text(words))
    inbox.close()
    assert [inbox.next() for _ in range(3)] == [text("a"), text("b"), None]
    inbox.received(1)
    assert [inbox.next() for _ in range(2)] == [text("c"), m.InboxClosed()]


def test_a_long_message_is_given_alone(monkeypatch):
    monkeypatch.setattr(inboxes, "GIVEN_BYTES", 4)
    inbox = Inbox()
    inbox.put(text("long text"))
    inbox.put(text("b"))
    assert [inbox.next() for _ in range(2)] == [text("long text"), None]


def test_senders_hear_of_what_was_received():
    inbox = Inbox()
    for words, sender in (("a", "one"), ("b", None), ("c", "two")):
        inbox.put(text(words), sender)
        inbox.next()
    assert inbox.received(2) == ["one"]
    assert inbox.received(1) == ["two"]


@pytest.mark.parametrize("count", [0, -1, 2])
def test_receiving_what_was_not_given_breaks_the_protocol(count):
    inbox = Inbox()
    inbox.put(text("a"))
    inbox.next()
    with pytest.raises(ProtocolError):
        inbox.received(count)


def test_others_still_reach_an_inbox_that_its_client_has_closed():
    inbox = Inbox()
    inbox.close()
    assert inbox.next() == m.InboxClosed()
    assert inbox.put(text("late")) and inbox.next() == text("late")
