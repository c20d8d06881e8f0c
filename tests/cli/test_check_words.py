"""What `pie check` says of calls that are not awaited, of what it assumes, and of what the sandbox has
not."""

import json

import pytest

from pie_cli.app_trace import trace_app


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


def test_a_run_warns_of_what_was_not_awaited_and_goes_on(engine):
    done = engine.run("async def helper(): pass\nasync def main(i):\n  helper()\n  return 1")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert ":3: `helper` was called without `await`, so it did not run\n  helper()\n" in done.stderr
    assert "tracemalloc" not in done.stderr


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
