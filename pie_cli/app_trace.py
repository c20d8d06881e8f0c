"""What an app records, found out by running it against the fake engine in a sandboxed process.

Shared by `pie check` and `pie inspect`. Needs no engine and no model; with one in the store its
tokenizer is used. Trusts nothing that the process says.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipc import codec, frames
from ipc import messages as m
from ipc.errors import ProtocolError
from ipc.types import EngineInfo, ModelInfo

if TYPE_CHECKING:
    from pie_cli.engine.launcher import Launcher

ENTRY = "inferlet.testing.check_app:run"
SECONDS = 20.0
MAX_NUMBERS = 32  # inputs that turn out to be numbers, one after the other
MAX_SAID = 64 << 20  # bytes
LaunchWith = Callable[[dict[str, Any]], m.Launch]  # an input
_FAKE = ModelInfo("fake", "fake", "", 0, 0, 2, 8, 4096, "float32")


@dataclass
class Report:
    """`error`: file, line, type and message of what ended `main`. `forgotten`: as many of what it
    did not await. `numbers`: those of `assumed` that it uses as numbers. `is_over`: it came to its
    end."""

    passes: list[dict[str, Any]] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    forgotten: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    traceback: str = ""
    is_over: bool = False

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [*([self.error] if self.error else []), *self.forgotten]

    @property
    def fault(self) -> dict[str, Any] | None:
        """The first of them."""
        return next(iter(self.faults), None)

    @property
    def channels(self) -> dict[int, dict[str, Any]]:
        """Each channel once, with what all passes do to it."""
        found: dict[int, dict[str, Any]] = {}
        for channel in (channel for made in self.passes for channel in made["channels"]):
            known = found.setdefault(channel["number"], dict(channel))
            known["puts"] |= channel["puts"]
            known["reads"] |= channel["reads"]
        return dict(sorted(found.items()))


class SandboxFailed(Exception):
    """The app could not be run confined, so it was not run."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def trace_app(
    app: str, value: dict[str, Any], files: dict[str, bytes], verb: str = "check"
) -> Report:
    """Runs the app; raises UsageError when it cannot be read, SandboxFailed when not confined."""
    from pie_cli.app_source import read_app, read_modules

    source = read_app(app, verb)
    model = _stored_model()

    def launch_with(value: dict[str, Any]) -> m.Launch:
        return m.Launch(
            "check-1", app, source, read_modules(app, source), json.dumps(value), files,
            model or _FAKE, EngineInfo(codec.PROTOCOL_VERSION, 16, 1024),
        )  # fmt: skip

    return asyncio.run(_trace(launch_with, value, model.path if model else None))


def _stored_model() -> ModelInfo | None:
    """Facts of the default model, when there is one and all that a check needs is known of it."""
    from pie_cli import settings
    from pie_cli.models import StoreFailure, ask_store

    name = settings.chosen_model()
    try:
        facts = ask_store("show", name) if name else {}
    except StoreFailure:
        return None
    size, layers, context = (facts.get(key) for key in ("vocabulary", "layers", "context"))
    if not (size and layers and context):
        return None
    return ModelInfo(
        facts["name"], facts["architecture"], facts["path"], size, size, layers, _FAKE.width,
        context, facts["dtype"], tuple(facts["outputs"]),
    )  # fmt: skip


async def _trace(launch_with: LaunchWith, value: dict[str, Any], model_path: str | None) -> Report:
    """Runs the app until it finds no more words where it computes with numbers."""
    from pie_cli.engine.launcher import Launcher, LaunchError
    from pie_cli.sandbox import selftest

    try:
        tier = await asyncio.to_thread(selftest.choose)
    except selftest.SandboxUnavailable as error:
        raise SandboxFailed(str(error), error.hint) from None
    launcher = Launcher(tier.name, model_path, None, entry=ENTRY, num_spares=0)
    numbers: dict[str, float] = {}
    try:
        await launcher.start()
        for is_last in (*[False] * MAX_NUMBERS, True):
            report = await _run(launcher, launch_with(value | numbers))
            more = {key: number for key, number in report.numbers.items() if key not in value | numbers}
            report.numbers = numbers
            report.assumed += [key for key in numbers if key not in report.assumed]
            if is_last or not more:
                return report
            numbers |= more
    except LaunchError as error:
        raise SandboxFailed(str(error)) from None
    finally:
        await launcher.close()


async def _run(launcher: "Launcher", launch: m.Launch) -> Report:
    from pie_cli.engine.launcher import Limits

    launched = await launcher.launch(Limits())
    report = Report()
    try:
        await asyncio.wait_for(_converse(launched.sock, launch, report), SECONDS)
    except TimeoutError:
        return report
    finally:
        launched.sock.close()
    end = await launched.exited
    if end.setup_failed:
        raise SandboxFailed(f"the app's process could not be confined: {end.setup_failed}")
    if not report.is_over:
        report.error = _ended(end.status)
    return report


def _ended(status: int) -> dict[str, Any]:
    what = f"signal {-status}" if status < 0 else f"exit code {status}"
    return {"file": "", "line": 0, "type": "Ended", "message": f"the process ended with {what}"}


async def _converse(sock: Any, launch: m.Launch, report: Report) -> None:
    """Sends the launch and hears the process to its end."""
    loop = asyncio.get_running_loop()
    reader, heard = frames.FrameReader(), 0
    try:
        await loop.sock_sendall(sock, frames.pack(frames.HUB, codec.encode(launch)))
        while data := await loop.sock_recv(sock, 1 << 18):
            heard += len(data)
            if heard > MAX_SAID:
                return
            for kind, body in reader.feed(data):
                if kind == frames.HUB:
                    _note(report, codec.decode_from_inferlet(body))
    except (ConnectionError, ProtocolError):
        return


def _note(report: Report, message: m.FromInferlet) -> None:
    match message:
        case m.Send(True, text):
            said = json.loads(text)
            if "pass" in said:
                report.passes.append(said["pass"])
            report.assumed = said.get("assumed", report.assumed)
            report.numbers = said.get("numbers", report.numbers)
            report.forgotten = said.get("forgotten", report.forgotten)
        case m.Output(_, text):
            report.output.append(text)
        case m.Returned():
            report.is_over = True
        case m.Raised(_, fault, trace):
            report.is_over, report.error, report.traceback = True, json.loads(fault), trace
