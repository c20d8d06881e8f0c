from inferlet import *

async def main(input: dict) -> dict:
    ws, pipe, stops = WorkingSet(), Pipeline(), set(chat.stop_tokens())
    tok = Channel.from_([0], dtype.i32)
    def step():
        tok.take()                                     # drop what the last turn left
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t
    def build(tokens):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(step)
    dec, _ = build(tok)
    ids, turns = chat.system_user(input["system"], input["user"]), 0
    while True:
        (pre, first), text, seen = build(ids + chat.cue()), chat.Decoder(), []
        def on_token(t):
            seen.append(t)
            event = text.feed([t])
            if isinstance(event, chat.Event.Delta):
                session.send(event.text)
            return t not in stops
        pipe.submit(pre)
        if on_token(await first):
            await pipe.run_ahead(dec, input.get("max_tokens", 64), on_token)
        turns += 1
        pipe.park()
        message = await session.receive()
        if message == "bye":
            return {"turns": turns, "frozen": ws.folded()}
        pending = [t for t in seen[-1:] if t not in stops]   # sampled, not embedded
        ids = pending + chat.seal() + chat.user(message)
