"""Attacks on the sandbox: small functions that return when they succeed and raise when blocked.

`run` is the entry function of confined children: one JSON request in, one JSON outcome out.
As a script (`attacks.py NAME ARGUMENTS`) this file runs the same function without any sandbox.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
_fork_safe_buffer = ctypes.create_string_buffer(4096)

# x86-64 system calls that Python has no function for.
NUMBERS = {
    "clone": 56, "shmget": 29, "msgget": 68, "ptrace": 101, "prctl": 157,
    "chroot": 161, "mount": 165, "setpriority": 141, "prlimit64": 302, "personality": 135,
    "mq_open": 240, "add_key": 248, "keyctl": 250, "inotify_init1": 294, "unshare": 272,
    "perf_event_open": 298, "name_to_handle_at": 303, "process_vm_readv": 310, "seccomp": 317,
    "memfd_create": 319, "bpf": 321, "userfaultfd": 323, "pidfd_open": 434,
    "io_uring_setup": 425, "pidfd_getfd": 438, "landlock_create_ruleset": 444,
    "memfd_secret": 447, "socketpair": 53, "fcntl": 72, "ioctl": 16, "sendto": 44,
    "sched_getaffinity": 204, "clock_gettime": 228, "madvise": 28, "futex": 202,
}  # fmt: skip

READ_WRITE_EXECUTE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC


@dataclass(frozen=True)
class Attack:
    run: Callable[..., object]
    blocked_by: tuple[type[BaseException], ...] = (PermissionError,)
    optional: bool = False  # some kernels and users cannot do it anyway


ATTACKS: dict[str, Attack] = {}


def attack(*blocked_by: type[BaseException], optional: bool = False) -> Callable:
    def register(function: Callable) -> Callable:
        ATTACKS[function.__name__] = Attack(function, blocked_by or (PermissionError,), optional)
        return function

    return register


def call(name: str | int, *arguments: object) -> int:
    """A raw system call; raises OSError."""
    number = NUMBERS[name] if isinstance(name, str) else name
    whole = [ctypes.c_ulong(a & 2**64 - 1) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *whole)
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def reaches_kernel(name: str, *arguments: object) -> str:
    """Passes unless the call is refused as such: any other error means that it was executed."""
    try:
        return f"{name} returned {call(name, *arguments)}"
    except PermissionError:
        raise
    except OSError as error:
        return f"{name} was executed: {error}"


# ---------------------------------------------------------------------------------------------
# Files. `folder` is world-writable and holds a world-readable file `secret`.


@attack()
def read_etc_passwd() -> str:
    with open("/etc/passwd") as file:
        return file.readline()


@attack()
def read_world_readable_file(folder: str) -> str:
    with open(f"{folder}/secret") as file:
        return file.read()


@attack()
def read_own_proc_maps() -> str:
    with open("/proc/self/maps") as file:
        return file.readline()


@attack()
def read_victims_environment(victim: int) -> bytes:
    with open(f"/proc/{victim}/environ", "rb") as file:
        return file.read(10)


@attack()
def read_outside_through_dots_from_the_runtime() -> str:
    steps = "/".join([".."] * 20)
    with open(f"{os.path.dirname(os.__file__)}/{steps}/etc/passwd") as file:
        return file.readline()


@attack()
def read_our_own_source(root: str) -> str:
    with open(f"{root}/pie_cli/engine/launcher.py") as file:
        return file.readline()


@attack()
def list_root() -> list[str]:
    return os.listdir("/")


@attack()
def list_temporary_folder(folder: str) -> list[str]:
    return os.listdir(folder)


@attack()
def write_new_file(folder: str) -> None:
    with open(f"{folder}/new", "w") as file:
        file.write("x")


@attack()
def overwrite_file(folder: str) -> None:
    with open(f"{folder}/secret", "r+") as file:
        file.write("x")


@attack()
def truncate_file(folder: str) -> None:
    os.truncate(f"{folder}/secret", 0)


@attack()
def make_folder(folder: str) -> None:
    os.mkdir(f"{folder}/made")


@attack()
def delete_file(folder: str) -> None:
    os.unlink(f"{folder}/secret")


@attack()
def rename_file(folder: str) -> None:
    os.rename(f"{folder}/secret", f"{folder}/renamed")


@attack()
def hard_link_file(folder: str) -> None:
    os.link(f"{folder}/secret", f"{folder}/linked")


@attack()
def symlink_then_read(folder: str) -> str:
    os.symlink("/etc/passwd", f"{folder}/symbolic")
    with open(f"{folder}/symbolic") as file:
        return file.readline()


@attack()
def read_through_existing_symlink(folder: str) -> str:
    with open(f"{folder}/shortcut") as file:
        return file.readline()


@attack()
def change_mode(folder: str) -> None:
    os.chmod(f"{folder}/secret", 0o777)


@attack()
def make_fifo(folder: str) -> None:
    os.mkfifo(f"{folder}/fifo")


@attack()
def write_shared_memory_folder() -> None:
    name = f"/dev/shm/attack-{os.getpid()}"
    with open(name, "w"):
        os.unlink(name)


@attack()
def open_null_device() -> None:
    os.close(os.open("/dev/null", os.O_RDWR))


@attack(optional=True)
def write_beside_packages(site_packages: str) -> None:
    name = f"{site_packages}/attack-{os.getpid()}"
    with open(name, "w"):
        os.unlink(name)


@attack()
def watch_folder() -> None:
    reaches_kernel("inotify_init1", 0)


@attack()
def name_file_handle(folder: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    mount_id = ctypes.c_int()
    return reaches_kernel(
        "name_to_handle_at", -100, folder.encode(), buffer, ctypes.byref(mount_id), 0
    )


# ---------------------------------------------------------------------------------------------
# Network


@attack()
def connect_tcp(tcp_port: int) -> None:
    socket.create_connection(("127.0.0.1", tcp_port), timeout=5).close()


@attack()
def listen_tcp() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()


@attack()
def send_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", 9))


@attack(socket.gaierror)
def look_up_name() -> None:
    assert socket.getaddrinfo("localhost", 80)


@attack()
def connect_unix_socket(folder: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{folder}/stream")


@attack()
def send_from_datagram_pair_to_path(folder: str) -> None:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, two:
        one.sendto(b"x", f"{folder}/datagram")


@attack(OSError)
def send_from_stream_pair_to_path(folder: str) -> str:
    """The allowed kind of pair must not be able to name another socket, control included."""
    one, two = socket.socketpair()
    with one, two:
        try:
            one.sendmsg([b"x"], [], 0, f"{folder}/datagram")
        except OSError as error:
            if error.errno in (errno.EISCONN, errno.EOPNOTSUPP, errno.EINVAL):
                raise
    return "delivered"


@attack()
def bind_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0attack-{os.getpid()}")


@attack()
def open_netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


@attack()
def make_internet_pair() -> str:
    return reaches_kernel("socketpair", socket.AF_INET, socket.SOCK_STREAM, 0, _fork_safe_buffer)


# ---------------------------------------------------------------------------------------------
# Processes. `victim` is a process of the same user.


@attack()
def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack()
def clone_raw() -> None:
    if call("clone", signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)
    os.wait()


@attack()
def run_shell() -> None:
    subprocess.run(["/bin/sh", "-c", "exit 0"], check=True)


@attack()
def replace_program() -> str:
    try:
        os.execv("/nonexistent", ["nonexistent"])
    except FileNotFoundError as error:
        return f"execve was executed: {error}"


@attack(RuntimeError)
def start_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


@attack()
def signal_victim(victim: int) -> None:
    os.kill(victim, signal.SIGCONT)


@attack()
def signal_parent() -> None:
    os.kill(os.getppid(), signal.SIGCONT)


@attack()
def signal_itself() -> None:
    os.kill(os.getpid(), signal.SIGCONT)


@attack()
def find_out_whether_a_pid_exists(victim: int) -> None:
    assert os.sched_getaffinity(victim)


@attack()
def read_victims_cpu_clock(victim: int) -> int:
    return time.clock_gettime_ns(~victim << 3 | 2)


@attack()
def trace_victim(victim: int) -> str:
    seize = 0x4206
    return reaches_kernel("ptrace", seize, victim, 0, 0)


@attack()
def read_victims_memory(victim: int) -> str:
    vector = struct.pack("QQ", ctypes.addressof(_fork_safe_buffer), 8)
    return reaches_kernel("process_vm_readv", victim, vector, 1, vector, 1, 0)


@attack()
def open_pidfd_of_victim(victim: int) -> str:
    return reaches_kernel("pidfd_open", victim, 0)


@attack()
def take_descriptor_of_victim() -> str:
    return reaches_kernel("pidfd_getfd", 0, 0, 0)


@attack()
def change_own_limit() -> str:
    own = struct.pack("QQ", *resource.getrlimit(resource.RLIMIT_NOFILE))
    return reaches_kernel("prlimit64", 0, resource.RLIMIT_NOFILE, own, 0)


@attack()
def read_victims_limits(victim: int) -> str:
    return reaches_kernel(
        "prlimit64", victim, resource.RLIMIT_NOFILE, 0, ctypes.create_string_buffer(16)
    )


@attack()
def outlive_parent() -> str:
    return reaches_kernel("prctl", 1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG


@attack()
def become_dumpable() -> str:
    return reaches_kernel("prctl", 4, 1, 0, 0, 0)


@attack()
def change_priority() -> str:
    return reaches_kernel("setpriority", 0, 0, 5)


# ---------------------------------------------------------------------------------------------
# Kernel surface


def _raw(name: str, *arguments: object, optional: bool = False, title: str = "") -> None:
    ATTACKS[title or name] = Attack(lambda: reaches_kernel(name, *arguments), optional=optional)


_raw("io_uring_setup", 1, _fork_safe_buffer, optional=True)
_raw("userfaultfd", 1, optional=True)
_raw("bpf", 0, 0, 0, optional=True)
_raw("perf_event_open", 0, 0, -1, -1, 0, optional=True)
_raw("keyctl", 0, 0, 0, optional=True)
_raw("add_key", 0, 0, 0, 0, 0, optional=True)
_raw("unshare", 0x10000000, optional=True)  # CLONE_NEWUSER
_raw("chroot", b"/", optional=True)
_raw("mount", 0, b"/nonexistent", 0, 0, 0, optional=True)
_raw("memfd_create", b"x", 0)
_raw("memfd_secret", 0, optional=True)
_raw("shmget", 0, 4096, 0o600, optional=True)
_raw("msgget", 0, 0o600, optional=True)
_raw("mq_open", b"attack", 0, 0, 0, optional=True)
_raw("personality", 0xFFFFFFFF)
_raw("landlock_create_ruleset", 0, 0, 1)
_raw("seccomp", 2, 0, _fork_safe_buffer)
_raw("ioctl", 0, 0x5412, b"x", title="type_into_terminal")  # TIOCSTI
_raw("fcntl", 0, 8, 1, title="take_signals_of_a_descriptor")  # F_SETOWN
_raw("fcntl", 0, 1031, 1 << 20, title="grow_a_pipe")  # F_SETPIPE_SZ
_raw("futex", _fork_safe_buffer, 6, 0, 0, 0, 0, title="futex_with_priority_inheritance")


@attack()
def merge_pages_with_others() -> str:
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return reaches_kernel("madvise", address, mmap.PAGESIZE, 12)


# ---------------------------------------------------------------------------------------------
# Resources. Confined runs get 64 MiB.


@attack(MemoryError)
def allocate_much_memory() -> None:
    bytearray(512 << 20)


@attack(OSError)
def map_much_shared_memory() -> None:
    mmap.mmap(-1, 512 << 20).close()


@attack(OSError)
def open_many_descriptors() -> None:
    pipes = [os.pipe() for _ in range(100)]
    for descriptor in (end for pipe in pipes for end in pipe):
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------
# Not attacks with a control: run in confined children by tests of their own


def use_all_cpu() -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def int_0x80() -> int:
    """getpid through the 32-bit entry of an x86-64 kernel."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=READ_WRITE_EXECUTE)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def x32_getpid() -> int:
    return call(0x40000000 | 39)


