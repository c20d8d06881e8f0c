"""The inferlets that benchmarks run, as text."""

#: Greedy decoding of `new` tokens after `prompt`.
GREEDY = """
from inferlet import *

async def main(input):
    state, pipe, token, ids = WorkingSet(), Pipeline(), Channel([1], dtype.i32), []
    def choose():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best
    def build(tokens):
        forward = ForwardPass()
        forward.embed(tokens)
        forward.state([state], StateGeometry.folding())
        return forward, forward.epilogue(choose)
    (prefill, first), (decode, _) = build(input["prompt"]), build(token)
    pipe.submit(prefill)
    ids.append(await first)
    if input["new"] > 1:
        await pipe.run_ahead(decode, input["new"] - 1, ids.append)
    return ids
"""

#: Tells when its `main` began, by the clock that all processes of a machine share.
LAUNCH = """
import time

def main():
    return time.time()
"""
