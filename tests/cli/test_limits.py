"""`--limit`: keys, numbers and units."""

import re

import pytest

from ipc.client import Asked
from ipc.types import Limits
from pie_cli.engine.limits import IN_BYTES, amount
from pie_cli.limits import HELP, KEYS, parse_limits
from pie_cli.usage import UsageError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["memory=256M,cpu=60,pages=1000"], {"memory": 256 << 20, "cpu": 60, "pages": 1000}),
        (["memory=1k", "memory=1.5G"], {"memory": 3 << 29}),
        (["output=64KiB , channels=7B"], {"output": 64 << 10, "channels": 7}),
        (["passes=1,pipelines=2,descriptors=3,messages=4,inbox=5"],
         {"passes": 1, "pipelines": 2, "descriptors": 3, "messages": 4, "inbox": 5}),
        (["pages=" + "9" * 100], {"pages": 1 << 62}),
    ],
)  # fmt: skip
def test_limits_are_read_with_their_units(texts, expected):
    assert parse_limits(texts) == Asked(**expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed=1", "there is no limit `speed`"),
        ("memory", "`memory` is not of the form KEY=NUMBER"),
        ("", "`` is not of the form"),
        ("cpu=1M", "seconds have no unit"),
        ("memory=much", "is no number of bytes"),
        ("memory=-1", "is no number of bytes"),
        ("cpu=0", "is less than one"),
        ("cpu=1.5", "is no whole number of seconds"),
        ("memory=1T", "is no number of bytes"),
    ],
)
def test_what_is_no_limit_is_refused_with_the_keys(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        parse_limits([text])
    assert all(key in caught.value.hint for key in KEYS)


def test_the_keys_are_those_that_a_launch_can_ask_for():
    assert set(KEYS) == set(Asked.__struct_fields__)


def test_bytes_are_told_as_they_may_have_been_typed():
    assert amount("memory", 128 << 20) == "128M (134,217,728 bytes)"
    assert amount("output", 1 << 30) == "1G (1,073,741,824 bytes)"
    assert amount("output", 3 << 29) == "1536M (1,610,612,736 bytes)"
    assert amount("channels", 1000) == "1,000 bytes" and amount("pages", 1024) == "1,024"
    assert amount("memory", 1) == "1 byte"
    assert set(IN_BYTES) == {key for key, unit in KEYS.items() if unit == "bytes"}


def test_the_help_names_every_key_with_its_default():
    rows = re.split(r"\n  (?=\w)", HELP)[1:]
    told = {row.split()[0]: re.search(r"\((\d+[KMG]?)", row)[1] for row in rows}
    assert list(told) == list(KEYS)
    defaults = {key: getattr(Limits(), key) for key in KEYS}
    numbers = {key: parse_limits([f"{key}={text}"]) for key, text in told.items()}
    assert {key: getattr(asked, key) for key, asked in numbers.items()} == defaults
