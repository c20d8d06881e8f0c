"""A process of its own, with one descriptor: what goes in is a Launch, what comes out its last word."""

import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import pytest

from inferlet.runtime import launch
from inferlet.testing import byte_vocabulary
from inferlet.testing.fake_worker import FakeWorker, SeededModel
from inferlet.testing.harness import CHATML
from ipc import codec, frames
from ipc import messages as m
from ipc.errors import ErrorCode, Failure
from ipc.types import EngineInfo, ModelInfo
from tests.inferlet.programs import greedy, stream_chat

ENGINE = EngineInfo(protocol=codec.PROTOCOL_VERSION, page_size=16, num_pages=64)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    byte_vocabulary().tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    launch.preload(str(folder))
    yield folder
    launch.preload(None)


def live(fd):
    """The child: the life that the zygote gives it, without the sandbox. Never returns."""
    try:
        os.closerange(3, fd)
        os.closerange(fd + 1, 256)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        launch.run(fd)
    except BaseException:  # noqa: BLE001 - pytest must not go on in the child
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)
    os._exit(0)


class Launched:
    """The hub's end of one launched child, with a fake engine behind it."""

    def __init__(self, folder, source, app="app.py", input="{}", modules=None, files=None):
        self.socket, theirs = socket.socketpair()
        self.info = ModelInfo("fake", "fake", str(folder), 259, 259, 2, 8, 4096, "float32")
        self.pid = os.fork()
        if self.pid == 0:
            live(theirs.fileno())
        theirs.close()
        self.messages = []
        self._reader = frames.FrameReader()
        self._worker = FakeWorker(self.info, ENGINE, SeededModel(259), self._send_event)
        first = m.Launch("p1", app, source, modules or {}, input, files or {}, self.info, ENGINE)
        self.send(first)

    def send(self, message):
        self.socket.sendall(frames.pack(frames.HUB, codec.encode(message)))

    def _send_event(self, event):
        self.socket.sendall(frames.pack(frames.ENGINE, codec.encode_events([event])))

    def until(self, *kinds):
        """Serves the child until it has sent a message of one of these kinds."""
        while True:
            assert select.select([self.socket], [], [], 240)[0], "the child is silent"
            data = self.socket.recv(1 << 16)
            assert data, "the child is gone without a last word"
            found = None
            for kind, body in self._reader.feed(data):
                if kind == frames.ENGINE:
                    for command in codec.decode_commands(body):
                        self._worker.do(command)
                    continue
                message = codec.decode_from_inferlet(body)
                self.messages.append(message)
                found = message if isinstance(message, kinds) else found
            if found:
                return found

    def end(self):
        """Its last word, after which it sends nothing and exits."""
        last_word = self.until(m.Returned, m.Raised)
        assert self.socket.recv(1) == b""
        assert self.exit_code() == 0
        return last_word

    def exit_code(self):
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self):
        self.socket.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.exit_code()

    @property
    def printed(self):
        return [(o.stream, o.text) for o in self.messages if isinstance(o, m.Output)]


@pytest.fixture
def start(model_folder):
    launched = []

    def one_more(source, **options):
        launched.append(Launched(model_folder, source, **options))
        return launched[-1]

    yield one_more
    for one in launched:
        one.close()


def text_of(program):
    return Path(program.__file__).read_text()


def test_greedy_completion_runs_in_a_process_of_its_own(start):
    process = start(text_of(greedy), input='{"prompt": "hello", "max_tokens": 4}')
    value = json.loads(process.end().value)
    assert (len(value["tokens"]), value["frozen"]) == (4, 8)


def test_streaming_chat_talks_to_the_client(start):
    process = start(text_of(stream_chat), input='{"system": "s", "user": "u", "max_tokens": 3}')
    process.until(m.Receiving)
    process.send(m.Inbox(False, "more"))
    process.send(m.Inbox(False, "bye"))
    assert json.loads(process.end().value)["turns"] == 2


