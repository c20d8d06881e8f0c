"""The user's program: its modules from memory, its `main`, and its value or error as the last word.

Knows nothing of the descriptor: what comes in is a Launch, what goes out a Returned or a Raised.
"""

import importlib
import importlib.abc
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from inferlet.errors import InferletError, with_hint
from inferlet.runtime import json_text, source
from inferlet.runtime.advice import advice
from inferlet.runtime.failures import limit_of
from inferlet.runtime.suggestions import suggestion
from ipc import messages as m

_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# What the disk has beside these differs from machine to machine, and is of no use in a sandbox.
_IMPORTABLE = {*sys.stdlib_module_names, "inferlet", "ipc", "numpy"}
_HINT = "an inferlet imports the standard library, numpy, inferlet, and the modules beside it"
_MACHINERY = {
    "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", importlib.__file__,
}  # fmt: skip
_SCALARS = (str, int, float, bool)  # which an input is not
_SCALAR_NAMES = tuple(kind.__name__ for kind in _SCALARS)
MAX_MEMBERS = 10  # errors of a group that are named


class App:
    """One launched program."""

    def __init__(self, launch: m.Launch) -> None:
        self._launch = launch
        self._finder = ModuleFinder(launch.modules, launch.app)
        self._input_name = ""  # what `main` calls it
        self.filenames = {launch.app, *self._finder.filenames.values()}

    async def run(self) -> m.Returned | m.Raised:
        """Loads the program and runs `main`. Whatever it raises is the answer."""
        try:
            main = self._load()
            value = main(*self._arguments(main))
            if inspect.isawaitable(value):
                value = await value
            return m.Returned(to_json(value))
        # SystemExit, KeyboardInterrupt and MemoryError end an inferlet as any error does.
        except BaseException as error:  # noqa: BLE001
            return self.raised(error)

    def raised(self, error: BaseException) -> m.Raised:
        """The terminal message for an error, with the user's own frames."""
        message = _text_of(error)
        if "hint: " not in message:
            hint = suggestion(error) or advice(error, message, self.filenames, self._input_name)
            message = with_hint(message, hint)
        if isinstance(error, BaseExceptionGroup):
            message = "\n".join([message, *self._members(error)])
        trace = source.own_frames(error, self.filenames)
        return m.Raised(type(error).__name__, message, _encodable(trace), limit_of(error))

    def _members(self, group: BaseExceptionGroup) -> Iterator[str]:
        """A line for each error in a group: its own text says only how many there are."""
        leaves = list(_leaves(group))
        for error in leaves[:MAX_MEMBERS]:
            place = source.own_place(error, self.filenames)
            yield f"- {type(error).__name__}: {_text_of(error)}" + (f" ({place})" if place else "")
        if len(leaves) > MAX_MEMBERS:
            yield f"- and {len(leaves) - MAX_MEMBERS} more"

    def _load(self) -> Callable[..., Any]:
        name, text = self._launch.app, self._launch.source
        sys.meta_path.insert(0, self._finder)
        source.register(name, text)
        module = ModuleType(_module_name(name))
        module.__file__ = name
        sys.modules[module.__name__] = module
        exec(_compile(text, name), module.__dict__)  # noqa: S102 - this is what a launch is
        main = getattr(module, "main", None)
        if not callable(main):
            raise InferletError(
                with_hint(
                    f"`{name}` has no function `main`",
                    "write `async def main(input: dict) -> dict:`",
                )
            )
        return main

    def _arguments(self, main: Callable[..., Any]) -> tuple[Any, ...]:
        """The input, unless `main` takes nothing."""
        if _takes_one(main):
            self._input_name = main.__code__.co_varnames[0]
            self._check_input(main)
            return (json.loads(self._launch.input),)
        try:
            parameters = inspect.signature(main).parameters.values()
        except (TypeError, ValueError):
            return (json.loads(self._launch.input),)
        required = [p for p in parameters if p.default is p.empty and p.kind not in _STARRED]
        takes = any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)
        if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
            names = ", ".join(f"`{p.name}`" for p in required)
            what = f"`main` in `{self._launch.app}` takes {names}; it gets one argument, the input"
            hint = "write `async def main(input: dict) -> dict:`, and take the values from `input`"
            raise TypeError(with_hint(what, hint))
        return (json.loads(self._launch.input),) if takes else ()


    def _check_input(self, main: FunctionType) -> None:
        """TypeError for a `main` whose argument is something else than the whole input."""
        name, default = self._input_name, (main.__defaults__ or (None,))[0]
        annotation = main.__annotations__.get(name)
        if isinstance(default, _SCALARS) or annotation in (*_SCALARS, *_SCALAR_NAMES):
            what = f"`main` in `{self._launch.app}` gets one argument, the whole input: a dict"
            value = f"{name} = input[{name!r}]"
            if isinstance(default, _SCALARS):
                value = f"{name} = input.get({name!r}, {default!r})"
            hint = f"write `async def main(input: dict) -> dict:`, and in it `{value}`"
            raise TypeError(with_hint(what, hint))


class ModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules that were sent along, before any that is installed."""

    def __init__(self, modules: dict[str, str], app: str) -> None:
        self._modules = modules
        folder = app.rpartition("/")[0]
        prefix = f"{folder}/" if folder else ""
        self.filenames = {name: f"{prefix}{_path_of(name, modules)}" for name in modules}
        self._users = {app, *self.filenames.values()}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_package = any(other.startswith(f"{name}.") for other in self._modules)
        if name not in self._modules and not is_package:
            if path is None and name not in _IMPORTABLE and _importer() in self._users:
                raise ModuleNotFoundError(with_hint(f"No module named {name!r}", _HINT), name=name)
            return None
        return importlib.util.spec_from_loader(
            name, self, origin=self.filenames.get(name), is_package=is_package
        )

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name not in self._modules:  # a package without code of its own
            return
        text, filename = self._modules[name], self.filenames[name]
        source.register(filename, text)
        module.__file__ = filename
        exec(_compile(text, filename), module.__dict__)  # noqa: S102


def _importer() -> str:
    """The file whose `import` statement is carried out."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _MACHINERY:
        frame = frame.f_back
    return frame.f_code.co_filename


def _takes_one(main: Callable[..., Any]) -> bool:
    """Whether it is written as most are: `inspect` would take a tenth of a launch to say so."""
    if type(main) is not FunctionType or main.__dict__:  # wrapped, or with a signature of its own
        return False
    code = main.__code__
    has_stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount == 1 and not code.co_kwonlyargcount and not has_stars


def _path_of(name: str, modules: dict[str, str]) -> str:
    path = name.replace(".", "/")
    is_package = any(other.startswith(f"{name}.") for other in modules)
    return f"{path}/__init__.py" if is_package else f"{path}.py"


def _compile(text: str, filename: str) -> CodeType:
    before, has_null, _ = text.partition("\0")
    if has_null:  # Python's own error names no place
        line = before.count("\n") + 1
        raise SyntaxError("the source contains a null byte", (filename, line, None, None))
    # Our own `from __future__` lines must not leak into the user's code.
    return compile(text, filename, "exec", dont_inherit=True)


def _module_name(filename: str) -> str:
    """Not `__main__`: code behind that guard starts event loops and reads arguments."""
    stem = filename.rpartition("/")[2].removesuffix(".py")
    return stem if stem.isidentifier() and stem not in sys.modules else "inferlet_app"


# ---- what `main` gave


def to_json(value: Any) -> str:
    """JSON text; TypeError or ValueError that names the place of what JSON cannot hold."""
    try:
        return json_text.dumps(value, "main's value")
    except (TypeError, ValueError) as error:
        what = f"`main` returned what JSON cannot hold: {error}"
        hint = "return dicts, lists, strings, numbers and None; of a numpy value its `.tolist()`"
        raise type(error)(with_hint(what, json_text.repair(error, hint))) from None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group that are no groups."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for member in error.exceptions:
        yield from _leaves(member)


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        text = "(its message cannot be shown)"
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    return _encodable("\n".join([text, *notes]))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
