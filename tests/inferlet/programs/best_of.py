import asyncio
from inferlet import *

async def main(input: dict) -> dict:
    prompt, stops = chat.first_user(input["prompt"]) + chat.cue(), set(chat.stop_tokens())
    root, pipe = WorkingSet(), Pipeline()
    pre = ForwardPass()
    pre.embed(prompt[:-1])
    pre.state([root], StateGeometry.folding())
    pipe.submit(pre)
    async def branch(i):
        ws, own, ids, total = root.fork(pipe), Pipeline(), [], 0.0
        tok = Channel.from_(prompt[-1:])
        rng = Channel.from_([input.get("seed", 0) + i, 0], dtype.u32)
        dec = ForwardPass()
        dec.embed(tok)
        dec.state([ws], StateGeometry.folding())
        @dec.epilogue
        def _():
            logits, s = intrinsics.output(0, "logits"), rng.take()
            t = gumbel_max(logits / 0.9, s)
            rng.put(s + constant([0, 1], dtype.u32))
            tok.put(t)
            return t, gather(log_softmax(logits), t)
        def on_token(result):
            nonlocal total
            ids.append(result[0])
            total += result[1]
            return result[0] not in stops
        n = await own.run_ahead(dec, input.get("max_tokens", 48), on_token)
        return total / n, ids
    score, ids = max(await asyncio.gather(*[branch(i) for i in range(input.get("n", 4))]))
    return {"score": score, "text": model.decode(ids), "prompt_tokens": root.folded()}
