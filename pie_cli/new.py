"""`pie new`: a commented starter app and a test for it. Overwrites nothing."""

import keyword
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated

import typer

from pie_cli.output import note
from pie_cli.usage import UsageError

#: An app of such a name could not be imported by its test.
_TAKEN = set(sys.stdlib_module_names) | {"inferlet", "numpy", "pytest", "conftest"}

APP = '''"""Completes a text, and sends it piece by piece.

    pie run NAME.py -- --prompt "Once upon a time" --max-tokens 40
"""

from inferlet import *


async def main(input: dict) -> dict:
    # `input` is the JSON object of the launch: `--max-tokens 40` is {"max_tokens": 40}.
    prompt = chat.prefix() + model.encode(input.get("prompt", "Once upon a time"))
    limit = input.get("max_tokens", 40)

    # The state of one sequence; the order in which its passes run; and a queue on the device
    # that carries each token from the pass that chose it to the pass that embeds it.
    state, pipe, token = WorkingSet(), Pipeline(), Channel([1], dtype.i32)

    def choose():
        # Device code: recorded once, run on the device after every pass. Change the sampler here,
        # for example to `gumbel_max(...)`; `pie python -m pydoc inferlet` says what there is.
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best

    def build(tokens):
        forward = ForwardPass()
        forward.embed(tokens)
        forward.state([state], StateGeometry.folding())  # rows go to the end of the sequence
        return forward, forward.epilogue(choose)

    text, ids = chat.Decoder(), []

    def on_token(t):
        # Host code: called for every token, in order. False ends the run.
        ids.append(t)
        match text.feed([t]):
            case chat.Event.Delta(piece):
                session.send(piece)
            case chat.Event.Done():
                return False
        return True

    # One pass for the prompt, then one pass a token, several of them in flight.
    (prefill, first), (decode, _) = build(prompt), build(token)
    pipe.submit(prefill)
    if on_token(await first) and limit > 1:
        await pipe.run_ahead(decode, limit - 1, on_token)

    # The value that `pie run` prints.
    return {"tokens": len(ids), "text": model.decode(ids)}
'''

TEST = '''"""Tests of NAME.py without a model: `inferlet.testing` runs `main` on an engine in numpy."""

from NAME import main

from inferlet import testing

# In the tests' vocabulary a token is a byte. A model is a function of the tokens so far.
ANSWER = b"a test!"


def say_the_answer(tokens: list[int]) -> int:
    """A model that always goes on with the next letter of ANSWER."""
    return ANSWER[len(tokens) - len(b"This is ")]


def test_it_completes_the_prompt():
    value = testing.run(main, {"prompt": "This is ", "max_tokens": 6}, model=say_the_answer)
    assert value == {"tokens": 6, "text": "a test"}


def test_it_sends_what_it_returns():
    client = testing.Client()
    input = {"prompt": "This is ", "max_tokens": 7}
    value = testing.run(main, input, model=say_the_answer, client=client)
    assert "".join(client.messages) == value["text"] == "a test!"
'''


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the app; may name a folder.")],
) -> int:
    """Write a commented starter app and its test."""
    path = Path(name.removesuffix(".py"))
    stem = path.name
    if not (stem.isidentifier() and stem.isascii()):
        raise UsageError(
            f"`{stem}` cannot be the name of an app", "letters, digits and `_`, like `my_app`"
        )
    if keyword.iskeyword(stem):
        raise UsageError(f"`{stem}` is a word of Python's own", "choose another name")
    if _is_taken(stem):
        raise UsageError(f"`{stem}` is the name of another module", "choose another name")
    app, test = path.with_name(f"{stem}.py"), path.with_name(f"test_{stem}.py")
    if there := [file for file in (app, test) if file.exists()]:
        raise UsageError(f"`{there[0]}` exists already", "choose another name, or move it away")
    _write(app, APP.replace("NAME", stem))
    _write(test, TEST.replace("NAME", stem))
    print(app)
    print(test)
    note(f'\nrun it:   pie run {app} -- --prompt "Once upon a time"')
    note(f"check it: pie check {app}")
    note(f"test it:  pie python -m pytest {test}")
    return 0


def _is_taken(stem: str) -> bool:
    """Whether the app would hide a module that its test, or what that imports, may need."""
    if stem in _TAKEN or (stem.startswith("__") and stem.endswith("__")):
        return True
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    here = {"", os.getcwd()}
    spec = PathFinder.find_spec(stem, [own, *(path for path in sys.path if path not in here)])
    return spec is not None and spec.origin is not None  # else it is a folder without modules


def _write(path: Path, text: str) -> None:
    """All of the file or nothing. Raises UsageError."""
    made = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # "x": nothing is ever overwritten
            made = True
            file.write(text)
    except OSError as error:
        if made:
            path.unlink(missing_ok=True)
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
