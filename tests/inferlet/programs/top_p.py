from inferlet import *

async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input["prompt"])
    ws, pipe, tok, ids = WorkingSet(), Pipeline(), Channel([1], dtype.i32), []
    rng = Channel.from_([input.get("seed", 0), 0], dtype.u32)
    knobs = Channel.from_([input.get("temperature", 0.8), input.get("top_p", 0.95)], dtype.f32)
    def sample():
        k, s = knobs.read(), rng.take()
        t = nucleus_sample(intrinsics.output(0, "logits") / gather(k, 0), gather(k, 1), s)
        rng.put(s + constant([0, 1], dtype.u32))
        tok.put(t)
        return t
    def build(tokens):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(sample)
    (pre, first), (dec, _) = build(prompt), build(tok)
    pipe.submit(pre)
    ids.append(await first)
    await pipe.run_ahead(dec, input.get("max_tokens", 32) - 1, lambda t: ids.append(t))
    return {"tokens": ids, "text": model.decode(ids)}
