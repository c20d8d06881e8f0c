from inferlet import *

async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input["prompt"])
    limit, window = input.get("max_tokens", 32), input.get("window", 64)
    width, ws, pipe, ids = len(prompt) + limit, WorkingSet(), Pipeline(), []
    tok, row = Channel([1], dtype.i32), Channel([1, width], dtype.bool)
    at = Channel.from_([len(prompt)], dtype.u32)       # slot of the next row
    def choose():
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t
    pre, dec = ForwardPass(), ForwardPass()
    for fwd, tokens in ((pre, prompt), (dec, tok)):
        fwd.embed(tokens)
        fwd.state([ws], StateGeometry.folding())
    pre.mask([[k <= q < k + window for k in range(width)] for q in range(len(prompt))])
    dec.mask(row)
    @dec.prologue
    def _():
        q = at.take()
        row.put(sliding_window_mask(q, width, window))
        at.put(q + 1)
    first = pre.epilogue(choose)
    dec.epilogue(choose)
    pipe.submit(pre)
    ids.append(await first)
    await pipe.run_ahead(dec, limit - 1, lambda t: ids.append(t))
    return {"tokens": ids, "text": model.decode(ids)}