def sweep(skip: list[int]) -> dict[int, str]:
    """Every system call number that is not refused, but those in `skip`."""
    passed = {}
    for number in sorted(set(range(512)) - set(skip)):
        ctypes.set_errno(0)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
        if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            passed[number] = errno.errorcode.get(ctypes.get_errno(), "success")
    return passed


def open_descriptors() -> list[str]:
    """What each open descriptor is, by type."""
    kinds = {0o140000: "socket", 0o010000: "fifo", 0o020000: "device", 0o100000: "file"}
    found = []
    for number in range(64):
        try:
            found.append(kinds.get(os.fstat(number).st_mode & 0o170000, "other"))
        except OSError:
            pass
    return found


def environment() -> dict[str, str]:
    return dict(os.environ)


def exit_with(code: int) -> None:
    os._exit(code)


def fail() -> None:
    raise LookupError("not caught by anybody")


def sleep() -> None:
    time.sleep(600)


def draw_numbers() -> list[float]:
    import random

    import numpy

    return [random.random(), float(numpy.random.random())]


# ---------------------------------------------------------------------------------------------


def outcome(name: str, arguments: dict) -> dict:
    """`escaped`, `blocked`, or `broken` when it failed for another reason than the sandbox."""
    chosen = ATTACKS.get(name) or Attack(globals()[name], ())
    wanted = chosen.run.__code__.co_varnames[: chosen.run.__code__.co_argcount]
    try:
        result = chosen.run(**{key: arguments[key] for key in wanted})
        return {"outcome": "escaped", "result": result if _is_plain(result) else repr(result)}
    except chosen.blocked_by as error:
        return {"outcome": "blocked", "result": repr(error)}
    except Exception as error:
        if name == "fail":
            raise
        return {"outcome": "broken", "result": repr(error)}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, list, dict))


def run(descriptor: int) -> None:
    """Entry function of a child."""
    with socket.socket(fileno=descriptor) as channel:
        request = json.loads(channel.makefile("r").readline())
        answer = outcome(request["name"], request["arguments"])
        channel.sendall(json.dumps(answer).encode() + b"\n")


def stamp(descriptor: int) -> None:
    """Entry function that tells when it was reached, for measuring."""
    os.write(descriptor, struct.pack("q", time.perf_counter_ns()))


if __name__ == "__main__":
    print(json.dumps(outcome(sys.argv[1], json.loads(sys.argv[2]))))
