"""An agent with two tools: a matcher forces its first reply to be a valid call, then it answers.

    pie run inferlets/agent.py -- --question "What is 12 times 7?"
"""

import json

from inferlet import *

TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
PAIR = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
SPECS = [{"name": n, "description": f"{n} two integers", "parameters": PAIR} for n in TOOLS]


async def main(input: dict) -> dict:
    state, pipe, matcher = WorkingSet(), Pipeline(), tools.create_matcher(SPECS)
    decoder, stops = tools.Decoder(), chat.stop_tokens()
    anything = [0xFFFFFFFF] * len(matcher.mask())  # a bit a token, as the matcher's masks
    may = Channel([len(anything)], dtype.u32)

    async def say(tokens, limit, is_forced):
        ids = []
        while len(ids) < limit and not set(ids[-1:]) & set(stops):
            forward = ForwardPass()
            forward.embed(tokens)
            forward.state([state], StateGeometry.folding())
            t = forward.epilogue(lambda: masked_argmax(intrinsics.output(0, "logits"), may.take()))
            may.put(matcher.mask() if is_forced else anything)
            pipe.submit(forward)
            ids += (tokens := [await t])
            if is_forced and isinstance(event := decoder.feed(tokens), tools.Event.Call):
                return event.call, tokens
            matcher.accept_tokens(tokens if is_forced else [])
        return model.decode([t for t in ids if t not in stops]), tokens

    question = chat.user(input.get("question", "What is 12 times 7?"))
    call, last = await say(chat.prefix() + tools.equip(SPECS) + question + chat.cue(), 96, True)
    value = TOOLS[call.name](**json.loads(call.arguments_json))
    ahead = last + chat.seal() + tools.answer(call.name, value) + chat.cue()
    answer, _ = await say(ahead, input.get("max_tokens", 48), False)
    return {"call": [call.name, call.arguments_json], "value": value, "answer": answer}
