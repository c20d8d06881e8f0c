"""Pages that are copied, given up and brought back into within one wave hold what they should."""

from types import SimpleNamespace

import torch

from worker.model import load
from worker.pages import PagePool
from worker.swap import Swap
from worker.swap_space import SwapSpace
from worker.working_set import WorkingSet

PAGE = 4


def test_a_shared_page_is_copied_before_another_sequence_comes_back_into_it() -> None:
    model = load("tiny", name="tiny", page_size=PAGE, max_context=64)
    model.allocate(4)
    pool = PagePool(4, PAGE)  # pages 1, 2, 3
    swap, space = Swap(pool, 8), SwapSpace(model)
    account = SimpleNamespace(pages=0)

    def settle() -> None:
        space.carry_out(swap.take_moves())

    def fill(held: WorkingSet, value: float) -> None:
        (page,) = held.pages
        model.load_pages([page], [torch.full_like(part, value) for part in model.save_pages([page])])

    def append(held: WorkingSet, rows: int) -> None:
        swap.copy(held.extend(rows))
        held.length = held.frozen = held.length + rows

    away, parent, child = (WorkingSet(pool, account) for _ in range(3))
    append(away, 2)
    fill(away, 7.0)
    away.suspend(swap)
    settle()
    append(parent, 2)
    settle()
    fill(parent, 1.0)
    parent.share_with(child)
    blocker = pool.take(pool.num_free - 1, account)  # one page is left
    # One wave: the child writes beside its parent, which then goes and makes room for `away`.
    append(child, 1)
    parent.suspend(swap)
    away.restore()
    settle()
    (copied,), (back,) = child.pages, away.pages
    assert all((part == 1.0).all() for part in model.save_pages([copied]))
    assert all((part == 7.0).all() for part in model.save_pages([back]))
    pool.release(blocker)
