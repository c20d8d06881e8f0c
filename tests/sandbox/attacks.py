"""Runs attacks and inspections: as the entry function of confined children, and in the open.

One JSON request a line, one JSON outcome a line: `escaped`, `blocked`, or `broken` when it failed
for another reason than the sandbox.
"""

import json
import os
import socket
import sys

from pie_cli.sandbox import policy
from tests.sandbox import inspections, on_files, on_kernel, on_others  # noqa: F401
from tests.sandbox.registry import ATTACKS, Attack


def outcome(name: str, arguments: dict) -> dict:
    chosen = ATTACKS.get(name) or Attack(getattr(inspections, name))
    wanted = chosen.run.__code__.co_varnames[: chosen.run.__code__.co_argcount]
    try:
        result = chosen.run(**{key: arguments[key] for key in wanted})
        return {"outcome": "escaped", "result": result if _is_plain(result) else repr(result)}
    except Exception as error:
        if name == "fail":
            raise
        blocked = chosen.is_blocked(error, arguments.get("tier", policy.NONE))
        return {"outcome": "blocked" if blocked else "broken", "result": repr(error)}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, list, dict))


def run(descriptor: int) -> None:
    """Entry function of confined children."""
    with socket.socket(fileno=descriptor) as channel:
        request = json.loads(channel.makefile("r").readline())
        answer = outcome(request["name"], request["arguments"])
        channel.sendall(json.dumps(answer).encode() + b"\n")


def serve() -> None:
    """The control: runs each request of stdin in a new process without any sandbox."""
    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            answer = outcome(request["name"], request["arguments"])
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answers:
            text = answers.read()
        _, status = os.waitpid(pid, 0)
        text = text or json.dumps(
            {"outcome": "no answer", "result": os.waitstatus_to_exitcode(status)}
        )
        print(text, flush=True)
