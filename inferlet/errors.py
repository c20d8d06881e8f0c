"""The errors that an inferlet can meet. The whole tree:

    InferletError(RuntimeError)   something that the running program asked for is impossible
      TraceError                  a stage does not make a device program; raised at the user's line
      GrammarError                a grammar cannot be enforced, or a token is not allowed by it
      ChannelFull                 a host put found no room in the ring
      OutOfMemory                 the engine can never hold what a pass needs
      PipelineClosed              a pass was submitted after `close`

Wrong arguments raise TypeError or ValueError, as Python itself does.
"""


class InferletError(RuntimeError):
    """Base of everything below; also raised by itself for wrong use of a handle."""

    limit_key = ""  # of the process's limit that it tells of


class TraceError(InferletError):
    """Recording a stage found an operation that has no meaning on the device."""


class GrammarError(InferletError):
    """A grammar cannot be enforced exactly, or a matcher was given a token that it forbids."""


class ChannelFull(InferletError):
    """A host put would exceed the channel's capacity."""


class OutOfMemory(InferletError):
    """The engine's pages can never hold what was asked for."""


class PipelineClosed(InferletError):
    """The pipeline was closed before this call."""


def with_hint(what: str, hint: str) -> str:
    """The text of an error: what is wrong and where, then the next action."""
    return f"{what}\n\nhint: {hint}" if hint else what
