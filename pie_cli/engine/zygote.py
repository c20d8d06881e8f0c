"""The zygote: a fresh Python with the SDK loaded that forks one confined child per launch.

Owns nothing of an inferlet: no code, no input, no secret passes through here, because every
child can read what this process ever had in memory. Never starts a thread: a fork copies only
the calling one, and locks that others hold would stay locked for good.
"""

import argparse
import asyncio
import contextlib
import gc
import importlib
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

from pie_cli.engine import control, packing
from pie_cli.sandbox import calls, linux, policy, scheduling

DEFAULT_ENTRY = "inferlet.runtime.launch:run"
SETUP_FAILED = 70  # exit code of a child that could not be confined
UNCAUGHT = 71  # exit code of a child whose entry function raised
LOST_FIRST = 72  # exit code of a zygote whose children's namespace has ended

# Loaded before the first fork, so that children share them and need not read files.
PRELOADED = ("asyncio", "json", "mimetypes", "msgspec", "numpy", "tokenizers", "jinja2")

REHEARSALS = 16  # Python specialises in steps: a counter in the code falls with every run

Entry = Callable[[int], int | None]


class Zygote:
    """Answers Launch messages until its control socket closes; children then die by signal."""

    def __init__(
        self,
        link: socket.socket,
        entry: Entry,
        confinement: linux.Confinement,
        first: int | None,
    ) -> None:
        """`first`: the first process of the children's pid namespace."""
        self.link = link
        self.entry = entry
        self.confinement = confinement
        self.first = first
        self.launch_ids: dict[int, int] = {}  # pid -> launch id
        self.failures: dict[int, str] = {}  # launch id -> why its setup failed
        # Children write to it while they are set up, and only then: see `linux.enter`.
        self.failure_reader, self.failure_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ends = calls.ends_of_children()

    def serve(self) -> None:
        """The loop: launch, reap, report. Returns when the launcher is gone."""
        poller = select.poll()
        poller.register(self.link, select.POLLIN)
        poller.register(self.ends, select.POLLIN)
        control.send(self.link, control.Ready())
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self.ends in ready:
                os.read(self.ends, 4096)
                self.reap()
            if self.link.fileno() in ready:
                data, descriptors = control.receive(self.link)
                if not data:
                    return
                self.launch(control.decode_launch(data), descriptors)

    def launch(self, request: control.Launch, descriptors: list[int]) -> None:
        """Fork one child for `request`, whose socket is the only descriptor."""
        if not descriptors:  # our table was full: the kernel dropped it
            self.refuse(request, "no descriptor arrived: too many open files in the zygote")
            return
        bounds = policy.Bounds(request.address_space, request.cpu, request.descriptors)
        plan = self.confinement.plan(bounds, {descriptors[0]}, self.failure_writer)
        try:
            pid = calls.fork()
        except OSError as error:
            os.close(descriptors[0])
            self.refuse(request, f"fork: {error}")
            return
        if pid == 0:
            self.become_child(request.launch_id, descriptors[0], plan)
        os.close(descriptors[0])
        self.launch_ids[pid] = request.launch_id
        pidfd = os.pidfd_open(pid)  # cannot be another process: we have not reaped it
        control.send(self.link, control.Spawned(request.launch_id, pid), pidfd)
        os.close(pidfd)

    def refuse(self, request: control.Launch, reason: str) -> None:
        control.send(self.link, control.Exited(request.launch_id, SETUP_FAILED, 0.0, 0, reason))

    def become_child(self, launch_id: int, channel: int, plan: tuple[calls.Step, ...]) -> None:
        """Confine this new process and run the entry function. Never returns."""
        code = SETUP_FAILED
        try:
            self.confinement.enter(plan, self.failure_writer)
            code = UNCAUGHT
            reseed()
            threading.main_thread()._set_native_id()  # it says the zygote's number; see calls.fork
            gc.enable()
            code = self.entry(channel) or 0
        except linux.SetupFailed as error:
            line = f"{launch_id} {error}".replace("\n", " ")
            os.write(self.failure_writer, line.encode()[:512] + b"\n")  # < PIPE_BUF: atomic
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else UNCAUGHT
        except BaseException:
            code = UNCAUGHT
        finally:
            os._exit(code & 0xFF)

    def reap(self) -> None:
        """Collect every child that has ended and report it."""
        while self.launch_ids or self.first:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            if pid == self.first:  # the kernel has killed all others; more cannot be made
                os._exit(LOST_FIRST)
            self.read_failures()
            launch_id = self.launch_ids.pop(pid)
            exited = control.Exited(
                launch_id=launch_id,
                status=os.waitstatus_to_exitcode(status),
                cpu=usage.ru_utime + usage.ru_stime,
                max_rss=usage.ru_maxrss * 1024,
                setup_failed=self.failures.pop(launch_id, None),
            )
            control.send(self.link, exited)

    def read_failures(self) -> None:
        try:
            lines = os.read(self.failure_reader, 1 << 16).decode(errors="replace").splitlines()
        except BlockingIOError:
            return
        for line in lines:
            launch_id, _, reason = line.partition(" ")
            self.failures[int(launch_id)] = reason


