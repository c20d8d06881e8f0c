"""docs/sdk.md is what the code says, and all of it."""

import inferlet
from tests.sdk_page import PAGE, with_parts

TEXT = PAGE.read_text(encoding="utf-8")


def test_its_lists_are_those_of_the_code():
    """When they are not: `python -m tests.sdk_page`."""
    assert with_parts(TEXT) == TEXT


def test_it_has_a_line_for_every_public_name():
    names = set(inferlet.__all__) - {"eta", "grammar", "mask", "intrinsics"}  # their members are
    for module in ("model", "chat", "tools", "reasoning", "session"):
        names |= {f"{module}.{name}" for name in getattr(inferlet, module).__all__}
    names |= {"mask.unpack_mask", "intrinsics.output"}
    for name in sorted(names):
        starts = (f"- `{name}", f"- `await {name}", f"### `{name}`", f"- `{name}.")
        assert any(line.strip().startswith(starts) for line in TEXT.splitlines()), name