@pytest.mark.parametrize(
    "source, value",
    [
        ("async def main(input): return input['x']", 5),
        ("def main(input): return input['x']", 5),
        ("async def main(): return 'none'", "none"),
        ("def main(): return None", None),
        ("main = lambda *a: len(a)", 1),
        ("def main(*, a=1): return a", 1),
        ("def main(input, other=2): return other", 2),
        ("def main(input, /): return input", {"x": 5}),
        ("def main(input=None): return input", {"x": 5}),
        ("def main(input, *more, **named): return [input, more, named]", [{"x": 5}, [], {}]),
        (
            "import functools\ndef none(): pass\n@functools.wraps(none)\n"
            "def main(a=1): return a",
            1,
        ),
        ("from inferlet import *\ndef main(): return model.decode([104, 105])", "hi"),
        (
            "from inferlet import *\nX = Channel([1], dtype.i32)\ndef main(): return X.name",
            "app.py:2",
        ),
        ("def main(): return {'a': (1, 2.5, True, None)}", {"a": [1, 2.5, True, None]}),
        ("from __future__ import annotations\ndef main(x: what): return 1", 1),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass A: x: int\ndef main(): return A(3).x",
            3,
        ),
        ("def main(): return '\\ud800'", "\ud800"),
        (
            "import inferlet.session as s\ndef main(): return s.file('f').decode() + s.id()",
            "datap1",
        ),
    ],
)
def test_main_may_be_written_in_several_ways(start, source, value):
    process = start(source, input='{"x": 5}', files={"f": b"data"})
    assert json.loads(process.end().value) == value


@pytest.mark.parametrize(
    "source, error, message",
    [
        ("def other(): pass", "InferletError", "`app.py` has no function `main`"),
        ("main = 3", "InferletError", "`app.py` has no function `main`"),
        ("def main(): return {1, 2}", "TypeError", "set at main's value"),
        ("def main(): return {'a': [1, {2}]}", "TypeError", "set at main's value['a'][1]"),
        ("def main(): return [float('nan')]", "ValueError", "nan at main's value[0]"),
        ("def main(): return float('-inf')", "ValueError", "-inf at main's value"),
        ("def main(): return b'x'", "TypeError", "bytes at main's value"),
        ("def main(): return {(1, 2): 3}", "TypeError", "a key of type tuple"),
        (
            "def main(): a = []; a.append(a); return a",
            "ValueError",
            "main's value[0] contains itself",
        ),
        ("import numpy\ndef main(): return numpy.int32(3)", "TypeError", "int32 at main's value"),
        ("def main(): raise KeyError('k')", "KeyError", "'k'"),
        ("def main(): raise SystemExit(3)", "SystemExit", "3"),
        ("import sys\nsys.exit('no')", "SystemExit", "no"),
        ("def main(): raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("def main(): raise MemoryError", "MemoryError", ""),
        ("def main(): return main()", "RecursionError", "maximum recursion depth"),
        (
            "def main(a, b, c=1): pass",
            "TypeError",
            "`main` in `app.py` takes `a`, `b`; it gets one argument, the input\n\nhint: write",
        ),
        ("def main(input, *, k): pass", "TypeError", "takes `input`, `k`; it gets one argument"),
        (
            "def main():\n a = []\n for _ in range(100_000): a = [a]\n return a",
            "ValueError",
            "`main` returned what JSON cannot hold: main's value is nested too deeply",
        ),
        ("import nowhere", "ModuleNotFoundError", "nowhere"),
        (
            "import asyncio\nasync def main(): raise asyncio.CancelledError('c')",
            "CancelledError",
            "c",
        ),
        (
            "class E(Exception):\n def __str__(self): raise ValueError\ndef main(): raise E",
            "E",
            "cannot be shown",
        ),
        (
            (
                "import asyncio, sys\nasync def bye(): sys.exit('task')\n"
                "async def main():\n asyncio.create_task(bye())\n await asyncio.sleep(60)"
            ),
            "SystemExit",
            "task",
        ),
    ],
)
def test_an_error_is_the_last_word(start, source, error, message):
    last_word = start(source).end()
    assert isinstance(last_word, m.Raised)
    assert (last_word.error, message in last_word.message) == (error, True), last_word


def test_a_traceback_holds_the_users_frames_alone(start):
    source = (
        "import helpers\nfrom inferlet import *\n\nasync def main(input):\n    helpers.deep()\n"
    )
    helper = "from inferlet import model\n\ndef deep():\n    model.encode(3)\n"
    raised = start(source, app="work/app.py", modules={"helpers": helper}).end()
    # Later Pythons underline the call.
    lines = [line for line in raised.traceback.splitlines(True) if set(line) - set(" ~^\n")]
    assert "".join(lines) == (
        '  File "work/app.py", line 5, in main\n    helpers.deep()\n'
        '  File "work/helpers.py", line 4, in deep\n    model.encode(3)\n'
    )


def test_a_syntax_error_names_its_line(start):
    raised = start("x = 1\ndef main(:\n  pass\n", app="bad.py").end()
    assert raised.error == "SyntaxError"
    assert 'File "bad.py", line 2' in raised.traceback
    assert "def main(:" in raised.traceback
    assert "bad.py, line 2" in raised.message


def test_modules_beside_the_app_are_importable(start):
    modules = {"a": "from pack import b\nX = b.Y + 1", "pack.b": "Y = 1", "json": "loads = 7"}
    assert json.loads(start("import a\ndef main(): return a.X", modules=modules).end().value) == 2


@pytest.mark.parametrize(
    "line",
    ["import gpu.ops", "from gpu import ops", "importlib.import_module('gpu')", "import no_such"],
)
def test_what_is_installed_beside_the_sdk_is_not_importable(start, line, tmp_path, monkeypatch):
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/ops.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    source = f"import asyncio.locks, importlib, numpy.linalg\ndef main():\n    {line}\n"
    raised = start(source).end()
    assert raised.error == "ModuleNotFoundError"
    words = "hint: an inferlet imports the standard library, numpy, inferlet, and the modules"
    assert raised.message.startswith("No module named ") and words in raised.message


def test_a_mistyped_name_gets_the_one_that_was_meant(start):
    raised = start("from inferlet import *\ndef main():\n    top_k_indices(1)\n").end()
    said = "name 'top_k_indices' is not defined\n\nhint: did you mean `top_k`?"
    assert (raised.error, raised.message) == ("NameError", said)


def test_printed_text_keeps_its_order_and_comes_before_the_last_word(start):
    source = (
        "import sys\nfrom inferlet import session\n"
        "def main():\n"
        "    print('one'); print('two', end='')\n"
        "    print('err', file=sys.stderr)\n"
        "    session.send('message')\n"
        "    sys.stdout.buffer.write(b'bytes\\n')\n"
        "    print('\\ud800')\n"
    )
    process = start(source)
    process.end()
    kinds = [type(message).__name__ for message in process.messages]
    assert process.printed == [
        ("stdout", "one\ntwo"),
        ("stderr", "err\n"),
        ("stdout", "bytes\n\\ud800\n"),
    ]
    assert kinds == ["Output", "Output", "Send", "Output", "Returned"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("for x in 'é€😀'.encode(): out.write(bytes([x])); out.flush()", "é€😀"),
        ("out.write(memoryview('€'.encode())[:2]); out.write('€'.encode()[2:])", "€"),
        (r"out.write(b'a\xe2\x82'); out.write(b'b')", r"a\xe2\x82b"),
        (r"out.write(b'a\xe2\x82'); print('€', end='')", r"a\xe2\x82€"),
        (r"out.write(b'at the end\xe2\x82')", r"at the end\xe2\x82"),
        (r"out.write(b'\xe2'); raise SystemExit", r"\xe2"),
        (r"assert out.write(memoryview(b'abcd').cast('I')) == 4", "abcd"),
    ],
)
def test_a_character_may_be_written_in_pieces(start, lines, text):
    process = start(f"import sys\ndef main():\n out = sys.stdout.buffer\n {lines}")
    process.end()
    assert "".join(text for _, text in process.printed) == text


