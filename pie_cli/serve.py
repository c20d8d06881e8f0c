"""`pie serve`: the engine in the foreground, until Ctrl-C."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ipc.types import Limits
    from pie_cli.addresses import Listener
    from pie_cli.settings import EngineFolder
    from pie_cli.usage import UsageError


class Sandbox(str, Enum):
    """`full` insists on namespaces besides Landlock and seccomp."""

    auto = "auto"
    full = "full"


def serve(
    model: Annotated[str | None, typer.Option(metavar="NAME", help="A model of the store.")] = None,
    sandbox: Annotated[
        Sandbox | None, typer.Option(help="`full` refuses to start with less.")
    ] = None,
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Run inferlets that you trust without one.")
    ] = False,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics", metavar="PORT", min=0, max=65535,
            help="Figures for Prometheus at http://127.0.0.1:PORT/metrics.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="tcp://HOST:PORT",
            help="Take clients on other machines, by key: see `pie key`. HOST is a number or `*`.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="KEY=N,…", help="The engine's own limits, like memory=4G,cpu=3600."
        ),
    ] = None,
) -> int:  # fmt: skip
    """Run the engine in the foreground until Ctrl-C.

    Prints one line when it is ready.
    """
    import asyncio

    from pie_cli import config, remote, settings
    from pie_cli.connection import EngineLost
    from pie_cli.engine.daemon import serve as serve_engine
    from pie_cli.engine.daemon import take_lock
    from pie_cli.engine.options import HubOptions
    from pie_cli.engine.worker_process import WorkerOptions
    from pie_cli.models import resolve
    from pie_cli.serve_front import Foreground
    from pie_cli.starting import chosen, enter_environment, prepare

    remote.refuse("`pie serve` runs an engine on this machine", only_flag=True)
    if listen is not None:
        check_listening(listen)
    limits = engine_limits(limit or [])
    wanted = config.value("engine.sandbox", sandbox and sandbox.value)
    tier = "none" if unsafe_no_sandbox else wanted
    with chosen(config.setting("run.model", model)) as name:
        facts = resolve(name)
    folder = settings.engine_folder(facts["name"])
    prepare(folder)
    if take_lock(folder) is None:  # else it is held until this process ends
        raise is_running(folder, facts["name"])
    listener = listener_at(listen) if listen else None
    enter_environment()
    log = str(settings.new_log(facts["name"]))
    options = HubOptions(
        WorkerOptions(settings.worker_module(), facts["name"], facts["path"]),
        folder.hub_address, folder.worker_address, log,
        tier, None, limits, metrics, listener,
    )  # fmt: skip
    front = Foreground(log, options.listener)
    try:
        end = asyncio.run(serve_engine(options, folder, front))
    finally:
        front.close()
    if end.failure:
        raise EngineLost(end.failure, end.hint, log)
    return 0


def check_listening(address: str) -> None:
    """Raises UsageError for what is no address, and where there is no key."""
    from pie_cli import addresses, keys

    addresses.place(address)
    keys.server_secret()


def listener_at(address: str) -> "Listener":
    """A socket that listens there. Raises EngineLost."""
    from pie_cli.addresses import listen
    from pie_cli.connection import EngineLost

    try:
        return listen(address)
    except OSError as error:
        hint = "choose another with `--listen tcp://HOST:PORT`"
        raise EngineLost(f"cannot listen at {address}: {error.strerror}", hint) from None


def is_running(folder: "EngineFolder", model: str) -> "UsageError":
    """The error of a second engine of one model."""
    from pie_cli import cards
    from pie_cli.usage import UsageError

    card = cards.read(folder)
    who = f" (process {card.pid})" if card else ""
    return UsageError(f"an engine with `{model}` is running{who}", "`pie stop` ends it")


def engine_limits(texts: list[str]) -> "Limits":
    """The limits of every process, unless its launch lowers them. Raises UsageError."""
    from ipc.types import Limits
    from pie_cli.limits import parse_limits

    asked = parse_limits(texts)
    wanted = {key: getattr(asked, key) for key in asked.__struct_fields__}
    return Limits(**{key: value for key, value in wanted.items() if value is not None})
