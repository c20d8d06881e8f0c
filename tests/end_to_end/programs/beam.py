import numpy as np
from inferlet import *

async def main(input: dict) -> dict:
    width, prompt = input.get("width", 4), chat.prefix() + model.encode(input["prompt"])
    root, pipe, tok = WorkingSet(), Pipeline(), Channel([width], dtype.i32)
    def best(lane):
        logits = intrinsics.output(lane, "logits")
        ids = top_k(logits, width)[1]
        return gather(log_softmax(logits), ids), ids
    pre, dec = ForwardPass(), ForwardPass()
    pre.embed(prompt)
    pre.state([root], StateGeometry.folding())
    first = pre.epilogue(lambda: [best(0)])
    dec.embed(tok, indptr=list(range(width + 1)))
    expand = dec.epilogue(lambda: [best(i) for i in range(width)])
    pipe.submit(pre)
    rows, beams, sets = await first, [(0.0, [])], [root]
    for step in range(input.get("max_tokens", 16)):
        grown = [(beams[i][0] + float(lp), i, int(t)) for i, (lps, ids) in enumerate(rows)
                 for lp, t in zip(np.atleast_1d(lps), np.atleast_1d(ids))]
        grown = sorted(grown, key=lambda c: -c[0])[:width]
        sets = [sets[i].fork(pipe) for _, i, _ in grown]
        beams = [(score, beams[i][1] + [t]) for score, i, t in grown]
        dec.state(sets, StateGeometry.folding())
        tok.put([ids[-1] for _, ids in beams])
        pipe.submit(dec)
        rows = await expand
    return {"score": beams[0][0], "text": model.decode(beams[0][1])}
