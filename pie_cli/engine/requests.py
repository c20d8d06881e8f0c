"""What clients ask about processes that live, or are remembered. Launches and ends none."""

from collections.abc import Callable

from ipc import client as c
from ipc import messages as m
from pie_cli.engine import file_inbox, file_store
from pie_cli.engine.clients import Client
from pie_cli.engine.happenings import Happenings, spans
from pie_cli.engine.process import Process
from pie_cli.engine.processes import Processes
from pie_cli.engine.record import Record
from pie_cli.engine.views import Tell


class Requests:
    """Answers each request at once."""

    def __init__(
        self, processes: Processes, happenings: Happenings, tell: Tell, model: str
    ) -> None:
        self._processes, self._happenings = processes, happenings
        self._tell, self._model = tell, model
        self._refused_files: set[tuple[Client, int]] = set()  # whose other parts may still come

    def handle(self, client: Client, message: c.FromClient) -> bool:
        """Whether it was such a request."""
        handler: Callable[[Client, c.FromClient], None] | None = _HANDLERS.get(type(message))
        if handler is None:
            return False
        handler(self, client, message)
        return True

    def forget(self, client: Client) -> None:
        """That client sends no more."""
        self._refused_files = {key for key in self._refused_files if key[0] is not client}

    def send_to(self, sender: Process, message: m.SendTo) -> str:
        """A message of one process to another; the outcome for SentTo."""
        target = self._processes.by_id.get(message.process)
        if target is None:
            return c.UNKNOWN
        if target.record.client != sender.record.client:
            return c.OTHER_CLIENT
        has_room = target.put(m.Inbox(message.is_json, message.text))
        return "" if has_room else c.FULL

    # ---- into a process

    def _message(self, client: Client, message: c.Message) -> None:
        outcome = self._refusal(client, message.process)
        process = self._processes.by_id.get(message.process)
        if not outcome and process.inbox.is_closed:
            outcome = c.CLOSED
        if not outcome:
            inbox = m.Inbox(message.is_json, message.text)
            has_room = process.put(inbox, client, even_full=not message.request)
            outcome = c.ACCEPTED if has_room else c.FULL
        if message.request:
            self._tell(client, c.Answered(message.request, outcome))

    def _close_input(self, client: Client, message: c.CloseInput) -> None:
        if not self._refusal(client, message.process):
            self._processes.by_id[message.process].close_inbox()

    def _file_part(self, client: Client, part: c.FilePart) -> None:
        key = client, part.request
        if key in self._refused_files:
            if part.sha256:
                self._refused_files.discard(key)
            return
        if outcome := self._refusal(client, part.process):
            if not part.sha256:
                file_inbox.remember(self._refused_files, key)
            self._tell(client, c.Answered(part.request, outcome))
            return
        answer = self._processes.by_id[part.process].put_file(client, part)
        if answer:
            self._tell(client, c.Answered(part.request, *answer))

    def _refusal(self, client: Client, id: str) -> str:
        process = self._processes.by_id.get(id)
        if process is None:
            return c.UNKNOWN
        if process.client is client or process.record.client == client.user:
            return ""
        return c.UNKNOWN if client.is_remote else c.OTHER_CLIENT

    # ---- of a process

    def _attach(self, client: Client, message: c.Attach) -> None:
        record = self._record(client, message)
        if record is None:
            return
        process = self._processes.by_id.get(record.id)
        self._tell(
            client,
            c.Attached(
                message.request, record.id, record.app, record.client, self._model, record.sandbox,
                record.launched_at, process is not None, record.missed if message.past else 0,
            ),
        )  # fmt: skip
        if process:
            process.attach(client, past=message.past)
            return
        for event in record.past() if message.past else ():
            self._tell(client, event)
        self._tell(client, record.terminal)

    def _detach(self, client: Client, message: c.Detach) -> None:
        process = self._processes.by_id.get(message.process)
        if process and (process.client is not client or process.run.detach):
            process.forget(client)

    def _shown(self, client: Client, message: c.Shown) -> None:
        if process := self._processes.by_id.get(message.process):
            process.shown(client, message.size)

    def _read_log(self, client: Client, message: c.ReadLog) -> None:
        record = self._record(client, message)
        if record is None:
            return
        process = self._processes.by_id.get(record.id)
        kept = record.output
        log = c.Log(
            message.request, record.id, tuple(kept.events), process is not None, kept.bytes_missed
        )
        self._tell(client, log)
        if message.follow and process:
            process.views.add(client, output_alone=True)
        elif message.follow:
            self._tell(client, record.terminal)

    def _read_trace(self, client: Client, message: c.ReadTrace) -> None:
        record = self._record(client, message)
        if record is None:
            return
        found, missed = self._happenings.of(record.number)
        self._tell(
            client,
            c.Timeline(
                message.request, record.id, record.app, tuple(spans(found)),
                record.id in self._processes.by_id, missed,
            ),
        )  # fmt: skip

    def _read_file(self, client: Client, message: c.ReadFile) -> None:
        record = self._record(client, message)
        if record is None:
            return
        data, error = b"", f"the file {message.number} is not known any more"
        if stored := record.stored(message.number):
            data, error = file_store.read_part(stored.path, message.offset)
        self._tell(client, c.FileData(message.request, record.id, data, error))

    def _record(
        self, client: Client, message: c.Attach | c.ReadLog | c.ReadTrace | c.ReadFile
    ) -> Record | None:
        """Of the process that a message names; the client is told when there is none for it."""
        record = self._processes.record(message.process)
        if record is None or not client.may_see(record.client):
            self._tell(client, c.Unknown(message.request, message.process))
            return None
        return record


_HANDLERS = {
    c.Message: Requests._message, c.CloseInput: Requests._close_input,
    c.FilePart: Requests._file_part, c.Attach: Requests._attach, c.Detach: Requests._detach,
    c.Shown: Requests._shown, c.ReadLog: Requests._read_log,
    c.ReadTrace: Requests._read_trace, c.ReadFile: Requests._read_file,
}  # fmt: skip
