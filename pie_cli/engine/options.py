"""What an engine is started with."""

from dataclasses import dataclass, field

from ipc import client as c
from ipc import messages as m
from ipc.types import Limits
from pie_cli.addresses import Listener
from pie_cli.engine.worker_process import WorkerOptions


class Front:
    """Who watches an engine in its own process: nobody, in the background."""

    def progress(self, progress: c.Progress) -> None:
        """On the way to a worker that is ready, be it the first or a later one."""

    def ready(self, ready: m.Ready, sandbox: str) -> None:
        """It takes launches; with the sandbox's description."""

    def signalled(self, number: int) -> None:
        """A signal says that it is to leave."""


@dataclass(frozen=True)
class HubOptions:
    """Of the hub, and through it of its parts."""

    worker: WorkerOptions
    hub_address: str
    worker_address: str
    log_path: str
    sandbox: str  # "auto" | "full" | "none"
    keep_alive: float | None  # seconds without a process; None: for ever
    limits: Limits = field(default_factory=Limits)  # of each process
    metrics_port: int | None = None  # on loopback; 0: any
    listener: Listener | None = None  # for clients on other machines
    files_folder: str = ""  # of files of apps, unless their launch names another; "": the home's

    @property
    def listens(self) -> str:
        """The address for clients on other machines; "": none."""
        return self.listener.address if self.listener else ""
