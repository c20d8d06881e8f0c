"""Moves this process into namespaces of its own: no network, no other processes, few files.

The tier `full` does it once, in the zygote, and every child is born inside: a launch costs nothing
more. Knows nothing of what may be read; leaves Landlock, seccomp and limits to `linux.py`.

    user       the same user, with power over nothing but the namespaces below
    mount      a read-only root that holds the readable paths: no /proc, no /dev, no /etc
    pid        children see each other's numbers at most; the zygote itself stays outside, so the
               numbers that it reports are those of the machine
    net, ipc   empty; not even a loopback that is up
    uts        a fixed host name
"""

import contextlib
import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable

from pie_cli.sandbox import calls
from pie_cli.sandbox.calls import check, libc, syscall

HOST_NAME = "inferlet"
FIRST_PROCESS = "pie-first"  # its name

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_ALL = _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_MNT_DETACH = 2

# The same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

# Where the new root is put together, and what it covers is lost to us from then on. A folder that
# every machine has, that nobody keeps Python in, and that is not needed any more.
_BUILDING_SITE = "/proc"

libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


class Unavailable(Exception):
    """A step failed; the message names it and the reason. This process is in an odd state now."""


def enter(visible: list[str]) -> int:
    """Enter all namespaces; files are those at or below the paths in `visible`.

    Children forked from now on are in the pid namespace too. Returns the pid of its first process:
    when that ends, they all do, and it ends with this process. Needs a single thread.
    Raises Unavailable.
    """
    user, group = os.geteuid(), os.getegid()
    _step("leave the namespaces of the machine", lambda: check("unshare", libc.unshare(_ALL)))
    _step("map the user", lambda: _map_ids(user, group))
    _step("set the host name", lambda: socket.sethostname(HOST_NAME))
    _step("make mounts private", lambda: _mount(None, "/", None, _MS_REC | _MS_PRIVATE))
    _step("put together a root", lambda: _build_root(visible))
    _step("change the root", _enter_root)
    return _step("start the first process", _start_first_process)


def _step(name: str, action: Callable[[], object]) -> object:
    try:
        return action()
    except OSError as error:
        raise Unavailable(f"could not {name}: {error.strerror}") from error


def _map_ids(user: int, group: int) -> None:
    """We stay who we are. Without privileges that needs setgroups() to be given up first."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def topmost(paths: list[str]) -> list[str]:
    """`paths` without those below others of them."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not found or not path.startswith(found[-1] + "/"):
            found.append(path)
    return found


def _build_root(visible: list[str]) -> None:
    """A new root at the building site: clones of the visible trees, read-only."""
    trees = {path: (_open_tree(path), os.path.isdir(path)) for path in topmost(visible)}
    _mount(
        "tmpfs", _BUILDING_SITE, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "mode=755,size=1m"
    )
    for path, (tree, is_folder) in trees.items():
        target = _BUILDING_SITE + path
        os.makedirs(target if is_folder else os.path.dirname(target), 0o755, exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        _set_read_only(tree)
        _move_mount(tree, target)
        os.close(tree)


def _enter_root() -> None:
    """The building site becomes the root; the old one is gone, and the new one cannot change."""
    os.chdir(_BUILDING_SITE)
    check("pivot_root", libc.pivot_root(b".", b"."))  # the old root is now mounted over the new one
    check("umount", libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    root = os.open("/", os.O_PATH)
    _set_read_only(root)
    os.close(root)


def _start_first_process() -> int:
    """The pid namespace's process 1, which sleeps until this process has ended."""
    reader, _ = os.pipe2(os.O_CLOEXEC)  # the other end stays open as long as we live
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid
    with contextlib.suppress(BaseException):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        calls.set_name(FIRST_PROCESS)
        calls.drop_privileges()
        calls.close_all_but({reader})
        os.read(reader, 1)
    os._exit(0)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind)]
    check("mount", libc.mount(*texts, flags, data.encode() or None))


def _open_tree(path: str) -> int:
    """A descriptor of a private copy of the mounts at and below `path`."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return syscall(f"open_tree `{path}`", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def _set_read_only(tree: int) -> None:
    wanted = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    attributes = struct.pack("QQQQ", wanted, 0, 0, 0)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    syscall("mount_setattr", _MOUNT_SETATTR, tree, b"", flags, attributes, len(attributes))


def _move_mount(tree: int, target: str) -> None:
    name = os.fsencode(target)
    syscall("move_mount", _MOVE_MOUNT, tree, b"", _AT_FDCWD, name, _MOVE_MOUNT_F_EMPTY_PATH)
