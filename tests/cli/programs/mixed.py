from inferlet import *


async def main(input: dict) -> dict:
    fwd = ForwardPass()
    fwd.embed(model.encode("hi"))
    fwd.state([WorkingSet()], StateGeometry.folding())
    best = fwd.epilogue(choose)
    Pipeline().submit(fwd)
    return {"best": await best}


def choose():
    ranks = iota(259)
    return reduce_max(intrinsics.output(0, "logits") * ranks)
