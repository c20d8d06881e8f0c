"""The agent of the contract, whose first reply `tools.create_matcher` forces to be calls."""

import json

from inferlet import *

ADD = json.dumps({"name": "add", "description": "Add two integers.", "parameters": {
    "type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99},
        "b": {"type": "integer", "minimum": 0, "maximum": 99}}}})


async def main(input: dict) -> dict:
    v, stops, matcher = model.output_vocab_size(), set(chat.stop_tokens()), tools.create_matcher([ADD])
    ws, pipe, tok, allow = WorkingSet(), Pipeline(), Channel([1], dtype.i32), Channel([v], dtype.bool)

    def forced():
        t = masked_argmax(intrinsics.output(0, "logits"), allow.take())
        tok.put(t)
        return t

    def free():
        tok.take()  # what the last turn left
        t = reduce_argmax(intrinsics.output(0, "logits"))
        tok.put(t)
        return t

    def build(tokens, epilogue):
        p = ForwardPass()
        p.embed(tokens)
        p.state([ws], StateGeometry.folding())
        return p, p.epilogue(epilogue)

    async def reply(prompt, epilogue, limit):
        (fwd, result), later, ids = build(prompt, epilogue), build(tok, epilogue), []
        while len(ids) < limit and not (ids and ids[-1] in stops):
            if epilogue is forced:
                if matcher.is_terminated():
                    break
                allow.put(mask.unpack_mask(matcher.mask(), v))
            pipe.submit(fwd)
            ids.append(await result)
            if epilogue is forced:
                matcher.accept_tokens(ids[-1:])
            fwd, result = later
        return ids

    opening = chat.prefix() + tools.equip([ADD]) + chat.user(input["question"]) + chat.cue()
    ids, parser, calls = await reply(opening, forced, 96), tools.Decoder(), []
    event = parser.feed(ids)
    while isinstance(event, tools.Event.Call):
        calls.append(event.call)
        event = parser.feed([])
    ahead = [t for t in ids[-1:] if t not in stops] + chat.seal()
    sums = []
    for call in calls:
        args = json.loads(call.arguments_json)
        sums.append(args["a"] + args["b"])
        ahead += tools.answer(call.name, sums[-1])
    answer = await reply(ahead + chat.cue(), free, 48)
    return {
        "said": model.decode([t for t in ids if t not in stops]),
        "calls": [[call.name, call.arguments_json] for call in calls],
        "sums": sums,
        "answer": model.decode([t for t in answer if t not in stops]),
    }
