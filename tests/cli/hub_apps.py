"""Apps that several tests of the hub launch."""

TALK = """
from inferlet import session
async def main(input):
    for i in range(input.get("n", 2)):
        session.send(f"m{i}"); print(f"p{i}")
    while True:
        got = await session.receive()
        if got == "end":
            return "over"
        session.send({"got": got})
"""
RELAY = """
from inferlet import session
async def main(input):
    outcomes = []
    for i in range(input["count"]):
        try:
            session.send_to(input["to"], {"from": session.id(), "i": i})
        except (LookupError, PermissionError, BufferError) as error:
            outcomes.append(type(error).__name__)
            break
    return outcomes
"""
SEND_FILES = """
from inferlet import session
def main(input):
    session.send_file(b"")
    session.send_file(bytes(range(256)) * input.get("blocks", 1))
"""
# Says what the SDK never would; MESSAGES stands for what.
HOSTILE = """
from inferlet.runtime import handles
from ipc import codec, frames
from ipc import messages as m
async def main(input):
    for message in MESSAGES:
        handles.current().outbox._frame(frames.HUB, codec.encode(message))
    while True:
        pass
"""