@pytest.mark.parametrize("wrong", ["'text'", "5", "None"])
def test_what_is_no_bytes_is_not_written_as_such(start, wrong):
    process = start(f"import sys\ndef main():\n sys.stdout.buffer.write({wrong})")
    assert process.end().error == "TypeError" and not process.printed


def test_long_output_arrives_whole(start):
    source = "def main():\n for i in range(3): print(str(i) * 3_000_000)\n return 1"
    process = start(source)
    process.end()
    text = "".join(text for _, text in process.printed)
    assert text == "".join(f"{str(i) * 3_000_000}\n" for i in range(3))


def test_a_flushed_line_does_not_wait_for_the_end_of_the_tick(start):
    process = start(
        "import time\ndef main():\n print('now', flush=True)\n while True: time.sleep(0.01)"
    )
    assert process.until(m.Output).text == "now\n"


def test_what_main_left_running_ends_with_it(start):
    source = (
        "import asyncio\nfrom inferlet import *\n"
        "async def wait():\n"
        "    try: await asyncio.sleep(60)\n"
        "    finally: print('cancelled')\n"
        "async def main():\n"
        "    asyncio.create_task(wait()); p = Pipeline()\n"
        "    await asyncio.sleep(0)\n"
        "    return 1\n"
    )
    process = start(source)
    assert process.end().value == "1"
    assert process.printed == [("stdout", "cancelled\n")]


