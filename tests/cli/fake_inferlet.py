"""A stand-in for the SDK's runtime (temporary)."""
import contextlib, io, json, os, sys, traceback, types
from ipc import codec, frames, messages as m

def main(fd):
    reader = frames.FrameReader(frames.MAX_LAUNCH_FRAME)
    queue = []
    def recv():
        while not queue:
            data = os.read(fd, 1 << 20)
            if not data: os._exit(0)
            queue.extend(reader.feed(data))
        kind, body = queue.pop(0)
        return codec.decode_to_inferlet(body) if kind == frames.HUB else body
    def send(msg):
        data = frames.pack(frames.HUB, codec.encode(msg))
        while data: data = data[os.write(fd, data):]
    launch = recv()
    s = types.ModuleType("session")
    asked = []
    def put(x): send(m.Send(not isinstance(x, str), x if isinstance(x, str) else json.dumps(x)))
    async def receive():
        if not asked: asked.append(1); send(m.Receiving())
        msg = recv()
        if isinstance(msg, m.InboxClosed): raise EOFError
        if isinstance(msg, m.Engine): raise RuntimeError(msg.failure.message)
        return json.loads(msg.text) if msg.is_json else msg.text
    s.send, s.receive, s.file, s.id = put, receive, launch.files.__getitem__, lambda: launch.process
    pkg = types.ModuleType("inferlet"); pkg.session = s; pkg.__all__ = ["session"]
    sys.modules["inferlet"] = pkg
    class Out(io.TextIOBase):
        def __init__(self, n): self.n = n
        def write(self, t): send(m.Output(self.n, t)); return len(t)
    sys.stdout, sys.stderr = Out("stdout"), Out("stderr")
    try:
        ns = {}
        for name, source in launch.modules.items():
            mod = types.ModuleType(name); exec(source, mod.__dict__); sys.modules[name] = mod
        exec(compile(launch.source, launch.app, "exec"), ns)
        r = ns["main"](json.loads(launch.input))
        if hasattr(r, "send"):
            try: r.send(None)
            except StopIteration as e: r = e.value
        send(m.Returned(json.dumps(r)))
    except BaseException as e:
        send(m.Raised(type(e).__name__, str(e), "".join(traceback.format_tb(e.__traceback__)[2:])))
    return 0