# What `random.seed()` comes to, without its looking at eight types first.
_seed_random = super(random.Random, random.seed.__self__).seed


def reseed() -> None:
    """Children of one parent would all draw the same numbers from the global generators."""
    _seed_random()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


# Runs in children alone, so no rehearsal finds it.
CHILD_ONLY = (
    Zygote.become_child, reseed, calls.take, linux.Confinement.enter,
    linux.Confinement.offer_to_oom_killer, threading.main_thread, threading.Thread._set_native_id,
)  # fmt: skip


def preload(entry: str, model_path: str | None) -> tuple[Entry, Callable[[], None]]:
    """Import all that children may need, so that it is shared and needs no reading.

    `entry` is `module:function`. Returns the function, and one that plays a child's life.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    sys.modules["mimetypes"].init()  # reads /etc/mime.types, which children may not
    time.tzset()
    module_name, _, name = entry.partition(":")
    module = importlib.import_module(module_name)
    if hasattr(module, "preload"):
        module.preload(model_path)
    return getattr(module, name), getattr(module, "rehearse", rehearse)


def warm(life: Callable[[], None]) -> None:
    """Do what every child does: what that leaves in memory is then shared, and on few pages."""
    life()  # loads what is loaded late
    packing.gather(life, CHILD_ONLY)
    for _ in range(REHEARSALS):
        life()


def rehearse() -> None:
    """What children begin with whose entry has no `rehearse` of its own."""
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))


def package_folders() -> list[str]:
    """Folders of our own packages that inferlets may import lazily."""
    loaded = (sys.modules.get(name) for name in ("inferlet", "ipc"))
    return [folder for module in loaded if module for folder in module.__path__]


def forget_import_root(root: str) -> None:
    """An inferlet's `import x` must not look beside our packages, where it may not read."""
    while root in sys.path:
        sys.path.remove(root)
    sys.path_importer_cache.pop(root, None)
    sys.dont_write_bytecode = True


def check_single_threaded() -> None:
    """Refuse to serve with more than one thread; see the module's docstring."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        sys.exit(f"error: the zygote has {threads} threads after loading; it cannot fork safely")


def null_stdio() -> None:
    """0 and 1 become /dev/null. 2 stays the log until a child is forked."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="zygote")
    parser.add_argument("--control", type=int, required=True, help="descriptor of the socket")
    parser.add_argument("--tier", choices=policy.TIERS, required=True)
    parser.add_argument("--model", help="folder with tokenizer.json and the chat template")
    parser.add_argument("--entry", default=DEFAULT_ENTRY, help="module:function; gets the socket")
    return parser.parse_args(arguments)


def main(arguments: list[str], import_root: str) -> None:
    """Load, prepare the confinement, and serve. `import_root` is the folder of our packages."""
    options = parse(arguments)
    parent = os.getppid()
    os.chdir("/")
    calls.close_all_but({options.control})
    null_stdio()
    calls.quieten()
    entry, life = preload(options.entry, options.model)
    forget_import_root(import_root)
    check_single_threaded()
    warm(life)
    confinement = linux.Confinement(options.tier, policy.readable_paths(package_folders()))
    check_single_threaded()
    os.nice(policy.NICENESS)
    scheduling.ask_for_slices(policy.SLICE, inherited=True)
    gc.collect()
    gc.disable()
    packing.fill_holes()
    packing.use_large_pages()
    gc.freeze()  # a full collection in a child would touch, and so copy, every shared page
    first = confinement.prepare_parent()
    with contextlib.suppress(OSError):  # it has ended: then the socket is at its end
        calls.end_with(parent)  # the end of the socket does not reach one that is stopped
    link = socket.socket(fileno=options.control)
    link.setblocking(True)
    with contextlib.suppress(ConnectionError):  # the launcher is gone
        Zygote(link, entry, confinement, first).serve()
    os._exit(0)  # at once: children die with us
