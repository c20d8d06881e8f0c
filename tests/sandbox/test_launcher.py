"""Processes start, end, are told of, and are never left behind."""

import asyncio
import errno
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from pie_cli.engine import control, zygote
from pie_cli.engine.launcher import Launcher, LaunchError, Limits
from pie_cli.sandbox import policy
from tests.sandbox.conftest import BEST_TIER, SMALL, TIMEOUT, Arena, Open
from tests.sandbox.slices import slice_of


async def gone(pid: int) -> bool:
    """Whether a process that is not our child ends: its orphan is reaped by somebody else."""
    for _ in range(int(TIMEOUT * 100)):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        await asyncio.sleep(0.01)
    return False


async def start_sleepers(arena: Arena, count: int) -> list:
    sleepers = [await arena.start("sleep") for _ in range(count)]
    while any(sleeper.pid is None for sleeper in sleepers):
        await asyncio.sleep(0.01)
    return sleepers


def test_exit_code_cpu_and_memory_are_reported(confined: Arena):
    end = confined.outcome("exit_with", {"code": 7}).exit
    assert (end.status, end.setup_failed) == (7, None)
    assert 0 < end.cpu < 5
    assert 1 << 20 < end.max_rss < 1 << 30


def test_an_uncaught_error_is_an_exit_code_of_its_own(confined: Arena):
    end = confined.outcome("fail").exit
    assert (end.status, end.setup_failed) == (zygote.UNCAUGHT, None)


def test_a_child_cannot_pretend_that_its_setup_failed(confined: Arena):
    end = confined.outcome("exit_with", {"code": zygote.SETUP_FAILED}).exit
    assert (end.status, end.setup_failed) == (zygote.SETUP_FAILED, None)


def test_a_child_that_cannot_be_confined_runs_nothing(confined: Arena):
    impossible = Limits(memory=64 << 20, cpu=20, descriptors=1 << 40)
    ended = confined.outcome("exit_with", {"code": 0}, impossible)
    assert ended.outcome is None
    assert ended.exit.status == zygote.SETUP_FAILED
    assert ended.exit.setup_failed.startswith("limit NOFILE: ")


def test_kill_right_after_launch_and_later(confined: Arena):
    async def scenario():
        early = await confined.start("sleep")
        confined.launcher.kill(early.launch_id)  # its pid is not known yet
        (late,) = await start_sleepers(confined, 1)
        confined.launcher.kill(late.launch_id, signal.SIGTERM)
        return [(await confined.finish(each)).exit.status for each in (early, late)]

    assert confined.run(scenario()) == [-signal.SIGKILL, -signal.SIGTERM]
    confined.launcher.kill(1)  # ended long ago: nothing happens


def test_a_process_that_began_when_descriptors_had_run_out_can_be_killed(
    arena: Arena, monkeypatch
):
    receive = control.receive

    def without_descriptors(link: socket.socket) -> tuple[bytes, list[int]]:
        data, descriptors = receive(link)
        for descriptor in descriptors:  # as the kernel does when the table is full
            os.close(descriptor)
        return data, []

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    faults = []
    arena.loop.set_exception_handler(lambda _, context: faults.append(context))
    monkeypatch.setattr(control, "receive", without_descriptors)
    monkeypatch.setattr(os, "pidfd_open", none_left)

    async def scenario():
        early, late = [await arena.start("sleep") for _ in range(2)]
        arena.launcher.kill(early.launch_id)
        while late.pid is None:
            await asyncio.sleep(0.01)
        arena.launcher.kill(late.launch_id)
        return [(await arena.finish(each)).exit.status for each in (early, late)]

    assert arena.run(scenario()) == [-9, -9] and not faults


def test_many_launches_at_once_keep_their_own_sockets(confined: Arena):
    async def scenario():
        started = [await confined.start("exit_with", {"code": code}) for code in range(40)]
        return [(await confined.finish(each)).exit.status for each in started]

    assert confined.run(scenario()) == list(range(40))


