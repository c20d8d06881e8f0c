from inferlet import *

async def main(input: dict) -> dict:
    ws, pipe, stops = WorkingSet(), Pipeline(), set(chat.stop_tokens())
    tok, peer, rounds, log = Channel.from_([0], dtype.i32), input.get("peer"), input.get("rounds", 2), []
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
    def say(text):
        session.send_to(peer, {"from": session.id(), "text": text})
    opener, (dec, _), ids = peer is not None, build(tok), chat.system("Reply in one sentence.")
    say(input["topic"]) if opener else session.send({"id": session.id()})
    for i in range(rounds):
        pipe.park()
        heard, reply = await session.receive(), []
        peer = heard["from"]
        pre, first = build(ids + chat.user(heard["text"]) + chat.cue_without_thinking())
        pipe.submit(pre)
        reply.append(await first)
        if reply[0] not in stops:
            await pipe.run_ahead(dec, 48, lambda t: reply.append(t) or t not in stops)
        log.append(model.decode([t for t in reply if t not in stops]))
        if not (opener and i == rounds - 1):           # the peer has finished by then
            say(log[-1])
        ids = [t for t in reply[-1:] if t not in stops] + chat.seal()
    return {"log": log}
