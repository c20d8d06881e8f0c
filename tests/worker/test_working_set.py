"""Pages and working sets against a model of plain lists: frozen rows never change, shared pages are
never written, and every reference is counted. No torch."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.pages import PagePool
from worker.working_set import WorkingSet


class Account:
    def __init__(self) -> None:
        self.pages = 0


def append(working_set: WorkingSet, rows: int) -> list[tuple[int, int]]:
    copies = working_set.extend(rows)
    working_set.length += rows
    return copies


def test_fork_shares_full_pages_and_copies_the_partial_one_when_written() -> None:
    pool = PagePool(num_pages=8, page_size=4)
    parent, child = WorkingSet(pool, Account()), WorkingSet(pool, Account())
    append(parent, 6)
    parent.share_with(child)
    assert child.pages == parent.pages  # nothing is copied by the fork itself
    (copy,) = append(child, 1)
    assert copy == (parent.pages[1], child.pages[1])
    assert child.pages[0] == parent.pages[0]
    assert append(parent, 1) == []  # the parent is the only owner of its tail again


def test_a_fork_at_a_page_boundary_copies_nothing() -> None:
    pool = PagePool(num_pages=8, page_size=4)
    parent, child = WorkingSet(pool, Account()), WorkingSet(pool, Account())
    append(parent, 8)
    parent.share_with(child)
    assert append(child, 1) == append(parent, 1) == []


def test_a_pool_needs_a_page_beside_the_null_page() -> None:
    with pytest.raises(ValueError, match="1 pages"):
        PagePool(num_pages=1, page_size=4)


def test_integrity_notices_a_leaked_page() -> None:
    pool = PagePool(num_pages=4, page_size=4)
    pool.take(1)
    with pytest.raises(AssertionError, match="2 free and 0 held"):
        pool.check_integrity([])


class WorkingSets(RuleBasedStateMachine):
    """Each working set is also a list of values; slots hold what was written where."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(num_pages=24, page_size=4)
        self.account = Account()
        self.sets: list[tuple[WorkingSet, list[int]]] = []
        self.slots: dict[int, int] = {}
        self.next_value = 0

    def _pick(self, index: int) -> tuple[WorkingSet, list[int]]:
        return self.sets[index % len(self.sets)]

    @rule()
    def open(self) -> None:
        self.sets.append((WorkingSet(self.pool, self.account), []))

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99), rows=st.integers(0, 9))
    def append(self, index: int, rows: int) -> None:
        working_set, values = self._pick(index)
        needed = working_set.pages_needed(rows)
        if needed > self.pool.num_free:
            return
        before = self.pool.num_free
        copies = working_set.extend(rows)
        # Copying a page with two owners frees nothing; the count is exact.
        assert before - self.pool.num_free == needed
        for source, target in copies:
            for offset in range(4):
                self.slots[target * 4 + offset] = self.slots.get(source * 4 + offset, -1)
        for _ in range(rows):
            page, offset = divmod(working_set.length, 4)
            self.slots[working_set.pages[page] * 4 + offset] = self.next_value
            values.append(self.next_value)
            working_set.length += 1
            self.next_value += 1

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99))
    def fork(self, index: int) -> None:
        parent, values = self._pick(index)
        child = WorkingSet(self.pool, self.account)
        parent.share_with(child)
        self.sets.append((child, list(values)))

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99), rows=st.integers(0, 12))
    def undo(self, index: int, rows: int) -> None:
        working_set, values = self._pick(index)
        length = max(len(values) - rows, 0)
        working_set.truncate(length)
        del values[length:]

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99))
    def drop(self, index: int) -> None:
        working_set, _ = self.sets.pop(index % len(self.sets))
        working_set.release()

    @invariant()
    def every_set_reads_what_it_wrote(self) -> None:
        for working_set, values in self.sets:
            read = [self.slots[working_set.pages[i // 4] * 4 + i % 4] for i in range(len(values))]
            assert read == values

    @invariant()
    def pages_are_counted(self) -> None:
        self.pool.check_integrity([working_set.pages for working_set, _ in self.sets])
        assert self.account.pages == self.pool.capacity - self.pool.num_free


TestWorkingSets = WorkingSets.TestCase
TestWorkingSets.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
