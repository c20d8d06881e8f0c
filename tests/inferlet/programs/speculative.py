from inferlet import *

W = 4

def lookup(ids):                                       # what followed the last two tokens before
    for i in range(len(ids) - 3, -1, -1):
        if ids[i:i + 2] == ids[-2:]:
            return ids[i + 2:i + 1 + W]
    return []

async def main(input: dict) -> dict:
    prompt, limit = chat.prefix() + model.encode(input["prompt"]), input.get("max_tokens", 32)
    ws, pipe, pre, ver = WorkingSet(), Pipeline(), ForwardPass(), ForwardPass()
    tok, pos, slot = Channel([W], dtype.i32), Channel([W], dtype.u32), Channel([W], dtype.u32)
    length, fold = Channel.from_([0], dtype.u32), Channel.from_([0], dtype.u32)
    pre.embed(prompt)
    pre.state([ws], StateGeometry.folding())
    first = pre.epilogue(lambda: reduce_argmax(intrinsics.output(0, "logits")))
    ver.embed(tok)
    ver.state([ws], StateGeometry(positions=pos, slots=slot, kv_len=length, fold=fold))
    ver.readout(list(range(W)))
    verified = ver.epilogue(lambda: reduce_argmax(intrinsics.output(0, "logits")))
    pipe.submit(pre)
    ids, base, accepted, fires = prompt + [await first], len(prompt), 0, 0
    while len(ids) < len(prompt) + limit:
        row = ids[-1:] + lookup(ids)
        tok.put(row + [-1] * (W - len(row)))
        pos.put(list(range(base, base + W)))
        slot.put(list(range(base, base + W)))
        length.set([base + len(row)])
        fold.set([accepted])                           # freezes what the fire before got right
        pipe.submit(ver)
        want, accepted, fires = (await verified).tolist(), 1, fires + 1
        while accepted < len(row) and row[accepted] == want[accepted - 1]:
            accepted += 1
        ids, base = ids + want[:accepted], base + accepted
    return {"tokens": ids[len(prompt):len(prompt) + limit], "fires": fires}
