"""An app's source and the modules beside it that its imports name. Parses them, runs nothing."""

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pie_cli.usage import UsageError, nearest


def read_app(path: str, verb: str = "run") -> str:
    """The text of APP.py. UsageError, for that verb, when there is no such file, or it cannot be
    read."""
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        hint = f"`pie {verb}` takes a path to a Python file; examples are in `inferlets/`"
        raise UsageError(f"No inferlet at `{path}`", _meant(path, hint)) from None
    except IsADirectoryError:
        raise UsageError(
            f"`{path}` is a folder", f"`pie {verb}` takes a path to a Python file"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return _text(data, path)


def _meant(path: str, hint: str) -> str:
    """The hint, with an app of about that name: where it was looked for, else of the examples."""
    stem = os.path.basename(path).removesuffix(".py")
    found = {}
    for folder in ("inferlets", os.path.dirname(path)):
        with suppress(OSError, ValueError):
            names = [name for name in os.listdir(folder or ".") if name.endswith(".py")]
            found |= {name.removesuffix(".py"): os.path.join(folder, name) for name in names}
    near = nearest(stem, found)
    return f"did you mean `{found[near]}`? {hint}" if near else hint


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8: {error}") from None


def read_modules(path: str, source: str) -> dict[str, str]:
    """Module name -> source, of what lies beside the app and its imports name, theirs included.

    A package is its `__init__` under its own name, and each named submodule under its dotted one.
    """
    found = ((name, text) for name, _, text in _walk(path, source) if text is not None)
    return dict(sorted(found))


def module_files(path: str, source: str) -> list[Path]:
    """The files of `read_modules`, and where those would lie that imports name and are not there."""
    return [file for _, file, _ in _walk(path, source)]


def _walk(path: str, source: str) -> Iterator[tuple[str, Path, str | None]]:
    """(name, file, text) of every module that the imports may mean; text None: not beside.

    Of a link, beside it comes before beside what it points to.
    """
    places = os.path.abspath(path), os.path.realpath(path)
    folders = dict.fromkeys(Path(place).parent for place in places)
    waiting = list(imported_names(source, ""))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = (_locate(folder, name) for folder in folders)
        file, package = next((each for each in found if each[0]), (None, ""))
        if file is None:
            for folder in folders:
                yield name, folder.joinpath(*name.split(".")).with_suffix(".py"), None
            continue
        text = _text(file.read_bytes(), str(file))
        yield name, file, text
        waiting += imported_names(text, package)


def _locate(folder: Path, name: str) -> tuple[Path | None, str]:
    """(file, package that its relative imports start from) of a module; None when not beside."""
    base = folder.joinpath(*name.split("."))
    if (base / "__init__.py").is_file():
        return base / "__init__.py", name
    if (file := base.with_name(base.name + ".py")).is_file():
        return file, name.rpartition(".")[0]
    return None, ""


def imported_names(source: str, package: str) -> Iterator[str]:
    """Every module that the source's imports may mean, parents first.

    Source that does not parse names none: it fails where it runs, with a proper traceback.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from _with_parents(base)
            for alias in node.names:  # `from package import module`
                yield from _with_parents(f"{base}.{alias.name}" if base else alias.name)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _with_parents(name: str) -> Iterator[str]:
    parts = [part for part in name.split(".") if part]
    for end in range(1, len(parts) + 1):
        if parts[end - 1] != "*":
            yield ".".join(parts[:end])


def docstring(source: str, path: str) -> str:
    """The app's own description, empty when it has none."""
    try:
        return ast.get_docstring(ast.parse(source, path)) or ""
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"`{path}` does not parse: {error}") from None
