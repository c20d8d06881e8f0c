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


@pytest.fixture
def app(tmp_path):
    def write(source, name="app.py"):
        (tmp_path / name).write_text(source)
        return str(tmp_path / name)

    return write


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


RUN_AHEAD = """
import asyncio
from inferlet import *
async def helper():
    return 1
async def main(input):
    token = Channel.from_([1])
    def choose():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best
    fwd, pipe, ids = ForwardPass(), Pipeline(), []
    fwd.embed(token)
    fwd.state([WorkingSet()], StateGeometry.folding())
    result = fwd.epilogue(choose)
    pipe.submit(fwd)
    {line}
    return len(ids)
"""
LINE = 17
FORGOTTEN = {
    "pipe.run_ahead(fwd, 3, ids.append)": "`run_ahead`",
    "run = pipe.run_ahead(fwd, 3, ids.append)": "`run_ahead`",
    "pipe.run_ahead(\n        fwd, 3, ids.append)": "`run_ahead`",
    "session.receive()": "`receive`",
    "helper()": "`helper`",
    "globals()['kept'] = helper()": "`helper`",
    "asyncio.sleep(1)": "`sleep`",
    "Channel([1], dtype.i32).take()": "a call",
}


@pytest.mark.parametrize("line", FORGOTTEN)
def test_what_is_not_awaited_is_a_fault_at_the_line_of_the_call(app, line):
    path = app(RUN_AHEAD.replace("{line}", line))
    report = trace_app(path, {}, {})
    (fault,) = report.faults
    assert (fault["file"], fault["line"], fault["type"]) == (path, LINE, "NotAwaited")
    assert f"{FORGOTTEN[line]} was " in fault["message"] and "write `await`" in fault["message"]
    assert "".join(report.output) == ""


def test_check_fails_for_what_is_not_awaited(engine, app):
    path = app(RUN_AHEAD.replace("{line}", "helper(); session.receive()"))
    done = engine.pie("check", path)
    assert (done.returncode, done.stdout) == (1, "")
    words = "was called without `await`, so it did not run\n\nhint: write `await` before the call\n"
    said = [f"error: {path}:{LINE}: NotAwaited: `{name}` {words}" for name in ("helper", "receive")]
    assert done.stderr == "".join(said)
    faults = json.loads(engine.pie("check", path, "--json").stdout)["faults"]
    assert [fault["line"] for fault in faults] == [LINE, LINE]


@pytest.mark.parametrize(
    "line",
    [
        "await helper()",
        "asyncio.create_task(helper())",
        "await asyncio.gather(helper(), helper())",
        "await result",
        "kept = [asyncio.create_task(asyncio.wait_for(helper(), 5))]",
        "helper().close()",
        "await session.receive(); await session.receive()",
    ],
)
def test_what_is_awaited_or_left_to_a_task_is_no_fault(app, line):
    assert trace_app(app(RUN_AHEAD.replace("{line}", line)), {}, {}).faults == []


def test_an_error_comes_before_what_was_not_awaited_and_may_be_its_cause(app):
    path = app(RUN_AHEAD.replace("{line}", "pipe.run_ahead(fwd, 3, ids.append)\n    ids[0]"))
    kinds = [(fault["type"], fault["line"]) for fault in trace_app(path, {}, {}).faults]
    assert kinds == [("IndexError", LINE + 1), ("NotAwaited", LINE)]


NUMBERS = {
    "if input['n'] > 2: pass": {"n": 4},
    "range(input['n'])": {"n": 4},
    "int(input['n'])": {"n": 4},
    "float(input['n'])": {"n": 0.5},
    "input['n'] * 2 - 1": {"n": 4},
    "min(input['n'], 9)": {"n": 4},
    "1 + input['n']": {"n": 4},
    "10 % input['n']": {"n": 4},
    "0.3 < input['n']": {"n": 0.5},
    "range(input['n'] + input['m'], -input['k'])": {"n": 4, "m": 4, "k": 4},
    "[1, 2][:input['n']]": {"n": 4},
    "try: input['n'] + 1\n    except Exception: raise SystemExit": {"n": 4},
    "Channel([1], dtype.i32).capacity(input['n'])": {"n": 4},
}


@pytest.mark.parametrize("line", NUMBERS)
def test_an_input_that_the_app_computes_with_is_a_number(app, line):
    source = f"from inferlet import *\ndef main(input):\n    model.encode(input['who'])\n    {line}"
    report = trace_app(app(source), {}, {})
    assert (report.fault, report.numbers) == (None, NUMBERS[line])
    assert (report.assumed[0], {*report.assumed[1:]}) == ("who", {*NUMBERS[line]})