def test_pending_awaits_fail_with_the_engine(start):
    source = (
        "from inferlet import *\n"
        "async def main():\n"
        "    try: await session.receive()\n"
        "    except InferletError as error: print(error)\n"
        "    Pipeline().submit(ForwardPass())\n"
    )
    process = start(source)
    process.until(m.Receiving)
    process.send(m.Engine(Failure(ErrorCode.WORKER_LOST, "the worker was killed")))
    raised = process.end()
    assert (raised.error, raised.message) == (
        "InferletError",
        "the engine failed: the worker was killed",
    )
    assert process.printed == [("stdout", "the engine failed: the worker was killed\n")]


def test_an_inferlet_ends_when_its_hub_is_gone(start):
    process = start("from inferlet import *\nasync def main(): await session.receive()")
    process.until(m.Receiving)
    process.socket.close()
    assert process.exit_code() == 0


def test_the_child_opens_nothing_but_its_loop(start):
    source = (
        "import os\n"
        "def main():\n"
        "    return sorted(os.readlink(f'/proc/self/fd/{n}').partition(':')[0]"
        " for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}'))\n"
    )
    opened = json.loads(start(source).end().value)
    # The event loop has an epoll and a pair of sockets to wake itself with.
    assert opened == ["anon_inode", "socket", "socket", "socket"]


def test_a_value_longer_than_a_frame_is_an_error(start):
    raised = start("def main(): return 'x' * (17 << 20)").end()
    assert (raised.error, "at most" in raised.message) == ("ValueError", True)


def test_the_errors_of_a_task_group_are_named_with_their_places(start):
    source = """
import asyncio
async def fail(i):
    raise ValueError(f"number {i}")
async def main():
    async with asyncio.TaskGroup() as group:
        for i in range(12):
            group.create_task(fail(i))
"""
    lines = start(source).end().message.splitlines()
    assert lines[:2] == [
        "unhandled errors in a TaskGroup (12 sub-exceptions)", "- ValueError: number 0 (app.py:4)",
    ]  # fmt: skip
    assert lines[-2:] == ["- ValueError: number 9 (app.py:4)", "- and 2 more"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("asyncio.sleep(0)", "coroutine at main's value['x'], which was not awaited"),
        ("asyncio.get_event_loop().create_future()", "Future at main's value['x'], which was not"),
    ],
)
def test_a_value_that_was_not_awaited_is_called_so(start, value, words):
    process = start(f"import asyncio\nasync def main(): return {{'x': {value}}}")
    assert words in process.end().message
    assert process.printed == []


def test_a_null_byte_in_the_source_is_told_with_its_line(start):
    raised = start("def main(): pass\nx = '\0'\n", app="null.py").end()
    assert (raised.error, raised.message) == (
        "SyntaxError", "the source contains a null byte (null.py, line 2)",
    )  # fmt: skip


FILLS_MEMORY = """
import resource
from pathlib import Path
from inferlet import *
async def main():
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (64 << 20),) * 2)
    held = []
    try:
        while True:
            held.append(bytearray(1 << 20))
    except MemoryError:
        session.send("full")
    return await session.receive()
"""


def test_a_message_for_which_no_memory_is_left_ends_the_process(start):
    process = start(FILLS_MEMORY)
    process.until(m.Send)
    with suppress(ConnectionError):  # it ends before it has read all
        process.send(m.Inbox(False, "x" * (8 << 20)))
    assert process.until(m.Raised).error == "MemoryError"


def test_a_value_that_leaves_no_memory_to_encode_it_is_an_error(start):
    source = """
import resource
from pathlib import Path
def main():
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (220 << 20),) * 2)
    return "x" * (100 << 20)
"""
    raised = start(source).end()
    assert (raised.error, "at most" in raised.message) == ("ValueError", True)


def test_a_frame_that_cannot_be_read_ends_the_process(start):
    process = start("from inferlet import *\nasync def main(): return await session.receive()")
    process.socket.sendall(b"\x02\0\0\0\x09x")
    assert process.end().error == "ProtocolError"


def test_a_launch_that_cannot_be_read_is_answered(start, monkeypatch):
    monkeypatch.setattr(frames, "MAX_LAUNCH_FRAME", 1000)
    process = start("", input='"' + "x" * 1000 + '"')
    assert process.end().error == "ProtocolError"


