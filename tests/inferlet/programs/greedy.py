from inferlet import *

async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input["prompt"])
    ws, pipe, tok = WorkingSet(), Pipeline(), Channel([1], dtype.i32)
    def choose():
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)                                     # the next fire embeds it
        return t
    def build(tokens):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(choose)
    (pre, first), (dec, following) = build(prompt), build(tok)
    pipe.submit(pre)
    ids = [await first]
    for _ in range(input.get("max_tokens", 32) - 1):
        pipe.submit(dec)
        ids.append(await following)
    return {"tokens": ids, "text": model.decode(ids), "frozen": ws.folded()}
