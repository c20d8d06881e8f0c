"""`pie serve --listen`: an engine on another machine is used as one on this machine is."""

import hashlib
import json
import signal
import socket
from contextlib import closing

import pytest

from ipc import client as c
from pie_cli import client as api
from tests.cli.conftest import SECONDS, Engine, is_gone, make_home, wait_until
from tests.cli.listening import ListeningEngine

ECHO = """
from inferlet import session
async def main(input):
    print("printed", flush=True)
    while (message := await session.receive()) != "end":
        session.send(message)
    return "ended"
"""
FILES = """
from inferlet import session
def main(input):
    session.send_file(session.file("data") * 3)
    session.send_file(b"")
    session.send("after the files")
    return "sent"
"""
FAILING = "def main(input):\n    return input['there is none']\n"


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    engine = ListeningEngine(tmp_path_factory.mktemp("listen"), "laptop", "phone")
    yield engine
    assert engine.end() == (0, "")


@pytest.fixture
def laptop(listening):
    return listening.guest("laptop")


@pytest.fixture
def phone(listening):
    return listening.guest("phone")


@pytest.fixture
def running(listening, laptop):
    """A detached process of the laptop's."""
    id = laptop.run(ECHO, "--detach").stdout.strip()
    wait_until(lambda: listening.here.pie("logs", id).stdout)
    yield id
    listening.here.pie("kill", id)


