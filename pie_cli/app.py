"""The command tree. Imports no more than help needs: each verb fetches the rest when it runs."""

from typing import Annotated

import typer

from pie_cli import (
    attach, bench, check, completion_scripts, config_verbs, doctor, inspect, key_verbs, logs, models,
    new, ps, python, run, run_options, send, serve, trace,
)  # fmt: skip
from pie_cli import version as versions

SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="pie",
    help="Programs that drive a language model.",
    no_args_is_help=True,
    add_completion=False,  # ours answers without this tree
    # Help is plain text: it is the same everywhere, and quick.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


@app.callback()
def pie(
    install_completion: Annotated[
        bool,
        typer.Option(
            "--install-completion", help="Set up completion for this shell.", is_eager=True,
            callback=completion_scripts.on_install,
        ),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="tcp://HOST:PORT",
            help="Use an engine on another machine, also after a verb; `local` means this one's.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FILE", help="The key for it, made there by `pie key new`."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="The same as `pie version`.", is_eager=True,
            callback=versions.on_version,
        ),
    ] = False,
) -> None:  # fmt: skip
    """Programs that drive a language model."""


app.command("run")(run_options.typer_command(run.run))
app.command()(serve.serve)
app.command()(ps.ps)
app.command()(attach.attach)
app.command()(send.send)
app.command()(logs.logs)
app.command()(trace.trace)
app.command()(ps.kill)
app.command()(ps.stop)
app.command(cls=check.WithWords)(check.check)
app.command(cls=check.WithWords)(inspect.inspect)
app.command()(new.new)
app.command(context_settings=python.PASS_ON)(python.python)
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(completion_scripts.completion)
app.command()(versions.version)
app.add_typer(models.app, name="models", rich_help_panel=None)
app.add_typer(key_verbs.app, name="key", rich_help_panel=None)
app.add_typer(config_verbs.app, name="config", rich_help_panel=None)


def help_text(words: list[str]) -> str | None:
    """The help of the verb that `words` name before any option; None when there is none such.

    Like the parser's, but without what it imports to check values.
    """
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="pie", **SETTINGS)
    for word in words:
        if word.startswith("-"):
            break
        verbs = getattr(command, "commands", None)
        if verbs is None:  # an argument of the verb
            break
        if word not in verbs:
            return None
        command = verbs[word]
        context = typer.Context(command, info_name=word, parent=context)
    return command.get_help(context)
