"""The Python client, blocking and with asyncio, against real processes."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator

import pytest

from pie_cli import client as api
from tests.cli.conftest import Engine, wait_until

ECHO = """
from inferlet import session
async def main(input):
    print("started with", input)
    got = []
    try:
        while True:
            got.append(await session.receive())
            session.send({"got": got[-1]})
    except EOFError:
        return got
"""
FILES = """
from inferlet import session
async def main(input):
    data = await session.receive_file()
    session.send_file(data + session.file("more"))
    return len(data)
"""
MANY = """
from inferlet import session
def main(input):
    for i in range(input["n"]):
        session.send("x" * 100_000)
    return "done"
"""


@pytest.fixture
def pie(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[api.Client]:
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    with api.Client() as client:
        yield client


def test_a_launch_gives_its_result(pie):
    process = pie.launch("inferlets/hello.py", {"name": "you"})
    assert process.result() == {"hello": "you"}
    assert process.result() == {"hello": "you"}
    assert not process.is_live
    assert "ended" in repr(process)


def test_messages_go_both_ways_in_order_and_end_with_the_process(pie):
    process = pie.launch(source=ECHO)
    for message in ("text", {"a": [1, None]}, 5):
        process.send(message)
    messages = process.messages()
    assert [next(messages) for _ in range(3)] == [
        {"got": "text"},
        {"got": {"a": [1, None]}},
        {"got": 5},
    ]
    process.close_input()
    assert list(messages) == []
    assert process.result() == ["text", {"a": [1, None]}, 5]


def test_what_was_sent_before_anybody_listened_is_kept(pie, tmp_path):
    path = tmp_path / "many.py"
    path.write_text(MANY)
    process = pie.launch(path, {"n": 300})
    assert process.result() == "done"
    assert [len(message) for message in process.messages()] == [100_000] * 300
    process = pie.launch(source=MANY, input={"n": 300})
    assert sum(1 for _ in process.messages()) == 300


def test_a_timeout_takes_no_message_that_comes_later(pie):
    process = pie.launch(source=ECHO)
    with pytest.raises(TimeoutError):
        next(process.messages(timeout=0.05))
    with pytest.raises(TimeoutError):
        process.result(timeout=0.05)
    process.send("late")
    assert next(process.messages()) == {"got": "late"}
    process.kill()


def test_files_travel_both_ways(pie, tmp_path):
    data = os.urandom(600_000)
    (tmp_path / "data").write_bytes(data)
    process = pie.launch(source=FILES, files={"more": b"!"}, output=tmp_path / "out")
    process.send_file(tmp_path / "data")
    assert process.result() == len(data)
    (file,) = process.files()
    assert file.read() == data + b"!"
    assert file.path == tmp_path / "out" / f"{process.id}-1"
    assert (file.size, file.sha256) == (600_001, hashlib.sha256(data + b"!").hexdigest())


def test_an_error_of_the_app_has_its_type_and_traceback(pie):
    process = pie.launch(source="def main():\n    raise ValueError('no')")
    with pytest.raises(api.AppError, match="ValueError: no") as caught:
        process.result()
    error = caught.value
    assert (error.type, error.message, error.exit_code, error.process) == (
        "ValueError", "no", 1, process.id,
    )  # fmt: skip
    assert "line 2" in error.traceback


@pytest.mark.parametrize(
    ("options", "source", "kind"),
    [
        ({"timeout": 0.2}, ECHO, api.ProcessTimeout),
        ({"limits": {"memory": "64M"}}, "def main(): return len(bytearray(1 << 29))", api.LimitExceeded),
    ],
)  # fmt: skip
def test_other_ends_have_errors_of_their_own(pie, options, source, kind):
    process = pie.launch(source=source, **options)
    with pytest.raises(kind) as caught:
        process.result()
    assert isinstance(caught.value, api.ProcessError | api.PieError)


def test_a_killed_process_raises_and_killing_it_again_does_nothing(pie):
    process = pie.launch(source=ECHO)
    process.kill()
    with pytest.raises(api.ProcessKilled) as caught:
        process.result()
    assert caught.value.exit_code == 137
    process.kill()
    with pytest.raises(api.NoSuchProcess):
        process.send("x")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"app": "/no/such.py"}, "No inferlet at"),
        ({}, "takes the path of an app, or `source`"),
        ({"source": ECHO, "limits": {"speed": 1}}, "there is no limit `speed`"),
        ({"source": ECHO, "limits": {"memory": "9G"}}, "the engine's own is"),
        ({"source": ECHO, "input": {"x": float("nan")}}, "is no JSON object"),
        ({"source": ECHO, "name": "a b"}, "cannot be a process's name"),
        ({"source": ECHO, "files": {"a": "/no/such"}}, "cannot read `/no/such`"),
    ],
)
def test_a_bad_launch_is_refused_with_the_reason(pie, arguments, words):
    with pytest.raises(api.BadRequest, match=words):
        pie.launch(**arguments)


def test_an_unknown_model_is_refused(pie):
    with pytest.raises(api.BadRequest, match="no model `none`"):
        api.Client("none")


def test_logs_and_the_list_of_processes(pie):
    process = pie.launch(source=ECHO, input={"n": 1})
    process.send("x")
    next(process.messages())
    assert [(each.stream, each.text) for each in process.logs()] == [
        ("stdout", "started with {'n': 1}\n")
    ]
    row = next(row for row in pie.processes() if row.id == process.id)
    assert (row.app, row.state, row.model) == ("app.py", "running", "fake")
    process.kill()


def test_another_client_attaches_and_hears_all_from_the_first(pie):
    process = pie.launch(source=ECHO)
    process.send("one")
    assert next(process.messages()) == {"got": "one"}
    with api.Client() as other:
        joined = other.attach(process.id)
        joined.send("two")
        messages = joined.messages()
        assert [next(messages), next(messages)] == [{"got": "one"}, {"got": "two"}]
        joined.close_input()
        assert joined.result() == process.result() == ["one", "two"]
        assert other.attach(process.id).result() == ["one", "two"]  # it has ended
    with pytest.raises(api.NoSuchProcess):
        pie.attach("no-such")


def test_a_detached_process_outlives_its_client_and_others_do_not(pie):
    with api.Client() as other:
        stays = other.launch(source=ECHO, detach=True)
        ends = other.launch(source=ECHO)
        stays.send("x")
        assert next(stays.messages()) == {"got": "x"}
    live = wait_until(lambda: ends.id not in (ids := {row.id for row in pie.processes()}) and ids)
    assert stays.id in live
    pie.attach(stays.id).kill()


def test_speaking_for_another_client(pie):
    process = pie.launch(source=ECHO)
    with api.Client(client="other") as other, pytest.raises(api.NotYours):
        other.attach(process.id).send("x")
    process.kill()


def test_a_closed_client_says_so(pie):
    other = api.Client()
    process = other.launch(source=ECHO)
    other.close()
    other.close()
    with pytest.raises(api.EngineError, match="closed"):
        other.processes()
    with pytest.raises(api.PieError):
        process.result()


def test_a_client_is_closed_while_its_thread_is_awake(pie):
    other = api.Client()
    link = other.link

    class Tasks:
        """The thread takes each task before whoever put it has woken the thread."""

        def __init__(self):
            self._tasks = link._tasks
            self.get, self.empty = self._tasks.get, self._tasks.empty

        def put(self, task):
            self._tasks.put(task)
            os.write(link._writer, b"!")
            link._thread.join(0.2)

    link._tasks = Tasks()
    other.close()
    with pytest.raises(api.EngineError, match="closed"):
        other.processes()


def test_many_are_launched_at_once(pie):
    source = "def main(input): return input['i']"
    processes = pie.launch_all({"source": source, "input": {"i": i}} for i in range(5))
    assert [process.result() for process in processes] == [0, 1, 2, 3, 4]


def test_threads_share_a_client(pie):
    results = {}

    def work(i: int) -> None:
        results[i] = pie.launch(
            source="def main(input): return input['i']", input={"i": i}
        ).result()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i for i in range(8)}


def test_an_engine_that_ends_is_an_engine_error(own_engine, monkeypatch):
    for name, value in own_engine.environment.items():
        monkeypatch.setenv(name, value)
    with api.Client() as client:
        process = client.launch(source=ECHO)
        os.kill(own_engine.card()["pid"], 9)
        with pytest.raises(api.EngineError) as caught:
            process.result()
        assert own_engine.home.name in caught.value.log
        with pytest.raises(api.EngineError):
            client.processes()


def test_asyncio_launches_listens_and_cancels_without_losing_a_message(pie):
    async def program() -> None:
        async with api.AsyncClient() as client:
            first, second = await asyncio.gather(
                client.launch(source=ECHO), client.launch("inferlets/hello.py", {"name": "me"})
            )
            assert await second.result() == {"hello": "me"}
            messages = first.messages()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(messages), 0.05)
            await first.send("one")
            await first.send("two")
            assert [m async for m in taken(first.messages(), 2)] == [{"got": "one"}, {"got": "two"}]
            assert first.id in {row.id for row in await client.processes()}
            await first.kill()
            with pytest.raises(api.ProcessKilled):
                await first.result()

    async def taken(messages, count):
        async for message in messages:
            yield message
            count -= 1
            if not count:
                return

    asyncio.run(program())


def test_a_message_that_a_cancelled_await_was_given_is_given_to_the_next():
    class Silent:
        def send(self, message: object) -> None: ...

    from ipc import client as c
    from pie_cli.client_process import Core

    core = Core(Silent(), "p", "app")
    future = core.next_message()
    core.hear(c.Sent("p", 0.0, False, "one"))
    core.hear(c.Sent("p", 0.0, False, "two"))
    core.give_back(future)  # nobody looked at it
    assert [core.next_message().result(), core.next_message().result()] == ["one", "two"]


def test_values_nested_deeper_than_python_can_follow_harm_nothing_else(pie):
    class Silent:
        def send(self, message: object) -> None: ...

    from ipc import client as c
    from pie_cli.client_process import Core

    deep = "[" * 100_000 + "]" * 100_000
    core = Core(Silent(), "p", "app")
    core.hear(c.Sent("p", 0.0, True, deep))
    core.hear(c.Returned("p", 0.0, deep))
    assert core.next_message().result() == deep
    with pytest.raises(api.PieError, match="nested too deeply"):
        core.result().result()


def test_the_public_names_are_those_that_the_module_says():
    assert all(hasattr(api, name) for name in api.__all__)
    assert all(getattr(api, name).__doc__ for name in api.__all__)
