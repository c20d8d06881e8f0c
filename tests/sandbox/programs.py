"""Ordinary things that inferlets do; each raises when it does not work."""

import json
import socket
from collections.abc import Callable

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


@program
def event_loop_with_timers_and_streams() -> None:
    import asyncio

    async def main() -> bytes:
        one, two = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=one)
        reader, other = await asyncio.open_connection(sock=two)
        await asyncio.sleep(0.001)
        writer.writelines([b"a", b"b\n"])
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        other.close()
        return line

    assert asyncio.run(main()) == b"ab\n"


@program
def lazy_imports_of_the_standard_library() -> None:
    import decimal
    import sqlite3
    import statistics
    import xml.etree.ElementTree as tree

    assert decimal.Decimal("0.1") * 3 == decimal.Decimal("0.3")
    assert statistics.median([3, 1, 2]) == 2
    assert tree.fromstring("<a><b/></a>")[0].tag == "b"
    assert sqlite3.connect(":memory:").execute("select 2").fetchone() == (2,)


@program
def numpy_with_random_and_linear_algebra() -> None:
    import numpy

    matrix = numpy.random.default_rng(0).random((50, 50), dtype=numpy.float32)
    assert numpy.allclose(numpy.linalg.inv(matrix) @ matrix, numpy.eye(50), atol=1e-2)


@program
def tokenizer_without_threads() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    encoded = tokenizer.encode_batch(["a b c"] * 200)
    assert [each.ids for each in encoded] == [[0, 1, 2]] * 200


@program
def template() -> None:
    import jinja2

    assert jinja2.Environment().from_string("{{ a | tojson }}").render(a=[1]) == "[1]"


@program
def time_zones_and_local_time() -> None:
    import datetime
    import time
    import zoneinfo

    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    assert datetime.datetime(2026, 7, 1, tzinfo=zone).utcoffset() == datetime.timedelta(hours=2)
    assert time.localtime(0).tm_hour == 0


@program
def randomness() -> None:
    import random
    import secrets
    import uuid

    assert len({random.random(), random.random(), secrets.token_hex(), uuid.uuid4()}) == 4


@program
def mime_types() -> None:
    import mimetypes

    assert mimetypes.guess_type("a.png") == ("image/png", None)


@program
def a_missing_module_is_a_plain_import_error() -> None:
    for name in ("no_such_module", "worker"):
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
        raise AssertionError(f"{name} was found, or failed in another way")


@program
def tracebacks() -> None:
    import traceback

    try:
        json.loads("{")
    except ValueError:
        assert "JSONDecodeError" in traceback.format_exc()


@program
def memory_errors_can_be_caught() -> None:
    try:
        bytearray(4 << 30)
    except MemoryError:
        return
    raise AssertionError("4 GiB were allocated")


def run(descriptor: int) -> None:
    """Entry function of a child."""
    with socket.socket(fileno=descriptor) as channel:
        name = json.loads(channel.makefile("r").readline())["name"]
        try:
            PROGRAMS[name]()
            answer = {"outcome": "finished", "result": None}
        except BaseException as error:
            answer = {"outcome": "failed", "result": repr(error)}
        channel.sendall(json.dumps(answer).encode() + b"\n")
