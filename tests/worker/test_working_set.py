"""Pages and working sets against a model of plain lists: frozen rows never change, shared pages are
never written, and every reference is counted. No torch."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker import trunk
from worker.history import History
from worker.pages import Move, PagePool
from worker.swap import Swap
from worker.trunk import lineage
from worker.working_set import WorkingSet, references, saved_references


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
    """The naive twin: each working set is also a plain list of values, copied by a fork. Pages and
    host memory are dictionaries that do as the moves say: every set must read what its list says."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(num_pages=24, page_size=4)
        self.swap = Swap(self.pool, 40)
        self.account = Account()
        self.sets: list[tuple[WorkingSet, list[int]]] = []
        self.pages: dict[int, list[int]] = {}
        self.saved: dict[int, list[int]] = {}
        self.next_value = 0

    def _pick(self, index: int) -> tuple[WorkingSet, list[int]]:
        return self.sets[index % len(self.sets)]

    def _carry_out(self) -> None:
        for kind, page, slot in self.swap.take_moves():
            if kind is Move.OUT:
                self.saved[slot] = list(self.pages[page])
            elif kind is Move.IN:
                self.pages[page] = list(self.saved[slot])
            elif kind is Move.COPY:
                self.pages[slot] = list(self.pages[page])
            elif kind is Move.CLEAR:
                self.pages.pop(page, None)
            else:
                del self.saved[slot]

    @rule()
    def open(self) -> None:
        self.sets.append((WorkingSet(self.pool, self.account), []))

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99), rows=st.integers(0, 9), is_plain=st.booleans())
    def append(self, index: int, rows: int, is_plain: bool) -> None:
        working_set, values = self._pick(index)
        needed = working_set.pages_needed(rows)
        back = self.swap.pages_needed(working_set.absent)
        if needed + back > self.pool.num_free:
            return
        before, was_asleep = self.pool.num_free, working_set.saved is not None
        if was_asleep:
            working_set.restore()
        self.swap.copy(working_set.extend(rows))
        # Copying a page with two owners frees nothing; the count is exact, or one too many.
        assert needed + back - (before - self.pool.num_free) in ((0, 1) if was_asleep else (0,))
        self._carry_out()
        was_plain = working_set.history.length == working_set.length
        for _ in range(rows):
            page, offset = divmod(working_set.length, 4)
            self.pages.setdefault(working_set.pages[page], [-1] * 4)[offset] = self.next_value
            values.append(self.next_value)
            working_set.length += 1
            self.next_value += 1
        working_set.frozen = working_set.length
        if is_plain and was_plain:
            working_set.history.tokens.extend(values[len(values) - rows :])
            working_set.enter_pages()

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
        """Beyond the last fork, too: which the engine never does."""
        working_set, values = self._pick(index)
        length = max(len(values) - rows, 0)
        working_set.truncate(length)
        working_set.frozen = length
        del values[length:]
        self._carry_out()

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99))
    def suspend(self, index: int) -> None:
        working_set, _ = self._pick(index)
        if working_set.saved is None and working_set.pages_to_save <= self.swap.num_free:
            room, asked = self.swap.num_free, working_set.pages_to_save
            working_set.suspend(self.swap)
            assert room - self.swap.num_free <= asked
            self._carry_out()

    @precondition(lambda self: self.sets)
    @rule(index=st.integers(0, 99))
    def drop(self, index: int) -> None:
        working_set, _ = self.sets.pop(index % len(self.sets))
        working_set.release()
        self._carry_out()

    @invariant()
    def every_set_reads_what_it_wrote(self) -> None:
        for working_set, values in self.sets:
            if working_set.saved is None:
                held = [self.pages[page] for page in working_set.pages]
            else:
                before = reversed(list(lineage(working_set.trunk)))
                before = [
                    self.pages[user.pages[i]] if user.pages else self.saved[user.saved[i].slot]
                    for user in before
                    for i in range(user.end - user.start)
                ]
                held = before + [self.saved[one.slot] for one in working_set.saved]
            read = [value for page in held for value in page]
            assert read[: len(values)] == values

    @invariant()
    def what_is_known_of_the_tokens_is_right(self) -> None:
        for working_set, values in self.sets:
            history = working_set.history
            if history.length >= 0:
                assert history.tokens.tolist() == values[history.start : history.length]
                fresh = History(4, b"")
                fresh.tokens.extend(values[: history.num_keyed * 4])
                keys = [key for _, key in fresh.new_keys()]
                assert history.keys == keys[history.start // 4 :]
                for user in lineage(working_set.trunk):
                    assert user.keys == keys[user.start :][: len(user.keys)]

    @invariant()
    def pages_are_counted(self) -> None:
        sets = [working_set for working_set, _ in self.sets]
        self.pool.check_integrity(references(sets))
        self.swap.check_integrity(saved_references(sets))
        trunk.check_integrity((held.trunk, held.saved is None) for held in sets)
        assert self.account.pages == self.pool.capacity - self.pool.num_free
        assert self.swap.num_used == len(self.saved)


TestWorkingSets = WorkingSets.TestCase
TestWorkingSets.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
