"""The SDK of `pie`: programs that drive a language model. `from inferlet import *` gives it all."""

# The device language comes first: the classes below record with it.
from inferlet import eta  # isort: skip
from inferlet import chat, grammar, mask, model, reasoning, session, tools
from inferlet.channel import Channel
from inferlet.errors import (
    ChannelFull,
    GrammarError,
    InferletError,
    OutOfMemory,
    PipelineClosed,
    TraceError,
)
from inferlet.eta import *
from inferlet.eta import Tensor, dtype, intrinsics
from inferlet.forward import ForwardPass, StateGeometry
from inferlet.grammar import Grammar, Matcher
from inferlet.pipeline import Pipeline
from inferlet.working_set import WorkingSet

__all__ = [  # noqa: PLE0604
    "Channel",
    "ChannelFull",
    "ForwardPass",
    "Grammar",
    "GrammarError",
    "InferletError",
    "Matcher",
    "OutOfMemory",
    "Pipeline",
    "PipelineClosed",
    "StateGeometry",
    "Tensor",
    "TraceError",
    "WorkingSet",
    "chat",
    "dtype",
    "eta",
    "grammar",
    "intrinsics",
    "mask",
    "model",
    "reasoning",
    "session",
    "tools",
    *(name for name in eta.__all__ if name not in ("Channel", "Tensor", "dtype", "intrinsics")),
]
