"""`pie check` and `pie inspect`: confined, bounded, and at the app's own lines. What they print is in
tests/golden/cli."""

import json
import subprocess

import pytest

from pie_cli import app_trace
from pie_cli.app_trace import trace_app
from pie_cli.inspect import dot_lines, end_of
from tests.cli.conftest import ROOT

PASS = """
from inferlet import *
async def main(input):
    fwd = ForwardPass()
    fwd.embed([1])
    fwd.state([WorkingSet()], StateGeometry.folding())
    {line}
    Pipeline().submit(fwd)
"""


FAULTS = {
    "def main(:\n    pass": (1, "SyntaxError"),
    "from inferlet import *\nasync def main(input):\n    Pipelin()": (3, "NameError"),
    "from inferlet import nothing": (1, "ImportError"),
    "import no_such_module\ndef main(): pass": (1, "ModuleNotFoundError"),
    PASS.format(line="fwd.epilogue(lambda: exp(iota(3)))"): (7, "TraceError"),
    PASS.format(line="fwd.epilogue(lambda: intrinsics.output(1, 'logits'))"): (7, "TraceError"),
    PASS.format(line="fwd.embed([2])"): (7, "InferletError"),
    PASS.format(line="fwd.epilogue(lambda: [x.take() for x in [Channel(1, dtype.i32)]])"): (
        8,
        "InferletError",
    ),
}

RESULTS = {
    "{1, 2}": ("TypeError", "set at main's value"),
    "float('nan')": ("ValueError", "nan at main's value"),
    "{'loss': numpy.float32(1)}": ("TypeError", "float32 at main's value['loss']"),
}


@pytest.mark.parametrize("value", RESULTS)
def test_a_result_that_a_run_would_refuse_is_a_fault(app, value):
    kind, words = RESULTS[value]
    fault = trace_app(app(f"import numpy\nasync def main(input): return {value}"), {}, {}).fault
    assert fault["type"] == kind
    assert f"`main` returned what JSON cannot hold: {words}" in fault["message"]


@pytest.mark.parametrize("source", FAULTS, ids=[kind for _, kind in FAULTS.values()])
def test_a_fault_is_found_at_its_line(app, source):
    path = app(source)
    line, kind = FAULTS[source]
    fault = trace_app(path, {}, {}).fault
    assert fault["type"] == kind
    place = (fault["file"], fault["line"])
    inner = f"at {path}:{line}," in fault["message"]  # of a stage, which runs at the submit
    assert place == (path, line) or inner, fault


def test_a_mistyped_name_gets_the_one_that_was_meant(app):
    source = "from inferlet import *\nasync def main(input): {}"
    for line, meant in {"top_k_indices": "top_k", "model.encodes('')": "encode"}.items():
        fault = trace_app(app(source.format(line)), {}, {}).fault
        assert fault["message"].endswith(f"\n\nhint: did you mean `{meant}`?")


def test_an_app_that_talks_to_others_and_moves_files_has_no_fault(app):
    source = """
from inferlet import session
async def main(input):
    session.send_to(input["peer"], {"from": session.id()})
    session.send_file(await session.receive_file())
    return await session.receive()
"""
    assert trace_app(app(source), {}, {}).fault is None


def test_modules_beside_the_app_are_found_and_blamed(app):
    beside = app("def value():\n    return 1 // 0\n", "beside.py")
    fault = trace_app(app("import beside\ndef main(input):\n    beside.value()\n"), {}, {}).fault
    assert (fault["file"], fault["line"], fault["type"]) == (beside, 2, "ZeroDivisionError")


def test_the_app_is_confined(app):
    source = "def main(input):\n    open('/etc/passwd').read()\n"
    assert trace_app(app(source), {}, {}).fault["type"] in ("PermissionError", "FileNotFoundError")


def test_an_endless_app_is_ended_and_what_it_recorded_is_told(app, monkeypatch):
    for seconds in (3.0, 15.0, 75.0):  # a busy machine may not come so far at first
        monkeypatch.setattr(app_trace, "SECONDS", seconds)
        report = trace_app(app(PASS.format(line="") + "    while True: pass\n"), {}, {})
        if report.passes:
            break
    assert (len(report.passes), report.fault, report.is_over) == (1, None, False)


