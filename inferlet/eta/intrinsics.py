"""Values that the engine gives to a stage."""

from inferlet.eta.tensor import Tensor
from inferlet.eta.trace import active_stage, fail, int_argument


def output(lane: int, name: str) -> Tensor:
    """A model output of one lane, in epilogues: `"logits"` is f32 `[vocab]`, or `[n, vocab]` with
    n rows read out."""
    stage = active_stage("`intrinsics.output`")
    if not isinstance(name, str):
        fail(f'`intrinsics.output` got {name!r} for `name`; it takes a str such as "logits"')
    return stage.output(int_argument("intrinsics.output", "lane", lane), name)