def test_launches_beyond_what_the_control_socket_holds_wait_their_turn(arena: Arena):
    arena.launcher._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # a few messages

    async def scenario():
        os.kill(arena.launcher.zygote_pid, signal.SIGSTOP)  # it may be quicker than we are
        started = [await arena.launcher.launch(SMALL) for _ in range(30)]
        assert arena.launcher._unsent  # else this test shows nothing
        os.kill(arena.launcher.zygote_pid, signal.SIGCONT)
        for each in started:
            await arena.loop.sock_sendall(each.sock, b'{"name": "environment", "arguments": {}}\n')
        return [(await arena.finish(each)).outcome for each in started]

    assert arena.run(scenario()) == ["escaped"] * 30
    assert not arena.launcher._unsent


def test_a_cancelled_start_leaves_no_zygote(monkeypatch):
    async def never(_: socket.socket) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("pie_cli.engine.launcher._ready", never)
    launcher = Launcher(BEST_TIER, None, None, entry="tests.sandbox.attacks:run")

    async def scenario():
        starting = asyncio.create_task(launcher.start())
        while launcher.zygote_pid is None:
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return await gone(launcher.zygote_pid)

    assert asyncio.run(scenario())


def test_children_draw_different_random_numbers(confined: Arena):
    draws = [confined.outcome("draw_numbers").result for _ in range(3)]
    assert len({tuple(draw) for draw in draws}) == len({draw[1] for draw in draws}) == 3


@pytest.mark.parametrize("name", ["random", "numpy.random"])
def test_global_generators_are_seeded_anew_when_they_were_loaded_before_the_fork(name):
    generator = pytest.importorskip(name)
    generator.seed(1)
    first = generator.random()
    generator.seed(1)
    zygote.reseed()
    assert generator.random() != first


def test_the_death_of_the_zygote_ends_every_child_and_is_told(arena: Arena):
    async def scenario():
        sleepers = await start_sleepers(arena, 3)
        os.kill(arena.launcher.zygote_pid, signal.SIGKILL)
        ends = [(await arena.finish(each)).exit.status for each in sleepers]
        assert all([await gone(each.pid) for each in sleepers])
        return ends

    assert arena.run(scenario()) == [-signal.SIGKILL] * 3
    assert arena.deaths == 1
    with pytest.raises(LaunchError, match="not running"):
        arena.run(arena.launcher.launch(SMALL))


def test_children_die_with_the_zygote_without_the_launchers_help(arena: Arena, monkeypatch):
    async def scenario():
        sleepers = await start_sleepers(arena, 3)
        monkeypatch.setattr(arena.launcher, "kill", lambda *_: None)
        os.kill(arena.launcher.zygote_pid, signal.SIGKILL)
        return all([await gone(each.pid) for each in sleepers])

    assert arena.run(scenario())


def test_a_launcher_starts_again_after_its_zygote_died(arena: Arena):
    async def scenario():
        os.kill(arena.launcher.zygote_pid, signal.SIGKILL)
        while not arena.deaths:
            await asyncio.sleep(0.01)
        await arena.launcher.start()

    arena.run(scenario())
    assert arena.outcome("exit_with", {"code": 3}).exit.status == 3


def test_close_leaves_nothing_behind():
    arena = Arena()

    async def scenario():
        pids = [each.pid for each in await start_sleepers(arena, 3)]
        pids.append(arena.launcher.zygote_pid)
        await arena.launcher.close()
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

    assert arena.run(scenario()) == []
    assert arena.deaths == 0  # it was asked for
    arena.loop.close()


def test_a_zygote_that_cannot_load_says_where_to_look(tmp_path):
    log = tmp_path / "zygote.log"
    launcher = Launcher(BEST_TIER, None, str(log), entry="no_such_module:run")
    with pytest.raises(LaunchError, match=f"status 1; see `{log}`"):
        asyncio.run(launcher.start())
    assert "No module named 'no_such_module'" in log.read_text()


def test_the_pid_is_the_machines_whatever_the_child_sees(each_tier: Arena):
    async def scenario():
        (sleeper,) = await start_sleepers(each_tier, 1)
        status = Path(f"/proc/{sleeper.pid}/status").read_text()
        each_tier.launcher.kill(sleeper.launch_id)
        await each_tier.finish(sleeper)
        return status

    status = each_tier.run(scenario())
    assert f"PPid:\t{each_tier.launcher.zygote_pid}\n" in status
    inner = int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])
    seen = each_tier.outcome("standing").result
    if each_tier.tier == policy.FULL:
        assert seen["parent"] == 0 and 1 < inner < seen["pid"] < 10_000
    else:
        assert seen["parent"] == each_tier.launcher.zygote_pid


