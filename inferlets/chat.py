"""A chat that streams. Each line of stdin is a further turn; the end of stdin ends it.

    pie run inferlets/chat.py -- --prompt "Why is the sky blue?"
"""

import asyncio

from inferlet import *


async def next_line():
    coming = asyncio.ensure_future(session.receive())
    typed, _ = await asyncio.wait([coming], timeout=0.3)
    if not typed:  # a person is to type it: a file's lines are there at once
        print("> ", end="")
    return await coming


async def main(input: dict) -> dict:
    state, pipe, stops = WorkingSet(), Pipeline(), set(chat.stop_tokens())
    limit = input.get("max_tokens", 256)
    token = Channel.from_([0], dtype.i32)

    def choose():
        token.take()  # drops what the last turn left
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best

    def build(tokens):
        forward = ForwardPass()
        forward.embed(tokens)
        forward.state([state], StateGeometry.folding())
        return forward, forward.epilogue(choose)

    async def reply(ids):
        (prefill, first), text, seen = build(ids + chat.cue()), chat.Decoder(), []

        def on_token(t):
            seen.append(t)
            match text.feed([t]):
                case chat.Event.Delta(piece):
                    session.send(piece)
            return t not in stops

        pipe.submit(prefill)
        if on_token(await first):
            await pipe.run_ahead(decode, limit - 1, on_token)
        session.send("\n")
        if seen[-1] not in stops:
            print(f"(cut at {len(seen)} tokens: --max-tokens gives more)")
        return seen

    decode, _ = build(token)
    message, turns, ids = input.get("prompt"), 0, []
    while True:
        while message is None or not str(message).strip():  # an empty line is no turn
            pipe.park()
            try:
                message = await next_line()
            except EOFError:
                return {"turns": turns, "tokens": state.folded()}
        if turns:
            ids += chat.user(message)
        elif "system" in input:
            ids = chat.system_user(input["system"], message)
        else:
            ids = chat.first_user(message)
        seen = await reply(ids)
        # A stop token is sampled but not embedded: the seal takes its place.
        ids = [t for t in seen[-1:] if t not in stops] + chat.seal()
        message, turns = None, turns + 1
