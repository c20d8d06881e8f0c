"""A matcher and its forks under random calls, each beside a twin that replays its history."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inferlet import Grammar, GrammarError, Matcher, model
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

VOCABULARY = byte_vocabulary(CHATML)
STOP = 257
GRAMMARS = [
    (Grammar.from_regex, "[0-9]{1,3}(abc|abd|é)*"),
    (Grammar.from_ebnf, 'root ::= "a" root "b" | "a" "b" | "ab" "c"'),
    (Grammar.from_ebnf, 'root ::= "[" (root ("," root)*)? "]" | "x"'),
    (Grammar.from_json_schema, {"type": "object", "properties": {
        "name": {"enum": ["a", "ab"]}, "n": {"type": "integer"}}, "required": ["name"]}),
]  # fmt: skip


class Machine(RuleBasedStateMachine):
    """`pairs`: a matcher and the tokens that it has accepted."""

    def __init__(self):
        super().__init__()
        handles.install(Hub(Client(), vocabulary=VOCABULARY).runtime)
        make, source = self.choose_grammar()
        self.grammar = make(source)
        self.pairs = [(Matcher(self.grammar), [])]

    def choose_grammar(self):
        return GRAMMARS[0]

    def teardown(self):
        handles.install(None)

    def pick(self, data):
        return self.pairs[data.draw(st.integers(0, len(self.pairs) - 1))]

    def twin(self, history):
        found = Matcher(self.grammar)
        for token in history:
            found.accept_tokens([token])
        return found

    @staticmethod
    def allowed(matcher):
        packed = matcher.mask()
        return [t for t in range(259) if packed[t >> 5] >> (t & 31) & 1]

    @rule(data=st.data())
    def accept_what_is_allowed(self, data):
        matcher, history = self.pick(data)
        for _ in range(data.draw(st.integers(1, 4))):
            allowed = self.allowed(matcher)
            if not allowed:
                return
            token = data.draw(st.sampled_from(allowed))
            matcher.accept_tokens([token])
            history.append(token)

    @rule(data=st.data(), tokens=st.lists(st.sampled_from([*b'0129abcdn{}[],":x', STOP, 300, 1])))
    def accept_anything_at_once_or_nothing_of_it(self, data, tokens):
        matcher, history = self.pick(data)
        twin, index = self.twin(history), None
        for position, token in enumerate(tokens):
            if token >= 259 or token not in self.allowed(twin):
                index = position
                break
            twin.accept_tokens([token])
        if index is None:
            matcher.accept_tokens(tokens)
            history += tokens
            return
        with pytest.raises(GrammarError, match=f"at index {index} "):
            matcher.accept_tokens(tokens)

    @rule(data=st.data())
    def accept_what_is_forced(self, data):
        matcher, history = self.pick(data)
        before = matcher.mask()
        forced = matcher.forced_tokens()
        assert matcher.mask() == before
        matcher.accept_tokens(forced)
        twin = self.twin(history)
        for token in forced:  # of single bytes, so nothing else is allowed
            assert self.allowed(twin) == [token]
            twin.accept_tokens([token])
        history += forced

    @rule(data=st.data())
    def roll_back(self, data):
        matcher, history = self.pick(data)
        count = data.draw(st.integers(0, len(history)))
        matcher.rollback(count)
        del history[len(history) - count :]

    @rule(data=st.data(), beyond=st.integers(1, 3))
    def roll_back_too_far(self, data, beyond):
        matcher, history = self.pick(data)
        for count in (len(history) + beyond, -beyond):
            with pytest.raises(ValueError):
                matcher.rollback(count)

    @rule(data=st.data())
    def reset(self, data):
        matcher, history = self.pick(data)
        matcher.reset()
        history.clear()

    @precondition(lambda self: len(self.pairs) < 4)
    @rule(data=st.data())
    def fork(self, data):
        matcher, history = self.pick(data)
        self.pairs.append((matcher.fork(), history.copy()))

    @invariant()
    def every_matcher_is_its_twin(self):
        for matcher, history in self.pairs:
            twin = self.twin(history)
            assert matcher.mask() == twin.mask()
            assert matcher.is_terminated() == twin.is_terminated()
            assert len(matcher.mask()) == -(-model.output_vocab_size() // 32)
            assert matcher.explain() == twin.explain()


SETTINGS = settings(
    max_examples=int(os.environ.get("PIE_MACHINE_EXAMPLES", "12")), stateful_step_count=20,
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
)  # fmt: skip


def machine(pair):
    chosen = type("Chosen", (Machine,), {"choose_grammar": lambda self: pair})
    chosen.TestCase.settings = SETTINGS
    return chosen.TestCase


TestDigits, TestNested, TestLists, TestObjects = map(machine, GRAMMARS)