def test_a_child_knows_its_own_number_and_not_the_zygotes(each_tier: Arena):
    found = each_tier.outcome("main_thread").result
    assert found["number"] == found["own"] != each_tier.launcher.zygote_pid
    assert found["is_current"] and found["alive"] == 1


def test_a_child_takes_over_no_signal_handling(each_tier: Arena):
    # SIGXFSZ by Python itself, others by who started us: a shell, for what is in the background.
    ignored = {signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ}
    every = signal.valid_signals()
    ignored |= {number for number in every if signal.getsignal(number) == signal.SIG_IGN}
    assert each_tier.outcome("signals").result == {
        "blocked": [],
        "ignored": sorted(ignored),
        "handled": [],
        "wakes": [-1],
    }


def test_inferlets_give_way_to_the_worker(each_tier: Arena):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    expected = min(own + policy.NICENESS, 19), policy.OOM_SCORE

    async def scenario():
        (sleeper,) = await start_sleepers(each_tier, 1)
        deadline = time.monotonic() + TIMEOUT / 2
        while (found := standing(sleeper.pid)) != expected and time.monotonic() < deadline:
            await asyncio.sleep(0.01)  # until it is confined
        each_tier.launcher.kill(sleeper.launch_id)
        await each_tier.finish(sleeper)
        return found

    assert each_tier.run(scenario()) == expected
    assert oom_score(each_tier.launcher.zygote_pid) == oom_score(os.getpid())


def standing(pid: int) -> tuple[int, int]:
    return os.getpriority(os.PRIO_PROCESS, pid), oom_score(pid)


def test_inferlets_ask_for_short_slices_of_the_processors(each_tier: Arena):
    async def scenario():
        (sleeper,) = await start_sleepers(each_tier, 1)
        found = slice_of(sleeper.pid)
        each_tier.launcher.kill(sleeper.launch_id)
        await each_tier.finish(sleeper)
        return found

    if not slice_of(0):
        pytest.skip("this kernel does not know of slices")
    assert each_tier.run(scenario()) == policy.SLICE
    assert slice_of(os.getpid()) not in (policy.SLICE, policy.HUB_SLICE), "the launcher's own"


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_end_of_the_first_process_ends_all_and_is_told():
    if BEST_TIER != policy.FULL:
        pytest.skip("`reduced` has no pid namespace")
    arena = Arena()

    async def scenario():
        sleepers = await start_sleepers(arena, 2)
        zygote_pid = arena.launcher.zygote_pid
        children = Path(f"/proc/{zygote_pid}/task/{zygote_pid}/children").read_text().split()
        (first,) = set(map(int, children)) - {sleeper.pid for sleeper in sleepers}
        os.kill(first, signal.SIGKILL)
        return [(await arena.finish(each)).exit.status for each in sleepers]

    assert arena.run(scenario()) == [-signal.SIGKILL] * 2
    while not arena.deaths:
        arena.run(asyncio.sleep(0.01))
    arena.loop.close()


def test_two_hundred_at_once_all_run(confined: Arena):
    async def scenario():
        started = await asyncio.gather(*(confined.start("environment") for _ in range(200)))
        return [(await confined.finish(each)).outcome for each in started]

    assert confined.run(scenario()) == ["escaped"] * 200


def test_without_a_sandbox_limits_and_lifetime_still_hold(in_the_open: Open):
    arena = Arena(policy.NONE)
    try:
        assert in_the_open.outcome("read_etc_passwd") == "escaped"
        assert arena.outcome("read_etc_passwd").outcome == "escaped"
        assert arena.outcome("allocate_much_memory").outcome == "blocked"
        assert arena.outcome("open_many_descriptors").outcome == "blocked"
        descriptors = arena.outcome("open_descriptors").result
        assert descriptors == ["device"] * 3 + ["socket"]

        async def scenario():
            sleepers = await start_sleepers(arena, 2)
            os.kill(arena.launcher.zygote_pid, signal.SIGKILL)
            return all([await gone(each.pid) for each in sleepers])

        assert arena.run(scenario())
    finally:
        arena.close()