def test_frames_that_follow_the_launch_at_once_are_kept(start):
    process = start("from inferlet import *\nasync def main(): return await session.receive()")
    process.send(m.Inbox(True, '{"early": 1}'))
    assert json.loads(process.end().value) == {"early": 1}


def test_a_hub_that_leaves_before_the_launch_ends_the_process_quietly():
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        live(theirs.fileno())  # closes all but this one
    theirs.close()
    ours.close()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_app_that_ignores_its_cancellation_is_ended_with_the_failure(start, monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 0.2)
    source = """
import asyncio
from inferlet import session
async def main():
    session.send("ready")
    while True:
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            pass
"""
    process = start(source)
    process.until(m.Send)
    process.socket.sendall(b"\xff\xff\xff\xff\x01")  # no frame: it can read nothing more
    assert process.until(m.Raised).error == "ProtocolError"
    assert process.exit_code() == 0


def test_a_task_that_ignores_its_cancellation_does_not_outlive_main(start, monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 0.2)
    source = """
import asyncio
async def stay():
    while True:
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            pass
async def main():
    task = asyncio.create_task(stay())
    await asyncio.sleep(0)
    return 1
"""
    assert start(source).end() == m.Returned("1")


@pytest.mark.parametrize(
    "source, limit",
    [
        ("def main(): raise MemoryError", "memory"),
        ("def main(): raise ExceptionGroup('two', [KeyError(), MemoryError()])", "memory"),
        ("import os\ndef main():\n while True: os.dup(0)", "descriptors"),
        ("def main(): raise ValueError", ""),
    ],
)
def test_an_error_that_tells_of_a_limit_names_it(start, source, limit):
    if limit == "descriptors":
        source = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + source
    assert start(source).end().limit == limit


def test_a_limit_met_in_the_engine_is_named_by_the_error_that_ends_main(start):
    source = """
from inferlet import session
async def main():
    session.send("ready")
    await session.receive()
"""
    process = start(source)
    process.until(m.Send)
    failure = Failure(ErrorCode.LIMIT, "more than 2 pipelines at once", limit="pipelines")
    process._send_event(m.Goodbye(failure))
    last_word = process.end()
    assert (last_word.error, last_word.limit) == ("InferletError", "pipelines")


def test_messages_that_come_while_send_to_waits_are_received_in_order(start):
    source = """
from inferlet import session
async def main():
    first = session.receive()
    session.send_to("other", "hi")
    return [await first, await session.receive()]
"""
    process = start(source)
    process.until(m.SendTo)
    process.send(m.Inbox(False, "a"))
    process.socket.sendall(
        b"".join(
            frames.pack(frames.HUB, codec.encode(x)) for x in (m.SentTo(""), m.Inbox(False, "b"))
        )
    )
    assert json.loads(process.end().value) == ["a", "b"]


def test_send_to_fails_when_the_engine_is_gone(start):
    source = """
from inferlet import session
def main():
    session.send_to("other", "hi")
"""
    process = start(source)
    process.until(m.SendTo)
    process.socket.shutdown(socket.SHUT_WR)
    last_word = process.until(m.Raised)
    assert last_word.error == "ConnectionError"


FORGOTTEN = """
from inferlet import *
async def helper():
    return 1
async def main():
    {line}
    return 1
"""


@pytest.mark.parametrize(
    "line, said",
    [
        ("helper()", "app.py:6: `helper` was called without `await`, so it did not run\n  helper()\n"),
        (
            "session.receive(\n    )",
            "app.py:6: `receive` was called without `await`, so it did not run\n  session.receive(\n",
        ),
        (
            "for _ in range(3): Channel([1], dtype.i32).take()",
            "app.py:6: a call was made without `await`, so it did not run\n  for _ in range(3)",
        ),
        (
            "x = helper()",
            "app.py:6: `helper` was called without `await`, so it did not run\n  x = helper()\n",
        ),
        (
            "x = helper()\n    y = x, helper(), [await helper()]",
            "app.py:6, or app.py:7: `helper` was called without `await`, so it did not run\n\nhint",
        ),
    ],
)
def test_a_run_warns_once_of_what_was_not_awaited(start, line, said):
    process = start(FORGOTTEN.replace("{line}", line))
    assert process.end() == m.Returned("1")
    ((stream, text),) = process.printed
    assert stream == "stderr" and text.startswith(f"warning: {said}"), text
    assert text.endswith("hint: write `await` before the call\n") and "tracemalloc" not in text
    assert text.count("warning") == 1
