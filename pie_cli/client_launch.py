"""What the Python client asks of an engine: a launch, or to join a process; and the engine itself."""

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipc import client as c
from pie_cli import config
from pie_cli.client_errors import BadRequest, NoSuchProcess
from pie_cli.client_link import Link
from pie_cli.client_process import Core
from pie_cli.connection import Connection
from pie_cli.usage import UsageError

SOURCE_NAME = "app.py"  # of an app that is no file


@dataclass(frozen=True)
class Launch:
    """The arguments of `Client.launch`."""

    app: str | Path | None = None
    input: Mapping[str, Any] | None = None
    source: str | None = None
    files: Mapping[str, bytes | str | Path] | None = None
    name: str | None = None
    limits: Mapping[str, int | str] | None = None
    priority: int = 0
    salt: str = ""
    timeout: float | None = None
    detach: bool = False
    output: str | Path | None = None

    def run(self) -> c.Run:
        """The request. Raises UsageError."""
        from pie_cli.app_source import read_app, read_modules
        from pie_cli.limits import parse_limits
        from pie_cli.run import files_folder

        if (self.app is None) == (self.source is None):
            raise UsageError("`launch` takes the path of an app, or `source`", "give one of them")
        app = SOURCE_NAME if self.app is None else str(self.app)
        source = read_app(app) if self.source is None else self.source
        modules = read_modules(app, source) if self.app is not None else {}
        limits = [f"{key}={value}" for key, value in (self.limits or {}).items()]
        return c.Run(
            0, app, source, modules, self._input(), self._files(), self.name, self.timeout,
            self.detach, self.salt, self.priority, parse_limits(limits), None,
            files_folder(str(self.output)) if self.output is not None else files_folder(None),
        )  # fmt: skip

    def _input(self) -> str:
        try:
            return json.dumps(dict(self.input or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"`input` is no JSON object: {error}") from None

    def _files(self) -> dict[str, bytes]:
        from pie_cli.arguments import read_file

        found = {
            name: read_file(str(data), "files") if isinstance(data, str | Path) else bytes(data)
            for name, data in (self.files or {}).items()
        }
        if (size := sum(map(len, found.values()))) > c.MAX_FILES:
            raise UsageError(f"`files` have {size:,} bytes, and may have {c.MAX_FILES >> 20} MiB")
        return found


def start(
    model: str | None, client: str | None, keep_alive: float | None, engine: str | None,
    key: str | Path | None,
) -> Connection:  # fmt: skip
    """A connection to the engine, which is started if need be; it loads its model meanwhile."""
    from pie_cli import remote
    from pie_cli.starting import find_anywhere

    return find_anywhere(
        config.setting("run.model", model), config.value("engine.keep_alive", keep_alive),
        lambda _: None, client, remote.chosen(engine, None if key is None else str(key)),
    )  # fmt: skip


def launched_core(link: Link, launch: Launch) -> Future:
    """The Core of a new process, once it runs. Raises UsageError at once, PieError later."""
    import msgspec

    run = launch.run()

    def then(answer: c.FromHub) -> Core | None:
        match answer:
            case c.Refused():
                raise BadRequest(answer.message, answer.hint)
            case c.Queued() | c.Launched():
                if run.detach:
                    return Core(link, answer.process, run.app)
                core = link.hearer(answer.process)
                if core is None:
                    core = Core(link, answer.process, run.app)
                    link.hear(answer.process, core)
                return None if isinstance(answer, c.Queued) else core
        return None

    return link.ask(lambda number: msgspec.structs.replace(run, request=number), then)


def attached_core(link: Link, id: str) -> Future:
    """The Core of a process that lives or is remembered; the same for all who ask."""

    def then(answer: c.Attached | c.Unknown) -> Core:
        if isinstance(answer, c.Unknown):
            raise NoSuchProcess(f"no process `{id}`", "`processes()` lists those that live")
        core = link.hearer(id)
        if core is None:
            core = Core(link, id, answer.app)
            link.hear(id, core)
        return core

    if isinstance(known := link.hearer(id), Core):
        future: Future = Future()
        future.set_result(known)
        return future
    return link.ask(lambda number: c.Attach(number, id), then)
