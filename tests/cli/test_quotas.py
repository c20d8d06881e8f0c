"""How much one inferlet may make the hub do: buckets, sizes of reads, who was heard."""

from ipc.types import MAX_RESULT_BYTES_OF_ALL, Limits
from pie_cli.engine import quotas


def test_others_are_heard_for_a_while():
    speakers = quotas.Speakers()
    speakers.heard("a", 100.0)
    assert not speakers.has_other(100.0)
    speakers.heard("b", 100.0)
    speakers.heard("b", 100.01)
    assert speakers.has_other(100.01)
    later = 100.01 + quotas.HEARD_SECONDS
    speakers.heard("b", later)
    assert not speakers.has_other(later)


def test_reads_grow_for_cheap_frames_and_shrink_for_those_that_make_work():
    size = quotas.FIRST_READ
    for _ in range(20):
        size = quotas.next_read(size, size, seconds=0.0)
    assert size == quotas.MAX_READ
    assert quotas.next_read(size, 900, seconds=0.0) == size, "no more was there to be read"
    assert quotas.next_read(size, size, quotas.MAX_SECONDS) == size
    assert quotas.next_read(size, size, 4 * quotas.MAX_SECONDS) == size // 4
    assert quotas.next_read(size, 40, 4 * quotas.MAX_SECONDS) == quotas.MIN_READ


def test_a_bucket_pays_back_at_its_rate():
    bucket = quotas.Bucket(rate=10, burst=20, level=20, time=0.0)
    assert bucket.spend(20, now=0.0) == 0
    assert bucket.spend(5, now=0.0) == 0.5
    assert bucket.spend(0, now=0.5) == 0
    assert bucket.spend(20, now=100.0) == 0, "no more than the burst comes back"
    assert bucket.spend(1, now=100.0) > 0


def test_the_largest_results_of_a_process_are_no_fault():
    with_cells = MAX_RESULT_BYTES_OF_ALL + Limits().channels // 7  # a ring holds 7 cells or more
    assert with_cells < quotas.MAX_UNREAD
