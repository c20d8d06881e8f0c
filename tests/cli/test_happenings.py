"""What is kept for `pie trace`, and how it becomes a timeline."""

from ipc import codec
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from pie_cli.engine import happenings
from pie_cli.engine.happenings import DOWN, UP, Happenings, spans


def commands(*some) -> bytes:
    return codec.encode_commands(some)


def events(*some) -> bytes:
    return codec.encode_events(some)


def test_a_pass_lasts_from_its_submission_to_its_end():
    ring = Happenings()
    ring.add(1.0, 1, "launched")
    ring.add_frame(2.0, 1, UP, commands(m.OpenPipeline(0), m.Submit(0, 7, 0), m.Submit(0, 8, 1)))
    ring.add_frame(2.0, 2, UP, commands(m.Submit(0, 9, 0)))
    ring.add_frame(3.5, 1, DOWN, events(m.Fired(0, 0, cached=(16,))))
    found, missed = ring.of(1)
    launched, first, second = spans(found)
    assert missed == 0 and launched.name == "launched"
    assert (first.name, first.start, first.end) == ("pass 7", 2.0, 3.5)
    assert first.facts == {"pipeline": 0, "seq": 0, "pass": 7, "cached": 16}
    assert (second.name, second.facts["state"]) == ("pass 8", "unfinished")


def test_fires_of_a_run_follow_one_another():
    ring = Happenings()
    ring.add_frame(1.0, 1, UP, commands(m.RunAhead(0, 3, 5, 100, 6)))
    ring.add_frame(2.0, 1, DOWN, events(m.Fired(0, 5)))
    failure = Failure(ErrorCode.TOKEN_RANGE, "why")
    ring.add_frame(3.0, 1, DOWN, events(m.Fired(0, 6), m.Failed(0, 7, failure)))
    found = spans(ring.of(1)[0])
    assert [(x.start, x.end, x.facts["seq"]) for x in found] == [
        (1.0, 2.0, 5), (2.0, 3.0, 6), (3.0, 3.0, 7),
    ]  # fmt: skip
    assert found[2].facts["failure"] == "why"


def test_fires_that_end_after_their_run_was_stopped_name_its_pass():
    ring = Happenings()
    ring.add_frame(1.0, 1, UP, commands(m.RunAhead(0, 3, 5, 100, 6)))
    stop = m.Stop(0, 6), m.RunAhead(0, 4, 8, 100, 6), m.ClosePipeline(0)
    ring.add_frame(2.0, 1, UP, commands(*stop))
    for seq in (5, 6, 8):
        ring.add_frame(3.0, 1, DOWN, events(m.Fired(0, seq)))
    found = sorted((span.facts["seq"], span.name) for span in spans(ring.of(1)[0]))
    assert found == [(5, "pass 3"), (6, "pass 3"), (8, "pass 4")]


def test_a_fire_whose_submission_is_kept_no_more_has_no_number():
    ring = Happenings()
    ring.add_frame(3.0, 1, DOWN, events(m.Fired(0, 5)))
    (span,) = spans(ring.of(1)[0])
    assert (span.name, span.facts) == ("pass", {"pipeline": 0, "seq": 5})


def test_long_and_unreadable_frames_are_moments_or_nothing():
    ring = Happenings()
    ring.add_frame(1.0, 1, UP, b"\xff" * 10)
    ring.add_frame(2.0, 1, DOWN, b"x" * (happenings.MAX_FRAME + 1))
    (moment,) = spans(ring.of(1)[0])
    assert moment.facts == {"bytes": happenings.MAX_FRAME + 1}


def test_the_ring_is_bounded_and_counts_what_it_lost(monkeypatch):
    monkeypatch.setattr(happenings, "MAX_KEPT", 3)
    monkeypatch.setattr(happenings, "MAX_BYTES", 100)
    ring = Happenings()
    for i in range(5):
        ring.add(float(i), i % 2, "sent")
    assert [len(ring.of(number)[0]) for number in (0, 1)] == [2, 1]
    assert [ring.of(number)[1] for number in (0, 1)] == [1, 1]
    for _ in range(3):
        ring.add_frame(9.0, 7, UP, b"x" * 60)
    assert len(ring.of(7)[0]) == 1, "by bytes too"
