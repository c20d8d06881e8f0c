"""Forks cost the same whatever their parent's length, and may form any tree. No torch but in the
last part, which drives an engine."""

import random
import tracemalloc

import pytest

from ipc import messages as m
from tests.worker.bench import Bench, Client, raw_logits
from worker import trunk
from worker.pages import PagePool
from worker.swap import Swap
from worker.working_set import WorkingSet, references, saved_references

SIZE = 4


class Account:
    def __init__(self) -> None:
        self.pages = 0


class CountingPool(PagePool):
    """Counts the references that are taken and given back."""

    touched = 0

    def share(self, pages, account=None):
        pages = list(pages)
        self.touched += len(pages)
        super().share(pages, account)

    def release(self, pages):
        self.touched += len(pages)
        super().release(pages)


def append(held: WorkingSet, rows: int) -> None:
    held.extend(rows)
    held.length = held.frozen = held.length + rows


def grown(pool: PagePool, rows: int) -> WorkingSet:
    held = WorkingSet(pool, Account())
    append(held, rows)
    return held


def fork(parent: WorkingSet) -> WorkingSet:
    child = WorkingSet(parent.pool, parent.account)
    parent.share_with(child)
    return child


def check(pool: PagePool, sets: list[WorkingSet], swap: Swap | None = None) -> None:
    pool.check_integrity(references(sets))
    trunk.check_integrity((held.trunk, held.saved is None) for held in sets)
    if swap is not None:
        swap.check_integrity(saved_references(sets))


@pytest.mark.parametrize("suspended", [False, True])
def test_a_fork_touches_as_many_pages_for_every_length(suspended: bool) -> None:
    counts = []
    for length in (30, 302, 30_002):
        pool = CountingPool(length, SIZE)
        parent = grown(pool, length)
        if suspended:
            parent.suspend(Swap(pool, length))
        fork(parent)
        pool.touched = 0
        fork(parent).release()
        counts.append(pool.touched)
    assert counts == [0 if suspended else 2] * 3  # the partly filled page, taken and given back


def test_a_fork_takes_as_much_memory_for_every_length() -> None:
    taken = []
    for length in (30, 30_002):
        pool = PagePool(length, SIZE)
        parent = grown(pool, length)
        children = [fork(parent)]
        tracemalloc.start()
        children += [fork(parent) for _ in range(200)]
        taken.append(tracemalloc.get_traced_memory()[0] // 200)
        tracemalloc.stop()
    assert taken[1] < taken[0] * 1.1


ORDERS = {
    "root first": lambda sets: sets,
    "leaves first": lambda sets: sets[::-1],
    "at random": lambda sets: random.Random(5).sample(sets, len(sets)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_chain_of_thousands_of_forks_may_be_dropped(order: str) -> None:
    """Each has a page more than its parent: deeper than any recursion could go."""
    pool = PagePool(12_000, SIZE)
    sets = [grown(pool, 5)]
    for _ in range(5000):
        sets.append(fork(sets[-1]))
        append(sets[-1], SIZE)
    check(pool, sets)
    for number, held in enumerate(ORDERS[order](list(sets))):
        held.release()
        sets.remove(held)
        if number % 1000 == 0:
            check(pool, sets)
    assert pool.num_free == pool.capacity


@pytest.mark.parametrize("order", ORDERS)
def test_a_wide_tree_of_forks_may_be_suspended_and_dropped(order: str) -> None:
    pool = PagePool(12_000, SIZE)
    swap, choice = Swap(pool, 24_000), random.Random(3)
    sets = [grown(pool, 50)]
    for _ in range(2000):
        sets.append(fork(choice.choice(sets)))
        if sets[-1].saved is not None:
            sets[-1].restore()
        append(sets[-1], choice.randint(1, 9))
        if choice.random() < 0.2:
            sets[-1].suspend(swap)
    check(pool, sets, swap)
    for number, held in enumerate(ORDERS[order](list(sets))):
        held.release()
        sets.remove(held)
        if number % 500 == 0:
            check(pool, sets, swap)
    assert pool.num_free == pool.capacity and swap.num_used == 0


def test_a_loop_that_forks_and_drops_the_parent_keeps_one_trunk() -> None:
    pool = PagePool(600, SIZE)
    held = grown(pool, 6)
    for _ in range(500):
        child = fork(held)
        held.release()
        append(child, SIZE)
        held = child
    assert len(list(trunk.lineage(held.trunk))) == 1
    check(pool, [held])


def test_siblings_of_a_suspended_fork_keep_the_pages_in_common() -> None:
    pool = PagePool(30, SIZE)
    swap, parent = Swap(pool, 30), grown(pool, 22)
    child, other = fork(parent), fork(parent)
    child.suspend(swap)
    assert swap.num_used == 6 and pool.refs[parent.pages[0]] == 1
    other.suspend(swap)
    assert swap.num_used == 7  # the pages in common are saved once, the last page by each
    first = parent.pages[0]
    child.restore()
    assert child.pages[0] == first and child.pages[5] != parent.pages[5]
    for held in (parent, child):
        held.release()
    assert pool.num_free == pool.capacity
    other.restore()
    check(pool, [other], swap)
    assert len(other.pages) == 6 and swap.num_used == 0


# ---- on an engine


def chain(client: Client, depth: int) -> tuple[int, list[int], list[int]]:
    """A chain of forks, each with a row more than its parent: all asked for at once."""
    pipeline, sets, tokens = client.pipeline(), [client.working_set()], [7]
    client.submit(pipeline, client.define_pass([7], sets))
    for number in range(depth):
        sets.append(client.fork(sets[-1], pipeline))
        tokens.append(number % 60 + 1)
        number = client.define_pass(tokens[-1:], sets[-1:])
        client.submit(pipeline, number)
        client.say(m.DropPass(number))
    return pipeline, sets, tokens


@pytest.mark.parametrize("order", ORDERS)
def test_a_chain_of_forks_on_an_engine_holds_what_replaying_holds(order: str) -> None:
    bench = Bench(num_pages=2048)
    client = bench.client()
    pipeline, sets, tokens = chain(client, 1000)
    bench.settle(3000)
    pages = bench.state.pool.capacity - bench.state.pool.num_free
    assert pages < 1001 + 251  # a partly filled page each, and the full ones once
    picked = sets[::250]
    for held in ORDERS[order](sets):
        if held not in picked:
            client.say(m.DropWorkingSet(held))
    stage = client.stage(raw_logits())
    for number in picked:
        client.submit(pipeline, client.define_pass([9], [number], epilogue=stage))
    bench.settle()
    replay = Bench(num_pages=2048).client()
    stage = replay.stage(raw_logits())
    for number in range(0, 1001, 250):
        rows = [*tokens[: number + 1], 9]
        held = [replay.working_set()]
        replay.submit(replay.pipeline(), replay.define_pass(rows, held, epilogue=stage))
    replay.bench.settle()
    assert [f.results for f in client.fired() if f.results] == [f.results for f in replay.fired()]
    for number in ORDERS[order](picked):
        client.say(m.DropWorkingSet(number))
    bench.settle()
    bench.state.pool.drop_cached()
    assert len(bench.state.pool._free) == bench.state.pool.capacity
