"""`--limit memory=256M,cpu=60`: limits of one launch, with their units. Knows no engine's own."""

import re
from typing import TYPE_CHECKING

from pie_cli.usage import UsageError

if TYPE_CHECKING:
    from ipc.client import Asked

#: What each key counts; those in bytes take a unit.
KEYS = {
    "memory": "bytes", "cpu": "seconds", "pages": "pages", "pipelines": "pipelines",
    "channels": "bytes", "passes": "queued passes", "descriptors": "open files",
    "output": "bytes", "messages": "messages a second", "inbox": "messages",
}  # fmt: skip
#: For `pie run --help`: what each key counts, and the engine's own unless `pie serve` was told.
HELP = """\b
Keys of --limit, what each counts, and the default:
  memory       bytes allocated beyond a bare launch (1G); beyond: MemoryError
  cpu          seconds of processor time of the app's process (86400)
  pages        pages of KV state held at once (2147483648: all there are)
  pipelines    pipelines open at once (1024)
  channels     bytes of all channels' cells (256M)
  passes       passes submitted and not finished (10000)
  descriptors  open files (64)
  output       bytes printed to stdout and stderr; messages are not (64M)
  messages     messages, prints and other things said to the engine a second
               (20000); more is slowed down, none is lost, and a burst passes
  inbox        messages that wait for `receive` (10000)
Bytes take K, M or G. A process that meets a limit ends with exit code 137;
but `messages` only slows it down, and a full `inbox` refuses the sender.
"""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:i?B)?", re.IGNORECASE)
_MOST = 1 << 62


def parse_limits(texts: list[str]) -> "Asked":
    """The limits of every `--limit`; the last of equal keys wins. Raises UsageError."""
    from ipc.client import Asked

    found: dict[str, int] = {}
    for text in texts:
        for pair in text.split(","):
            key, is_pair, value = pair.partition("=")
            key = key.strip()
            if not is_pair:
                raise UsageError(
                    f"`--limit {text}`: `{pair}` is not of the form KEY=NUMBER", _hint()
                )
            if key not in KEYS:
                raise UsageError(f"`--limit {text}`: there is no limit `{key}`", _hint())
            found[key] = _number(key, value.strip())
    return Asked(**found)


def _number(key: str, text: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"`--limit {key}={text}` is no number of {KEYS[key]}", _hint())
    unit = match[2].upper()
    if KEYS[key] != "bytes" and match[0] != match[1]:
        raise UsageError(f"`--limit {key}={text}`: {KEYS[key]} have no unit", _hint())
    number = float(match[1]) if "." in match[1] else int(match[1])
    if KEYS[key] != "bytes" and number != int(number):
        raise UsageError(f"`--limit {key}={text}` is no whole number of {KEYS[key]}", _hint())
    value = int(number * _UNITS[unit])
    if value < 1:
        raise UsageError(f"`--limit {key}={text}` is less than one", _hint())
    return min(value, _MOST)


def _hint() -> str:
    return f"like `memory=256M,cpu=60`; keys: {', '.join(KEYS)}"
