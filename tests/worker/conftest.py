"""After every test, and between the examples of a test: each engine state that it made is whole."""

from collections import deque
from collections.abc import Iterator

import pytest

from worker.state import State

AT_ONCE = 8  # states that are kept alive to be checked once more


@pytest.fixture(autouse=True)
def whole_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[deque[State]]:
    states: deque[State] = deque()
    make = State.__post_init__

    def remember(state: State) -> None:
        make(state)
        states.append(state)
        if len(states) > AT_ONCE:
            states.popleft().check_integrity()

    monkeypatch.setattr(State, "__post_init__", remember)
    yield states
    for state in states:
        state.check_integrity()
