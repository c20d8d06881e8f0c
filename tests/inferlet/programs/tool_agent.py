import json
from inferlet import *

ADD = json.dumps({"name": "add", "description": "Add two integers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}})

async def main(input: dict) -> dict:
    ws, pipe, stops = WorkingSet(), Pipeline(), set(chat.stop_tokens())
    tok, calls = Channel.from_([0], dtype.i32), 0
    def step():
        tok.take()
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t
    def build(tokens):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(step)
    dec, _ = build(tok)
    ids = chat.prefix() + tools.equip([ADD]) + chat.user(input["question"])
    while True:
        (pre, first), parser, reply, found = build(ids + chat.cue()), tools.Decoder(), [], []
        def on_token(t):
            reply.append(t)
            event = parser.feed([t])
            if isinstance(event, tools.Event.Call):
                found.append(event.call)
            return t not in stops
        pipe.submit(pre)
        if on_token(await first):
            await pipe.run_ahead(dec, 256, on_token)
        if not found or calls >= 8:
            return {"calls": calls, "answer": model.decode([t for t in reply if t not in stops])}
        ids = [t for t in reply[-1:] if t not in stops] + chat.seal()
        for call in found:
            args, calls = json.loads(call.arguments_json), calls + 1
            ids += tools.answer(call.name, args["a"] + args["b"])
