from inferlet import *


async def main(input: dict) -> dict:
    ws, pipe = WorkingSet(), Pipeline()
    token = Channel([1], dtype.i32).named("token")
    dice = Channel.from_([input.get("seed", 0), 0], dtype.u32).named("dice")
    scores = Channel((), dtype.f32).capacity(2)
    fwd = ForwardPass()
    fwd.embed(model.encode(input["prompt"]))
    fwd.state([ws], StateGeometry.folding())

    @fwd.prologue
    def _():
        dice.put(dice.take() + constant([0, 1], dtype.u32))

    def choose():
        logits = intrinsics.output(0, "logits")
        chosen = gumbel_max(logits / 0.8, dice.read())
        token.put(chosen)
        scores.put(gather(log_softmax(logits), chosen))
        return {"token": chosen}

    result = fwd.epilogue(choose)
    pipe.submit(fwd)
    return {"token": (await result)["token"], "score": await scores.take_scalar()}
