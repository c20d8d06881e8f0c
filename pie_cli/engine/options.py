"""What an engine is started with."""

from dataclasses import dataclass, field

from ipc.types import Limits
from pie_cli.addresses import Listener
from pie_cli.engine.worker_process import WorkerOptions


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
