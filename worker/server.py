"""The worker's end of the link: controls of the hub, and commands of every process, in order.

A process that breaks the protocol is told goodbye and forgotten; what it still sends is ignored.
"""

import logging

from ipc import codec
from ipc import messages as m
from ipc.errors import ErrorCode, Failure, ProtocolError
from ipc.transport import Link
from worker import commands, settle
from worker.state import Process, State
from worker.violation import Violation

log = logging.getLogger("worker")


class Server:
    def __init__(self, state: State, link: Link) -> None:
        self.state = state
        self.link = link
        self.stopping = False

    def drain(self) -> None:
        """Carries out everything that has arrived. Never waits."""
        while (message := self.link.receive()) is not None:
            notices, batches = message
            started = [notice for notice in notices if isinstance(notice, m.ProcessStarted)]
            for notice in started:
                self.state.processes[notice.number] = Process(
                    notice.number, notice.limits, notice.salt, notice.priority
                )
            for number, data in batches:
                process = self.state.processes.get(number)
                if process is not None:
                    self._handle(process, data)
            # After the batches: what a process sent before it ended is older than its end.
            for notice in notices:
                if isinstance(notice, m.ProcessEnded):
                    self._end(notice.number)
                elif isinstance(notice, m.Shutdown):
                    self.stopping = True

    def _handle(self, process: Process, data: bytes) -> None:
        try:
            for command in codec.decode_commands(data):
                commands.handle(self.state, process, command)
        except Violation as violation:
            self._drop(process, Failure(violation.code, str(violation), limit=violation.limit))
        except ProtocolError as error:
            self._drop(process, Failure(ErrorCode.INVALID_COMMAND, f"unreadable command: {error}"))
        except Exception:
            self._bug(process)

    def _bug(self, process: Process) -> None:
        """A bug of ours must not reach other processes."""
        log.exception("process %d: a command could not be carried out", process.number)
        failure = Failure(ErrorCode.INVALID_COMMAND, "the engine could not carry out a command")
        self._drop(process, failure)

    def _drop(self, process: Process, failure: Failure) -> None:
        log.warning("process %d is dropped: %s", process.number, failure.message)
        self.state.emit(process, m.Goodbye(failure))
        settle.release_process(self.state, process)
        self.state.forget(process)

    def _end(self, number: int) -> None:
        process = self.state.processes.get(number)
        self.state.events.pop(number, None)
        if process is not None:
            self.state.forget(process)
            settle.release_process(self.state, process)
