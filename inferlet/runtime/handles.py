"""The one Runtime of a process: facts of the engine, numbers of handles, and the way out.

Handles are numbered here, each kind from 0, so that making one waits for nobody.
"""

import itertools
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from inferlet.errors import InferletError
from inferlet.runtime.failures import MakeError
from inferlet.runtime.outbox import Outbox
from ipc import messages as m
from ipc.types import EngineInfo, ModelInfo

if TYPE_CHECKING:
    from inferlet.channel import Channel
    from inferlet.runtime.binding import BoundPass
    from inferlet.runtime.conversation import Conversation
    from inferlet.runtime.fires import PipelineState
    from inferlet.runtime.tokenizer import Vocabulary


class Runtime:
    """What the API's objects share. Made before the user's code is loaded."""

    def __init__(
        self,
        outbox: Outbox,
        model: ModelInfo,
        engine: EngineInfo,
        vocabulary: "Vocabulary",
        conversation: "Conversation",
    ) -> None:
        self.outbox = outbox
        self.model = model
        self.engine = engine
        self.vocabulary = vocabulary
        self.conversation = conversation
        self.pipelines: dict[int, PipelineState] = {}
        self.result_bytes_coming = 0  # of fires that were accepted, or may be in flight
        self.channels: weakref.WeakValueDictionary[int, Channel] = weakref.WeakValueDictionary()
        self.programs: set[bytes] = set()  # ids that the worker has
        self.on_bind: Callable[[BoundPass], None] | None = None  # for tools: each new pass
        self.failure: MakeError | None = None  # the engine is gone
        self._numbers = {kind: itertools.count() for kind in ("channel", "pass", "set", "pipeline")}

    def number(self, kind: str) -> int:
        """The next unused handle of a kind."""
        return next(self._numbers[kind])

    def command(self, command: m.Command) -> None:
        self.outbox.command(command)

    def define_program(self, program_id: bytes, code: bytes) -> None:
        """Once per process and program."""
        if program_id not in self.programs:
            self.programs.add(program_id)
            self.command(m.DefineProgram(code))

    def drop_with(self, handle: object, command: m.Command) -> None:
        """Sends `command` once the user's handle is garbage."""
        weakref.finalize(handle, self.outbox.command, command).atexit = False

    def check_alive(self) -> None:
        """InferletError when the engine is gone."""
        if self.failure:
            raise self.failure()

    def fail(self, failure: MakeError) -> None:
        """Every pending and later await fails."""
        if self.failure:
            return
        self.failure = failure
        for pipeline in list(self.pipelines.values()):
            pipeline.fail(failure)
        self.conversation.wake()

    def close(self) -> None:
        """`main` has ended: accepted fires settle or are dropped with the process."""
        for pipeline in list(self.pipelines.values()):
            pipeline.close()


_current: Runtime | None = None
# Of several inferlets in one process, each a task of its own: for tests.
_of_task: ContextVar[Runtime | None] = ContextVar("runtime", default=None)


def install(runtime: Runtime | None) -> None:
    """Makes `runtime` the one that the API uses."""
    global _current
    _current = runtime


def install_for_task(runtime: Runtime) -> None:
    """The same for this task alone, and what it starts."""
    _of_task.set(runtime)


def is_installed() -> bool:
    return _current is not None or _of_task.get() is not None


def current() -> Runtime:
    """The Runtime of this process; InferletError outside of an inferlet."""
    runtime = _of_task.get() or _current
    if runtime is None:
        raise InferletError(
            "there is no engine here\n\nhint: run the program with `pie run`, or in a test with "
            "`inferlet.testing.run(main)`"
        )
    return runtime
