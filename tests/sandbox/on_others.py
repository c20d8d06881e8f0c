"""Attacks on the network and on other processes. `victim` is a process of the same user."""

import ctypes
import errno
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from pie_cli.sandbox import namespaces, policy
from tests.sandbox.registry import attack, buffer, call, raw, reaches_kernel


@attack()
def connect_tcp(tcp_port: int) -> None:
    socket.create_connection(("127.0.0.1", tcp_port), timeout=60).close()


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
    return reaches_kernel("socketpair", socket.AF_INET, socket.SOCK_STREAM, 0, buffer)


@attack()
def list_network_interfaces() -> list:
    return socket.if_nameindex()


for family in ("AF_PACKET", "AF_ALG", "AF_VSOCK", "AF_BLUETOOTH"):
    raw("socket", getattr(socket, family, 38), socket.SOCK_RAW, 0, title=f"open_{family.lower()}")


# ---------------------------------------------------------------------------------------------
# Processes


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
    vector = struct.pack("QQ", ctypes.addressof(buffer), 8)
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


@attack()
def read_victims_memory_through_proc(victim: int) -> bytes:
    with open(f"/proc/{victim}/maps") as maps, open(f"/proc/{victim}/mem", "rb") as memory:
        memory.seek(int(maps.readline().partition("-")[0], 16))
        return memory.read(4)


@attack()
def write_victims_memory(victim: int) -> str:
    vector = struct.pack("QQ", ctypes.addressof(buffer), 0)
    return reaches_kernel("process_vm_writev", victim, vector, 1, vector, 1, 0)


@attack()
def queue_a_signal_to_victim(victim: int) -> str:
    information = struct.pack("iii116x", signal.SIGCONT, 0, -1)  # SI_QUEUE
    return reaches_kernel("rt_sigqueueinfo", victim, signal.SIGCONT, information)


@attack()
def look_for_processes(victim: int) -> list[int]:
    """Those that a signal could be sent to, of many numbers."""
    found, refused = [], []
    for pid in range(max(2, victim - 50), victim + 50):
        try:
            os.kill(pid, 0)
            found.append(pid)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.append(pid)
    if refused and not found:
        raise PermissionError(errno.EPERM, "kill")
    return found


@attack()
def list_processes() -> list[str]:
    return os.listdir("/proc")


@attack(open_in=(policy.REDUCED,))
def learn_the_number_of_the_zygote() -> None:
    if os.getppid() == 0:
        raise ProcessLookupError(errno.ESRCH, "it is outside")


@attack(open_in=(policy.REDUCED,))
def learn_the_hosts_name() -> None:
    if os.uname().nodename == namespaces.HOST_NAME:
        raise PermissionError(errno.EPERM, "not the host's")


@attack()
def fork_many() -> None:
    for _ in range(30):
        fork()


@attack(RuntimeError)
def start_many_threads() -> None:
    for _ in range(100):
        start_thread()


@attack()
def run_python() -> None:
    assert os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {})
    os.wait()


@attack()
def run_a_program_from_memory() -> str:
    held = os.memfd_create("attack")
    return reaches_kernel("execveat", held, b"", 0, 0, 0x1000)  # AT_EMPTY_PATH


@attack()
def lower_own_niceness_or_raise_it() -> None:
    os.nice(1)


@attack()
def change_scheduling() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@attack()
def leave_the_session() -> None:
    os.setsid()


@attack()
def learn_victims_session(victim: int) -> int:
    return os.getsid(victim)


@attack()
def become_leader_of_a_group() -> None:
    os.setpgid(0, 0)


raw("clone3", 0, 0)
raw("execveat", -1, b"", 0, 0, 0x1000)
raw("tgkill", -1, -1, 0)
raw("tkill", -1, 0)
raw("pidfd_send_signal", -1, 0, 0, 0)
raw("process_madvise", -1, 0, 0, 0, 0)
raw("process_mrelease", -1, 0)
raw("kcmp", 0, 0, 0, 0, 0)
raw("migrate_pages", 0, 0, 0, 0)
raw("move_pages", 0, 0, 0, 0, 0, 0)
raw("set_mempolicy", 0, 0, 0)
raw("sched_setattr", 0, 0, 0)
raw("ioprio_set", 1, 0, 0)
raw("setuid", 2**32 - 1)
raw("setgid", 2**32 - 1)
raw("setgroups", -1, 0)
raw("capset", 0, 0)
raw("timer_create", -1, 0, 0)
