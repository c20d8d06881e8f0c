"""Attacks on files. `folder` is world-writable and holds a world-readable file `secret`."""

import ctypes
import errno
import fcntl
import mmap
import os
from multiprocessing import shared_memory

from pie_cli.sandbox import policy
from tests.sandbox.registry import attack, buffer, raw, reaches_kernel


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
    handle = ctypes.create_string_buffer(256)
    mount_id = ctypes.c_int()
    return reaches_kernel(
        "name_to_handle_at", -100, folder.encode(), handle, ctypes.byref(mount_id), 0
    )


@attack()
def read_own_private_file(folder: str) -> str:
    with open(f"{folder}/private") as file:
        return file.read()


@attack()
def read_own_command_line_through_parent() -> bytes:
    with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
        return file.read()


@attack()
def read_kernel_settings() -> str:
    with open("/proc/sys/kernel/ostype") as file:
        return file.read()


@attack()
def list_devices_of_the_machine() -> list[str]:
    return os.listdir("/sys")


@attack()
def list_folder_above_the_runtime() -> list[str]:
    return os.listdir(os.path.dirname(os.path.dirname(os.path.dirname(os.__file__))))


@attack()
def write_temporary_folder() -> None:
    name = f"/tmp/attack-{os.getpid()}"
    with open(name, "w"):
        os.unlink(name)


@attack()
def make_shared_memory() -> None:
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.close()
    memory.unlink()


@attack()
def make_unnamed_file(folder: str) -> None:
    os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))


@attack()
def change_folder(folder: str) -> None:
    os.chdir(folder)


@attack()
def change_times(folder: str) -> None:
    os.utime(f"{folder}/secret", (0, 0))


@attack(optional=True)
def set_extended_attribute(folder: str) -> None:
    os.setxattr(f"{folder}/secret", "user.attack", b"x")


@attack()
def list_extended_attributes(folder: str) -> list[str]:
    return os.listxattr(f"{folder}/secret")


@attack()
def learn_free_space(folder: str) -> int:
    return os.statvfs(folder).f_bavail


@attack()
def lock_a_file_of_the_runtime() -> None:
    with open(os.__file__) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


@attack()
def see_what_of_a_file_is_cached() -> str:
    with open(os.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return reaches_kernel("mincore", address, 4096, buffer)


@attack()
def open_with_restrictions_of_its_own(folder: str) -> str:
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY)
    return reaches_kernel("openat2", -100, f"{folder}/secret".encode(), how, ctypes.sizeof(how))


# Landlock does not deal with these: `reduced` tells that a file exists, and its attributes.


@attack(open_in=(policy.REDUCED,))
def see_that_a_file_exists(folder: str) -> int:
    return os.stat(f"{folder}/secret").st_size


@attack(open_in=(policy.REDUCED,))
def see_whether_a_file_may_be_read(folder: str) -> None:
    if not os.access(f"{folder}/secret", os.R_OK):
        raise PermissionError(errno.EACCES, "it may not, or is not there")


@attack(open_in=(policy.REDUCED,))
def see_where_a_link_leads(folder: str) -> str:
    return os.readlink(f"{folder}/shortcut")


@attack(open_in=(policy.REDUCED,))
def hold_a_file_without_opening_it(folder: str) -> int:
    held = os.open(f"{folder}/secret", os.O_PATH)
    size = os.fstat(held).st_size
    os.close(held)
    return size


@attack(OSError)
def read_a_file_that_is_held(folder: str) -> bytes:
    """Through its number, where there is a /proc; the control does it so."""
    held = os.open(f"{folder}/secret", os.O_PATH)
    with open(f"/proc/self/fd/{held}", "rb") as file:
        return file.read()


raw("name_to_handle_at", -100, b"/", buffer, buffer, 0)
raw("open_by_handle_at", -100, buffer, 0)
raw("mknodat", -100, b"/attack/device", 0o20600, 0)
raw("fallocate", -1, 0, 0, 1)
raw("copy_file_range", -1, 0, -1, 0, 1, 0)
raw("sendfile", -1, -1, 0, 1)
raw("splice", -1, 0, -1, 0, 1, 0)
raw("vmsplice", -1, 0, 0, 0)
raw("tee", -1, -1, 1, 0)
raw("fanotify_init", 0xFFFF, 0)
raw("io_setup", 0, 0)
raw("quotactl", -1, 0, 0, 0)
raw("lookup_dcookie", 0, buffer, 1)