def same(first, second):
    outcomes = [(done.returncode, done.stdout, done.stderr) for done in (first, second)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("app", ["def main(input): return input", FAILING, ECHO, "def main(:"])
def test_a_run_elsewhere_ends_as_one_here_does(listening, laptop, app):
    path = laptop.write(app)
    words = ["run", path, "--", "--n", "3"]
    lines = "one\ntwo\nend\n"
    same(laptop.pie(*words, stdin=lines), listening.here.pie(*words, stdin=lines))


def test_modules_and_files_travel_along(laptop):
    laptop.write("WORD = 'beside'", "module_beside.py")
    app = "import module_beside\ndef main(input): return module_beside.WORD"
    assert laptop.run(app).stdout == '"beside"\n'


def test_files_of_an_app_come_to_the_client(listening, laptop, tmp_path):
    data = bytes(range(256)) * 4100  # several parts, and pieces
    (tmp_path / "data").write_bytes(data)
    words = ["--file", f"data={tmp_path / 'data'}", "-o", tmp_path / "out", "--events"]
    done = laptop.run(FILES, *words)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["launched", "file", "file", "message", "return"]
    first, second = events[1], events[2]
    assert first["path"] == str(tmp_path / "out" / f"{first['process']}-1")
    assert (tmp_path / "out" / f"{first['process']}-1").read_bytes() == data * 3
    assert first["sha256"] == hashlib.sha256(data * 3).hexdigest()
    assert (tmp_path / "out" / f"{second['process']}-2").read_bytes() == b""
    assert len(list((tmp_path / "out").iterdir())) == 2
    kept = listening.here.home / "files" / "key:laptop" / f"{first['process']}-1"
    assert kept.stat().st_size == len(data) * 3


def test_a_file_that_cannot_be_fetched_is_said_so(laptop, listening):
    app = """
from inferlet import session
async def main(input):
    await session.receive()
    session.send_file(b"1")
    await session.receive()
"""
    id = laptop.run(app, "--detach").stdout.strip()
    assert laptop.pie("send", id, "now").returncode == 0
    kept = listening.here.home / "files" / "key:laptop" / f"{id}-1"
    wait_until(kept.exists)
    kept.unlink()
    assert laptop.pie("send", id, "end").returncode == 0
    done = laptop.pie("attach", id, "--no-stdin")
    assert f"{id}-1` could not be stored" in done.stderr or "No such file" in done.stderr
    assert not list((laptop.home / "files").glob(f"*{id}*"))


def test_a_process_elsewhere_is_joined_heard_and_ended(laptop, running):
    (row,) = laptop.processes()
    assert (row["id"], row["client"], row["state"]) == (running, "key:laptop", "running")
    assert laptop.pie("logs", running).stdout == "printed\n"
    assert laptop.pie("send", running, "hi").returncode == 0
    assert json.loads(laptop.pie("trace", running).stdout)["otherData"]["process"] == running
    joined = laptop.start("attach", running, "--stream", "--no-stdin")
    assert joined.stdout.read(2) == "hi"
    assert laptop.pie("kill", running).returncode == 0
    assert joined.wait() == 137
    joined.communicate()
    assert laptop.processes() == []


def test_the_engines_own_user_sees_and_ends_what_comes_over_the_network(listening, running):
    (row,) = listening.here.processes()
    assert (row["id"], row["client"]) == (running, "key:laptop")
    assert listening.here.pie("kill", running).returncode == 0


def test_two_keys_know_nothing_of_each_other(phone, laptop, running):
    unknown = f"no process `{running}`"
    assert phone.processes() == []
    for verb, *rest in (["attach"], ["logs"], ["trace"], ["send", "end"]):
        done = phone.pie(verb, running, *rest)
        assert (done.returncode, done.stdout) == (2, "") and unknown in done.stderr, verb
    done = phone.pie("kill", running)
    assert done.returncode == 2 and unknown in done.stderr
    assert [row["id"] for row in laptop.processes()] == [running]


def test_a_key_sees_nothing_of_the_engines_own_user(listening, laptop):
    id = listening.here.run(ECHO, "--detach").stdout.strip()
    try:
        assert laptop.processes() == []
        assert laptop.pie("kill", id).returncode == 2
        assert [row["id"] for row in listening.here.processes()] == [id]
    finally:
        listening.here.pie("kill", id)


def test_apps_of_two_keys_cannot_write_to_each_other(phone, running):
    app = "from inferlet import session\n"
    app += f"async def main(): await session.send_to('{running}', 'end')"
    done = phone.run(app)
    assert done.returncode == 1 and "client" in done.stderr


def test_no_word_of_a_guest_makes_it_another_client(listening, running, tmp_path):
    with closing(listening.connection("phone")) as phone:
        phone._send(c.StopEngine())
        phone._send(c.Hello(1, 1, "key:laptop", remote=False))
        phone.expect(c.Welcome, SECONDS)
        phone._send(c.Kill((running,)))
        assert phone.expect(c.Killed, SECONDS).unknown == (running,)
        for client in ("key:laptop", None):
            folder = str(tmp_path / "evil")
            run = c.Run(1, "a.py", ECHO, {}, "{}", {}, client=client, files_folder=folder)
            phone._send(run)
            phone.expect(c.Launched, SECONDS)
        phone._send(c.List())
        answer = phone.expect(c.Processes, SECONDS)
        assert {row.client for row in answer.rows} == {"key:phone"} and answer.worker is None
        for request in (
            c.FilePart(3, running, 0, b"", hashlib.sha256().digest()),
            c.Message(running, False, "end", 4),
        ):
            phone._send(request)
            assert phone.expect(c.Answered, SECONDS).outcome == c.UNKNOWN
        phone._send(c.ReadFile(5, running, 1, 0))
        phone.expect(c.Unknown, SECONDS)
        phone._send(c.AskFacts(6))
        facts = phone.expect(c.Facts, SECONDS)
        assert (facts.log, facts.pid, facts.worker_pid, facts.zygote_pid) == ("", 0, 0, None)
    assert not (tmp_path / "evil").exists()
    wait_until(lambda: [row["id"] for row in listening.here.processes()] == [running])


def test_the_name_of_a_guests_app_does_nothing_to_a_terminal(listening):
    with closing(listening.connection("phone")) as phone:
        for request, app in enumerate(("a\x1b[2J\n\u202eb.py", "x" * 10_000)):
            phone._send(c.Run(request, app, ECHO, {}, "{}", {}))
            phone.expect(c.Launched, SECONDS)
        heading, *lines = listening.here.pie("ps").stdout.splitlines()
        shown = [row["app"] for row in listening.here.processes()]
    assert len(lines) == 2 and all(line.isprintable() for line in lines)
    assert "a\ufffd[2J\ufffd\ufffdb.py" in shown
    assert max(map(len, shown)) < 300


def test_a_command_that_is_killed_ends_its_processes(listening, laptop):
    command = laptop.start("run", laptop.write(ECHO), "--no-stdin")
    listening.here.wait_for_process()
    command.kill()
    command.communicate()
    wait_until(lambda: not listening.here.processes())


def test_ctrl_c_ends_a_run_elsewhere(listening, laptop):
    command = laptop.start("run", laptop.write(ECHO), "--no-stdin")
    assert command.stderr.readline() == "printed\n"
    command.send_signal(signal.SIGINT)
    command.communicate()
    assert command.returncode == 130
    assert listening.here.processes() == []


def test_what_only_this_machine_does_is_refused(laptop):
    for words, what in (
        (["run", "inferlets/hello.py", "--client", "me"], "names a client of another machine"),
        (["run", "inferlets/hello.py", "--model", "other"], "has `fake`"),
        (["stop"], "is on another machine (`PIE_ENGINE`)"),
    ):
        done = laptop.pie(*words)
        assert done.returncode == 2 and what in done.stderr, done.stderr


def test_the_engine_is_named_before_the_verb_or_after_run(listening, tmp_path):
    plain = Engine(tmp_path, {})
    words = ["--engine", listening.address, f"--key={listening.key('laptop')}"]
    assert plain.pie(*words, "run", "inferlets/hello.py").returncode == 0
    assert plain.pie("run", *words, "inferlets/hello.py").returncode == 0
    assert plain.pie(*words, "ps", "--json").stdout == "[]\n"
    assert "Usage: pie ps" in plain.pie(*words, "ps", "--help").stdout
    completed = plain.pie("__complete", len(words) + 1, "pie", *words, "p")
    assert completed.stdout.split() == ["words", "ps", "python"]


def test_doctor_and_the_ready_line_say_who_listens(listening, laptop):
    assert f"listens at {listening.address}, " in listening.ready
    here = json.loads(listening.here.pie("doctor", "--json").stdout)["findings"]
    assert any(f"listens at {listening.address}" in each["text"] for each in here)
    there = json.loads(laptop.pie("doctor", "--json").stdout)["findings"]
    (found,) = [each for each in there if each["check"] == "engines"]
    assert (found["state"], found["text"]) == (
        "ok", f"{listening.address}: fake is ready, by key `laptop`",
    )  # fmt: skip


def test_the_python_client_takes_an_address_and_a_key(listening, tmp_path, monkeypatch):
    monkeypatch.setenv("PIE_HOME", str(tmp_path))
    with api.Client(engine=listening.address, key=listening.key("laptop")) as pie:
        echo = pie.launch(source=ECHO)
        echo.send("hi")
        assert next(echo.messages()) == "hi"
        assert [row.client for row in pie.processes()] == ["key:laptop"]
        source = "from inferlet import session\ndef main(): session.send_file(b'12')"
        files = pie.launch(source=source, output=tmp_path / "out")
        files.result()
        (file,) = files.files()
        assert file.read() == b"12" and str(file.path).startswith(str(tmp_path / "out"))
        echo.send("end")
        assert echo.result() == "ended"
    with pytest.raises(api.BadRequest, match="needs a key"):
        api.Client(engine=listening.address)


# ---- engines of their own


def test_a_port_that_is_in_use_is_exit_3(own_engine):
    own_engine.pie("key", "new", "laptop", "-o", "-")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = own_engine.pie("serve", "--listen", f"tcp://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"cannot listen at tcp://127.0.0.1:{port}: Address already in use" in done.stderr


def test_an_address_that_others_reach_is_warned_of(own_engine):
    own_engine.pie("key", "new", "laptop", "-o", "-")
    server = own_engine.start("serve", "--listen", "tcp://*:0")
    assert "listens at tcp://0.0.0.0:" in server.stdout.readline()
    assert server.stderr.readline().startswith("warning: other machines reach tcp://0.0.0.0:")
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0
    server.communicate()


def test_an_engine_that_ends_tells_its_guests(tmp_path):
    engine = ListeningEngine(tmp_path, "laptop")
    laptop = engine.guest("laptop")
    command = laptop.start("run", laptop.write(ECHO), "--no-stdin")
    assert command.stderr.readline() == "printed\n"
    door = engine.door()
    assert engine.end() == (0, "")
    _, stderr = command.communicate()
    assert command.returncode == 137 and "the engine was stopped" in stderr
    wait_until(lambda: is_gone(door))
    done = laptop.pie("ps")
    assert done.returncode == 3 and f"no engine answers at {engine.address}" in done.stderr


def test_a_client_hears_that_the_engine_is_lost(tmp_path):
    engine = ListeningEngine(tmp_path, "laptop")
    laptop = engine.guest("laptop")
    command = laptop.start("run", laptop.write(ECHO), "--no-stdin")
    assert command.stderr.readline() == "printed\n"
    door = engine.door()
    engine.server.kill()
    engine.server.communicate()
    wait_until(lambda: is_gone(door))
    _, stderr = command.communicate()
    assert command.returncode == 3
    assert f"the engine at {engine.address} has ended, or is out of reach" in stderr


def test_local_means_this_machines_engine_whatever_is_set(tmp_path):
    make_home(tmp_path)
    engine = Engine(tmp_path, {"PIE_ENGINE": "tcp://127.0.0.1:1", "PIE_KEY": "none"})
    done = engine.pie("--engine", "local", "run", "inferlets/hello.py")
    assert done.returncode == 0, done.stderr
    engine.pie("--engine", "local", "stop")
