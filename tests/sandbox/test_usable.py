"""What programs need works inside: the sandbox must not break ordinary Python."""

import pytest

from tests.sandbox.conftest import Arena
from tests.sandbox.programs import PROGRAMS


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_runs_confined(name, confined_programs: Arena):
    ended = confined_programs.outcome(name)
    assert ended.outcome == "finished", ended
