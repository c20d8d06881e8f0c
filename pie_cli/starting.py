"""Finds the engine of a model, or starts one in the background. Many at once start one."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pie_cli import config, remote, settings
from pie_cli.connection import Connection, EngineLost, LocalConnection, OnWait, connect

CARD_SECONDS = 60.0  # until a new engine's hub answers; the model loads after that
FAILED = 3  # the daemon's exit code when the last line of its log says why
NOTICE_SECONDS = 5.0  # that another command may take to start the engine unnoticed
_POLL_SECONDS = 0.01


def find_engine(model: str | None) -> LocalConnection | None:
    """A connection to the running engine of that model, or of the default one."""
    name = model or settings.chosen_model()
    return connect(settings.engine_folder(name)) if name else None


def find_anywhere(
    model: config.Setting, keep_alive: float, on_start: Callable[[str], None],
    client: str | None = None, there: remote.Remote | None = None, on_wait: OnWait | None = None,
) -> Connection:  # fmt: skip
    """A connection to the engine at `there`, else to this machine's, as `find_or_start`."""
    if there:
        return remote.connect(there, client, model)
    user = config.value("run.client", client)
    with chosen(model) as name:
        return find_or_start(name, keep_alive, on_start, user, on_wait)


def find_or_start(
    model: str | None, keep_alive: float, on_start: Callable[[str], None],
    client: str | None = None, on_wait: OnWait | None = None,
) -> LocalConnection:  # fmt: skip
    """A connection to the model's engine on this machine. `on_start` is told the name of a model to be loaded.
    `client`: for whom the connection speaks. `on_wait`: is told why nothing happens for long.

    Raises EngineLost, StoreFailure and UsageError.
    """
    name = model or settings.chosen_model()
    if name and settings.is_stored(name):  # then all that start at once wait for the first
        return _start_once(name, keep_alive, on_start, client, on_wait)
    from pie_cli.models import resolve

    return _start_once(resolve(model)["name"], keep_alive, on_start, client, on_wait)


@contextmanager
def chosen(model: config.Setting) -> Iterator[str | None]:
    """The name of the setting `run.model`; a store that refuses it says where it was set."""
    try:
        yield model.value
    except Exception as error:
        models = sys.modules.get("pie_cli.models")  # whoever raised its error has loaded it
        if not (model.place and models and isinstance(error, models.StoreFailure)):
            raise
        words = f"{error} (the name comes from {model.place})"
        undo = f"without {model.place} it is the store's default"
        if model.source == "file":
            undo = f"`pie config unset {model.key.name}` takes the store's default"
        hint = f"{undo}; {error.hint}" if error.hint else undo
        raise models.StoreFailure(words, hint, error.exit_code) from None


def _start_once(
    model: str, keep_alive: float, on_start: Callable[[str], None], client: str | None,
    on_wait: OnWait | None,
) -> LocalConnection:  # fmt: skip
    folder = settings.engine_folder(model)

    def connected() -> LocalConnection | None:
        return connect(folder, client=client, on_wait=on_wait)

    if connection := connected():
        return connection
    from pie_cli.models import resolve

    prepare(folder)
    with _start_lock(folder, connected, on_wait) as connection:
        if connection or (connection := connected()):
            return connection
        facts = resolve(model)
        on_start(model)
        return _start(folder, model, facts["path"], keep_alive, client)


def prepare(folder: settings.EngineFolder) -> None:
    """The engine's folder, for this user alone."""
    settings.make_private(folder.path.parent)
    settings.make_private(folder.path)
    for file in folder.files:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))


@contextmanager
def _start_lock(
    folder: settings.EngineFolder,
    connected: Callable[[], LocalConnection | None],
    on_wait: OnWait | None,
) -> Iterator[LocalConnection | None]:
    """The right to start the engine; or a connection, once whoever has the right has started it."""
    descriptor = os.open(folder.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
    since = time.monotonic()
    try:
        while not (connection := connected()):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
            if on_wait and time.monotonic() - since > NOTICE_SECONDS:
                on_wait("another command is about to start the engine: this one waits for it")
                on_wait = None
        yield connection
    finally:
        os.close(descriptor)


def _start(
    folder: settings.EngineFolder, model: str, path: str, keep_alive: float, client: str | None
) -> LocalConnection:
    log = settings.new_log(model)
    command = [sys.executable, "-m", "pie_cli.engine.daemon", "--model", model]
    command += ["--model-path", path, "--log", str(log), "--keep-alive", str(keep_alive)]
    command += ["--sandbox", config.value("engine.sandbox")]
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            command, cwd=settings.ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
            start_new_session=True,  # it outlives this run, and its terminal
        )  # fmt: skip
    deadline = time.monotonic() + CARD_SECONDS
    while time.monotonic() < deadline:
        if connection := connect(folder, client=client):
            return connection
        if (status := daemon.poll()) is not None:
            words = last_words(log)
            if status != FAILED:
                words = f"the engine could not start: {words}"
            raise EngineLost(words, log=str(log))
        time.sleep(_POLL_SECONDS)
    daemon.kill()
    daemon.wait()
    raise EngineLost("the engine did not start in time", log=str(log))


def environment() -> dict[str, str]:
    """What the engine's processes see: this environment, with paths that hold anywhere."""
    return {**settings.program_environment(), "PIE_HOME": str(settings.home())}


def enter_environment() -> None:
    """The same for this process, which is to become the engine."""
    os.environ.update(environment())
    os.chdir(settings.ROOT)


def last_words(log: Path) -> str:
    """The last line of a log, or why it is empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    return "it wrote nothing" if os.statvfs(log).f_bavail else "the disk is full"
