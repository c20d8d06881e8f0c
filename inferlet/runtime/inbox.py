"""What arrives: frames from the hub, handed to the objects that they concern, in order."""

from inferlet.runtime.failures import engine_failure
from inferlet.runtime.handles import Runtime
from ipc import codec, frames
from ipc import messages as m


class Inbox:
    """Dispatches the frames of one process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def on_frame(self, kind: int, body: bytes) -> bool:
        """Whether the engine is leaving, and the process is to do so too."""
        if kind == frames.ENGINE:
            for event in codec.decode_events(body):
                self._on_event(event)
            return False
        message = codec.decode_to_inferlet(body)
        self._on_message(message)
        return isinstance(message, m.Leave)

    def _on_event(self, event: m.Event) -> None:
        runtime = self._runtime
        match event:
            case m.Fired() | m.Failed():
                pipeline = runtime.pipelines.get(event.pipeline)
                if pipeline is None:  # closed and forgotten: an undone fire
                    return
                if isinstance(event, m.Fired):
                    pipeline.on_fired(event)
                else:
                    pipeline.on_failed(event)
            case m.Cells(channel, cells):
                watched = runtime.channels.get(channel)
                if watched is not None:  # else the user dropped it
                    watched._pay(cells)
            case m.Goodbye(failure):
                runtime.fail(engine_failure(failure))

    def _on_message(self, message: m.ToInferlet) -> None:
        match message:
            case m.Inbox():
                self._runtime.conversation.on_message(message)
            case m.InboxClosed():
                self._runtime.conversation.on_closed()
            case m.SentTo(outcome):
                self._runtime.conversation.on_sent_to(outcome)
            case m.FilePart():
                self._runtime.conversation.on_file_part(message)
            case m.FilesClosed():
                self._runtime.conversation.on_files_closed()
            case m.Engine(failure):
                self._runtime.fail(engine_failure(failure))
