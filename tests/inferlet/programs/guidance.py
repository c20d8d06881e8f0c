from inferlet import *

async def main(input: dict) -> dict:
    yes = chat.prefix() + model.encode(input["prompt"])
    no = chat.prefix() + model.encode(input.get("negative", "Once"))
    scale, both, pipe = float(input.get("scale", 1.5)), Channel([2], dtype.i32), Pipeline()
    sets, ids = [WorkingSet(), WorkingSet()], []
    def guided():
        p, n = intrinsics.output(0, "logits"), intrinsics.output(1, "logits")
        t = reduce_argmax(n + (p - n) * scale)
        both.put(broadcast(t, [2]))                    # both lanes append the same token
        return t
    def build(tokens, indptr):
        f = ForwardPass()
        f.embed(tokens, indptr)
        f.state(sets, StateGeometry.folding())
        return f, f.epilogue(guided)
    pre, first = build(yes + no, [0, len(yes), len(yes) + len(no)])
    dec, _ = build(both, [0, 1, 2])
    pipe.submit(pre)
    ids.append(await first)
    await pipe.run_ahead(dec, input.get("max_tokens", 32) - 1, lambda t: ids.append(t))
    return {"tokens": ids, "text": model.decode(ids)}
