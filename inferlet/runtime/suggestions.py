"""What a mistyped name was probably meant to be: the last word of an error about it."""

import difflib
from types import ModuleType, TracebackType

CUTOFF = 0.5  # of difflib: `top_k_indices` finds `top_k`


def suggestion(error: BaseException) -> str:
    """`did you mean …?`, or nothing."""
    name = getattr(error, "name", None)
    if not isinstance(name, str):
        return ""
    known: set[str] = set()
    if isinstance(error, NameError):
        known = _names_at(error.__traceback__)
    elif isinstance(error, AttributeError) and isinstance(error.obj, type | ModuleType):
        known = set(getattr(error.obj, "__all__", None) or vars(error.obj))
    known = {other for other in known if not other.startswith("_")} - {name}
    found = difflib.get_close_matches(name, sorted(known), 1, CUTOFF)
    return f"did you mean `{found[0]}`?" if found else ""


def _names_at(trace: TracebackType | None) -> set[str]:
    """What the innermost frame can see, and the SDK's names."""
    import inferlet

    names = set(inferlet.__all__)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None:
        names |= {*trace.tb_frame.f_locals, *trace.tb_frame.f_globals}
    return names
