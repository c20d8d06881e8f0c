import json
from inferlet import *

async def main(input: dict) -> dict:
    """As `constrained`, but text that is forced costs no fire of its own, and masks stay packed."""
    v, stops, ids, fires = model.output_vocab_size(), set(chat.stop_tokens()), [], 0
    matcher = Matcher(Grammar.from_json_schema(json.dumps(input["schema"])))
    ws, pipe, allow = WorkingSet(), Pipeline(), Channel([-(-v // 32)], dtype.u32)
    def choose():
        return masked_argmax(intrinsics.output(0, "logits"), allow.take())
    rows = chat.first_user(input["question"]) + chat.cue_without_thinking()
    while not matcher.is_terminated() and len(ids) < input.get("max_tokens", 256):
        forced = matcher.forced_tokens() if input.get("forced", True) else []
        matcher.accept_tokens(forced)
        ids, rows = ids + forced, rows + forced
        if matcher.is_terminated():
            break
        fwd = ForwardPass()
        fwd.embed(rows)
        fwd.state([ws], StateGeometry.folding())
        result = fwd.epilogue(choose)
        allow.put(matcher.mask())
        pipe.submit(fwd)
        rows, fires = [await result], fires + 1
        matcher.accept_tokens(rows)
        ids = ids + rows
    text = model.decode([t for t in ids if t not in stops])
    return {"value": json.loads(text), "text": text, "fires": fires}
