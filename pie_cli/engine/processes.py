"""The processes of one engine: which live, what is remembered of those that have ended, their ids.

Starts and ends none.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import PurePath

from pie_cli.engine.ids import Ids
from pie_cli.engine.process import Process
from pie_cli.engine.record import Record, kept_each

KEPT_ENDED = 200  # processes
KEPT_ENDED_SIZE = 64 << 20  # of all their records
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """Whether a process may have that id."""
    return _NAME.fullmatch(text) is not None


class Processes:
    """By id until their end was told, by number until the operating system's process is gone."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.by_id: dict[str, Process] = {}
        self.by_number: dict[int, Process] = {}
        self._ended: OrderedDict[str, Record] = OrderedDict()
        self._ended_size = 0
        self.last_number = 0

    def new_record(self, app: str, name: str | None, client: str) -> Record:
        """Of a process with that name, or one that nobody has had since the engine started."""
        self.last_number += 1
        id = name or self._new_id(app)
        return Record(id, self.last_number, app, client, lambda: kept_each(len(self.by_number)))

    def add(self, process: Process) -> None:
        self.by_id[process.id] = self.by_number[process.number] = process

    def told_its_end(self, process: Process) -> None:
        """Its id is free again, though the process may not have left yet; its record is kept."""
        self._ids.release(process.id)
        del self.by_id[process.id]
        self._forget(process.id)
        self._ended[process.id] = process.record
        self._ended_size += process.record.size
        while len(self._ended) > KEPT_ENDED or self._ended_size > KEPT_ENDED_SIZE:
            if len(self._ended) == 1:
                return
            self._forget(next(iter(self._ended)))

    def take_name(self, name: str) -> bool:
        """Whether a new process may have that name; it has it from now on."""
        return name not in self.by_id and self._ids.take(name)

    def gone(self, process: Process) -> None:
        del self.by_number[process.number]

    def wait_for_worker(self, wait: bool) -> None:
        for process in self.by_number.values():
            process.wait_for_worker(wait)

    def record(self, id: str) -> Record | None:
        """Of the live process with that id, else of the last that had it."""
        process = self.by_id.get(id)
        return process.record if process else self._ended.get(id)

    def found(self, ids: Iterable[str], may_see: Callable[[str], bool]) -> dict[str, Process]:
        """The live ones of those ids, of clients that one may see."""
        live = {id: self.by_id[id] for id in ids if id in self.by_id}
        return {id: process for id, process in live.items() if may_see(process.record.client)}

    def _forget(self, id: str) -> None:
        if record := self._ended.pop(id, None):
            self._ended_size -= record.size

    def _new_id(self, app: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", PurePath(app).stem).strip("-._")[:40] or "app"
        id = f"{stem}-{self._ids.next_number()}"
        while id in self.by_id or id in self._ended:  # somebody chose that name
            id += "x"
        return id
