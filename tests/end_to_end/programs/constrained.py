import json
from inferlet import *

async def main(input: dict) -> dict:
    v, stops, ids = model.output_vocab_size(), set(chat.stop_tokens()), []
    matcher = Matcher(Grammar.from_json_schema(json.dumps(input["schema"])))
    ws, pipe, tok, allow = WorkingSet(), Pipeline(), Channel([1], dtype.i32), Channel([v], dtype.bool)
    def choose():
        t = masked_argmax(intrinsics.output(0, "logits"), allow.take())
        tok.put(t)
        return t
    def build(tokens):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(choose)
    decode = build(tok)
    fwd, result = build(chat.first_user(input["question"]) + chat.cue_without_thinking())
    while not matcher.is_terminated() and len(ids) < input.get("max_tokens", 256):
        allow.put(mask.unpack_mask(matcher.mask(), v))
        pipe.submit(fwd)
        ids.append(await result)
        matcher.accept_tokens(ids[-1:])
        fwd, result = decode
    return {"value": json.loads(model.decode([t for t in ids if t not in stops]))}