def test_an_app_that_kills_itself_is_a_fault(app):
    source = "import os\ndef main(input):\n    os._exit(9)\n"
    fault = trace_app(app(source), {}, {}).fault
    assert fault["message"] == "the process ended with exit code 9"


def test_inputs_files_and_messages_that_are_not_given_are_assumed(app):
    source = """
from inferlet import session
async def main(input):
    assert input["who"] == "Hello" and session.file("doc") == b"Hello"
    while True:
        assert await session.receive() == "Hello"
"""
    report = trace_app(app(source), {}, {})
    assert (report.fault, report.assumed) == (None, ["who", "file doc"])


WORDS = """
def main(input):
    assert (input["who"], input["n"], input["flag"], input["_"]) == ("you", 3, True, ["rest"])
"""


@pytest.mark.parametrize("verb", ["check", "inspect"])
def test_an_apps_own_words_follow_two_dashes_and_win_over_the_input(engine, app, verb):
    path = app(WORDS)
    words = ("--input", '{"who": "you", "n": 2}', "--", "--n", "3", "--flag", "-k", "v", "rest")
    done = engine.pie(verb, path, *words)
    assert done.returncode == 0, done.stderr
    stray = engine.pie(verb, path, "rest")
    assert (stray.returncode, "unexpected" in stray.stderr) == (2, True), stray.stderr


@pytest.mark.parametrize("verb", ["check", "inspect", "run"])
def test_an_app_that_is_not_there_is_refused_in_the_name_of_the_verb(engine, verb):
    done = engine.pie(verb, "no_such_app.py")
    assert (done.returncode, f"hint: `pie {verb}` takes" in done.stderr) == (2, True), done.stderr


def test_ends_of_channels_are_those_of_all_passes():
    ends = [end_of({"puts": puts, "reads": reads}) for puts, reads in
            ((False, True), (True, False), (True, True))]  # fmt: skip
    assert ends == ["host-written", "host-read", "device-only"]


def test_a_graph_names_every_node_that_its_edges_use(engine):
    report = trace_app("tests/cli/programs/sampler.py", {"prompt": "hi"}, {})
    lines = [line.strip().rstrip(";") for line in dot_lines(report)]
    named = {line.split()[0] for line in lines if "[" in line}
    edges = [line.split(" -> ") for line in lines if " -> " in line]
    assert edges and {end for edge in edges for end in edge} <= named


def test_identities_of_an_app_do_not_depend_on_its_input(engine):
    def identities(seed):
        value = json.dumps({"prompt": "hi", "seed": seed})
        done = engine.pie("inspect", "tests/cli/programs/sampler.py", "--json", "--input", value)
        return [made["identity"] for made in json.loads(done.stdout)["passes"]]

    assert identities(1) == identities(2) != []


OWN = sorted(path.stem for path in (ROOT / "inferlets").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", OWN)
def test_the_repositorys_own_inferlets_have_no_fault(engine, name):
    done: subprocess.CompletedProcess = engine.pie("check", f"inferlets/{name}.py")
    assert (done.returncode, "no fault" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("schema", ["{'type': 'integer'}", "{'type': 'array'}", "{'type': 'string'}", "{}"])
def test_what_a_grammar_forces_comes_to_an_end(app, schema):
    """However long a random model would go on with digits, blanks and brackets."""
    source = f"""
import json
from inferlet import *
async def main(input):
    matcher = Matcher(Grammar.from_json_schema({schema}))
    ws, pipe, ids = WorkingSet(), Pipeline(), []
    while not matcher.is_terminated() and len(ids) < 100:
        fwd = ForwardPass()
        fwd.embed(ids[-1:] or [1])
        fwd.state([ws], StateGeometry.folding())
        mask = Channel.from_(matcher.mask(), dtype.u32)
        t = fwd.epilogue(lambda: masked_argmax(intrinsics.output(0, "logits"), mask.take()))
        pipe.submit(fwd)
        ids.append(await t)
        matcher.accept_tokens(ids[-1:])
    json.loads(model.decode([t for t in ids if t not in chat.stop_tokens()]))
"""
    report = trace_app(app(source), {}, {})
    assert (report.fault, report.is_over) == (None, True), report.traceback
