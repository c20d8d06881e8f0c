"""Code that was moved is the same code on fewer pages; filled holes leave no room between objects."""

import asyncio
import functools
import inspect
import os
import subprocess
import sys
import traceback
from pathlib import Path

from pie_cli.engine import packing

NUM_FUNCTIONS = 100
KEPT: list = []


def apart(count: int) -> list:
    """Functions with others between them."""
    made = []
    for number in range(count * 20):
        space = {}
        exec(f"def f(x):\n    return x + {number // 20} + len('text {number}')", space)  # noqa: S102
        made.append(space["f"])
    KEPT.append(made)
    return made[::20]


def pages(functions: list) -> int:
    return len({id(each.__code__) >> 12 for each in functions})


def test_moved_code_is_on_few_pages_and_does_the_same():
    functions = apart(NUM_FUNCTIONS)
    before, expected = pages(functions), [each(5) for each in functions]
    assert packing.gather(lambda: [each(1) for each in functions]) >= NUM_FUNCTIONS
    assert pages(functions) < 15 < NUM_FUNCTIONS / 2 < before
    assert [each(5) for each in functions] == expected


def test_only_what_runs_is_moved_and_what_is_named():
    ran, named, idle = apart(3)
    codes = [each.__code__ for each in (ran, named, idle)]
    packing.gather(lambda: ran(1), [named])
    assert ran.__code__ is not codes[0] and named.__code__ is not codes[1]
    assert idle.__code__ is codes[2]
    assert (ran(1), named(1), idle(1)) == (1 + 0 + 6, 1 + 1 + 7, 1 + 2 + 7)


class Shapes:
    """Functions of all kinds."""

    scale = 3

    def __init__(self, value: int = 2, *, extra: tuple = (1, "two", None)) -> None:
        self.value, self.extra = value, extra

    @property
    def doubled(self) -> int:
        return self.value * 2

    @classmethod
    def scaled(cls, by: int) -> int:
        return cls.scale * by

    @functools.lru_cache  # noqa: B019
    def known(self) -> str:
        return f"known {self.value}"

    def count(self):
        for each in range(self.value):
            yield lambda: each + self.value  # noqa: B023

    async def later(self) -> str:
        await asyncio.sleep(0)
        return super().__str__()[:1]

    def fail(self) -> None:
        raise LookupError("here")


def life() -> list:
    shapes = Shapes()
    found = [shapes.doubled, Shapes.scaled(4), shapes.known(), [f() for f in shapes.count()]]
    found += [asyncio.run(shapes.later()), shapes.extra]
    try:
        shapes.fail()
    except LookupError as error:
        found.append(
            [(f.name, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__)]
        )
    return found


def test_methods_closures_generators_and_coroutines_can_be_moved():
    expected, source = life(), inspect.getsource(Shapes.count)
    old = Shapes.fail.__code__
    packing.gather(life)
    assert Shapes.fail.__code__ is not old and Shapes.fail.__code__ == old
    assert life() == expected
    assert inspect.getsource(Shapes.count) == source


def test_a_life_that_ends_its_process_moves_nothing_more():
    (named,) = apart(1)
    assert packing.gather(lambda: os._exit(3), [named]) == 1
    assert named(1) == 1 + 0 + 6


def test_new_objects_lie_side_by_side_once_holes_are_filled():
    """In a fresh process: what others free meanwhile would make new holes."""
    script = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        from pie_cli.engine import packing
        junk = [[bytes(n) for n in range(0, 1500, 7)] for _ in range(300)]
        held = [each[::2] for each in junk]
        del junk
        def spread(size):
            new = [bytes(size) for _ in range(40)]
            return len({id(each) >> 12 for each in new}), new
        before = [spread(size) for size in (60, 200, 400, 1200)]
        packing.fill_holes()
        after = [spread(size) for size in (60, 200, 400, 1200)]
        print([count for count, _ in before], [count for count, _ in after])
        for (old, _), (new, _), size in zip(before, after, (60, 200, 400, 1200)):
            assert new < old and new <= 40 * (size + 64) // 4096 + 3, (size, old, new)
    """
    command = [sys.executable, "-I", "-c", script, str(Path(__file__).resolve().parents[2])]
    subprocess.run(command, check=True, timeout=240)


def test_own_memory_is_in_large_pages_where_the_kernel_does_it():
    script = """if True:
        import ctypes, mmap, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from pie_cli.engine import packing

        def large():
            text = Path("/proc/self/smaps_rollup").read_text()
            return int(text.partition("AnonHugePages:")[2].split()[0]) << 10

        def filled():
            memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.write(bytes(range(256)) * (1 << 16))
            return memory

        trial = filled()
        address = ctypes.addressof(ctypes.c_char.from_buffer(trial))
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        does = libc.madvise(address, len(trial), 25) == 0
        memory, before = filled(), large()
        packing.use_large_pages()
        gained = large() - before
        print(does, gained)
        assert memory[:] == trial[:] == bytes(range(256)) * (1 << 16)
        # One page at least: how many more there are is the machine's affair.
        assert gained >= 2 << 20 if does else gained >= 0, (does, gained)
    """
    command = [sys.executable, "-I", "-c", script, str(Path(__file__).resolve().parents[2])]
    subprocess.run(command, check=True, timeout=240)