@pytest.mark.parametrize(
    "line",
    [
        "input['w'] + '!'", "'!' + input['w']", "input['w'] * 2", "input['w'] < 'x'",
        "'%s' % input['w']", "f\"{input['w']:>9}\"", "json.dumps(input['w'])", "sorted([input['w'], 'b'])",
        "session.send(input['w']), session.send({'w': input['w']})", "model.encode(input['w'])",
        "chat.user(input['w'])", "hash(input['w']) == hash('Hello') or 1 / 0", "re.match('H', input['w']).end()",
        "input['w'].encode()", "', '.join([input['w']])", "{input['w']: 1}['Hello']", "print(input['w'])",
    ],
)  # fmt: skip
def test_an_input_that_is_used_as_a_word_is_one(app, line):
    source = f"import json, re\nfrom inferlet import *\ndef main(input):\n    {line}\n    return input['w']"
    report = trace_app(app(source), {}, {})
    assert (report.fault, report.numbers, report.assumed) == (None, {}, ["w"])


def test_an_assumption_is_told_and_a_fault_that_it_may_have_made_says_how_to_give_the_input(engine, app):
    source = "def main(input):\n    for _ in range(input['max_tokens']): pass\n    input['who']['name']"
    done = engine.pie("check", app(source))
    assert done.returncode == 1
    assert 'note: not given, so "Hello": who\n' in done.stderr
    assert "note: not given, and used as a number, so: max_tokens = 4\n" in done.stderr
    assert "give it, `-- --who … --max-tokens …`\n" in done.stderr
    given = engine.pie("check", app(source), "--input", '{"max_tokens": 1, "who": {"name": 1}}')
    assert (given.returncode, given.stderr) == (0, "")


def test_the_assumed_input_is_a_dict_in_messages(app):
    source = "from inferlet import *\ndef main(input):\n    model.encode(input)"
    fault = trace_app(app(source), {}, {}).fault
    assert fault["message"] == "`model.encode` got dict; it takes a str"


def test_the_place_of_a_syntax_error_is_said_once(app):
    path = app("import os\ndef main(:\n")
    fault = trace_app(path, {}, {}).fault
    assert (fault["file"], fault["line"]) == (path, 2)
    assert "line" not in fault["message"] and "app.py" not in fault["message"]


HAS_NOT = {
    "an inferlet opens no files: read what `--file NAME=PATH` attached": [
        "open('/etc/passwd')", "open('x.txt', 'w')", "os.listdir('/')", "os.mkdir('/tmp/x')",
        "pathlib.Path('a').read_text()", "tempfile.TemporaryFile()",
    ],
    "an inferlet has no network": [
        "socket.socket()", "socket.create_connection(('1.1.1.1', 80))",
        "urllib.request.urlopen('http://example.com')", "await asyncio.open_connection('a.b', 80)",
        "await asyncio.open_connection('1.1.1.1', 80)",
    ],
    "an inferlet has no threads: use tasks": [
        "threading.Thread(target=print).start()", "await asyncio.to_thread(print)",
        "concurrent.futures.ThreadPoolExecutor().submit(print)",
    ],
    "an inferlet starts no programs": [
        "subprocess.run(['ls'])", "os.fork()", "multiprocessing.Process(target=print).start()",
        "multiprocessing.Pool(2)", "await asyncio.create_subprocess_exec('ls')",
    ],
    "": ["raise OSError('of the app')", "raise FileNotFoundError(2, 'no', 'x')", "raise RuntimeError",
         "raise ConnectionError"],
}  # fmt: skip


@pytest.mark.parametrize("line", [line for lines in HAS_NOT.values() for line in lines])
def test_what_the_sandbox_has_not_gets_what_there_is_instead(app, line):
    source = f"""
import asyncio, concurrent.futures, multiprocessing, os, pathlib, socket, subprocess, tempfile
import threading, urllib.request
async def main(input):
    {line}
"""
    fault = trace_app(app(source), {}, {}).error
    wanted = next(hint for hint, lines in HAS_NOT.items() if line in lines)
    assert fault["line"] == 5 and wanted in fault["message"].partition("hint: ")[2], fault
    assert bool(wanted) == ("hint: " in fault["message"])
