"""Samples with temperature and top-p; equal seeds give equal text.

    pie run inferlets/sample.py -- --prompt "Once upon a time" --temperature 0.8 --top-p 0.95 --seed 7
"""

from inferlet import *


async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input.get("prompt", "Once upon a time"))
    limit, stops, ids = input.get("max_tokens", 48), set(chat.stop_tokens()), []
    state, pipe, token = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    rng = Channel.from_([input.get("seed", 0), 0], dtype.u32)  # [key, counter]
    temperature, top_p = input.get("temperature", 0.8), input.get("top_p", 0.95)
    if not temperature >= 0:
        raise ValueError(f"the temperature is {temperature}; it is at least 0, and 0 is greedy")
    if temperature == 0:
        temperature, top_p = 1.0, 0.0  # the likeliest token alone is in the nucleus
    knobs = Channel.from_([temperature, top_p], dtype.f32)

    def choose():
        values, draw = knobs.read(), rng.take()
        logits = intrinsics.output(0, "logits") / gather(values, 0)
        chosen = nucleus_sample(logits, gather(values, 1), draw)
        rng.put(draw + constant([0, 1], dtype.u32))  # a sampler never advances its state
        token.put(chosen)
        return chosen

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
