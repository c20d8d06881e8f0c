"""Greedy completion of a raw prompt: one prefill pass, then one decode pass a token.

    pie run inferlets/completion.py -- --prompt "The capital of France is" --max-tokens 8
"""

from inferlet import *


async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input.get("prompt", "The capital of France is"))
    limit, stops, ids = input.get("max_tokens", 32), set(chat.stop_tokens()), []
    state, pipe, token = WorkingSet(), Pipeline(), Channel([1], dtype.i32)

    def choose():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)  # the next pass embeds it: no round trip to this program
        return best

    def build(tokens):
        forward = ForwardPass()
        forward.embed(tokens)
        forward.state([state], StateGeometry.folding())
        return forward, forward.epilogue(choose)

    def on_token(t):
        ids.append(t)
        return t not in stops

    (prefill, first), (decode, _) = build(prompt), build(token)
    pipe.submit(prefill)
    if on_token(await first):
        await pipe.run_ahead(decode, limit - 1, on_token)
    return {"tokens": ids, "text": model.decode([t for t in ids if t not in stops])}
