"""Random schemas against the `jsonschema` package: its verdict on an instance is ours.

Schemas say what other members are, since a list of properties closes an object here alone. Members
come in the order of the schema: so an instance is accepted when one order of its members is.
`PIE_GRAMMAR_CASES` sets how many schemas are drawn.
"""

import itertools
import json
import os
import random

import pytest

from inferlet import Grammar, GrammarError, Matcher
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

jsonschema = pytest.importorskip("jsonschema")

CASES = int(os.environ.get("PIE_GRAMMAR_CASES", "240"))
VOCABULARY = byte_vocabulary(CHATML)
STOP = 257
NAMES = ["a", "b", "ab", "c"]
SCALARS = [None, True, False, 0, 1, 2, 1.5, -3, 6, "", "a", "ab", "é", "a b"]
PATTERNS = ["^a", "b$", "a", "^[abc]$", "^.{1,2}$", "^(?!a)"]


@pytest.fixture(autouse=True)
def bytes_model():
    handles.install(Hub(Client(), vocabulary=VOCABULARY).runtime)
    yield
    handles.install(None)


class Draw:
    """Schemas and instances of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, items, low=1, high=3):
        return self.random.sample(items, self.random.randint(low, min(high, len(items))))

    def value(self, depth=2):
        kind = self.random.random()
        if depth and kind < 0.25:
            return {name: self.value(depth - 1) for name in self.some(NAMES, 0, 3)}
        if depth and kind < 0.45:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return self.random.choice(SCALARS)

    def schema(self, depth=2):
        """A few keywords, some of which hold schemas."""
        if self.random.random() < 0.05:
            return self.random.choice([True, False, {}])
        makers = [self.scalar, self.scalar, self.number, self.text]
        if depth:
            makers += [self.array, self.object, self.object, self.combined, self.combined]
        found = {}
        for maker in self.some(makers, 1, 2):
            found.update(maker(depth - 1))
        return found

    def scalar(self, _):
        kinds = ["null", "boolean", "number", "integer", "string", "array", "object"]
        match self.random.randint(0, 2):
            case 0:
                return {"type": self.some(kinds, 1, 4)}
            case 1:
                return {"enum": [self.value(1) for _ in range(self.random.randint(1, 4))]}
        return {"const": self.value(1)}

    def number(self, _):
        keyword = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
        return {word: self.random.choice([-3, 0, 1, 1.5, 2]) for word in self.some(keyword, 1, 2)}

    def text(self, _):
        match self.random.randint(0, 2):
            case 0:
                return {"pattern": self.random.choice(PATTERNS)}
            case 1:
                return {"minLength": self.random.randint(0, 2)}
        return {"maxLength": self.random.randint(0, 2)}

    def array(self, depth):
        found = {}
        for word in self.some(["items", "prefixItems", "contains", "minItems", "maxItems"], 1, 3):
            if word == "prefixItems":
                found[word] = [self.schema(depth) for _ in range(self.random.randint(1, 2))]
            elif word in ("items", "contains"):
                found[word] = self.schema(depth)
            else:
                found[word] = self.random.randint(0, 3)
        if "contains" not in found and self.random.random() < 0.2:
            found["uniqueItems"] = True
            found["items"] = {"enum": self.some(SCALARS, 1, 4)}
            if "prefixItems" in found:
                found["prefixItems"] = [{"enum": self.some(SCALARS, 1, 3)} for _ in range(2)]
        if "contains" in found and self.random.random() < 0.4:
            found["minContains"] = self.random.randint(0, 2)
            found["maxContains"] = self.random.randint(0, 3)
        return found

    def object(self, depth):
        found = {}
        words = ["properties", "patternProperties", "propertyNames", "required", "minProperties",
                 "maxProperties", "additionalProperties", "dependentRequired"]  # fmt: skip
        for word in self.some(words, 1, 3):
            if word == "properties":
                found[word] = {name: self.schema(depth) for name in self.some(NAMES)}
            elif word == "patternProperties":
                found[word] = {p: self.schema(depth) for p in self.some(PATTERNS, 1, 2)}
            elif word == "propertyNames":
                found[word] = self.random.choice(
                    [{"pattern": self.random.choice(PATTERNS)}, {"enum": self.some(NAMES)},
                     {"not": {"const": "a"}}, {"maxLength": 1}]
                )  # fmt: skip
            elif word == "required":
                found[word] = self.some(NAMES, 1, 2)
            elif word == "dependentRequired":
                found[word] = {self.random.choice(NAMES): self.some(NAMES, 1, 1)}
            elif word == "additionalProperties":
                found[word] = self.schema(depth)
            else:
                found[word] = self.random.randint(0, 2)
        if "properties" in found:
            found.setdefault("additionalProperties", True)
        return found

    def combined(self, depth):
        match self.random.randint(0, 4):
            case 0:
                return {"not": self.schema(depth)}
            case 1:
                words = self.some(["then", "else"], 1, 2)
                return {"if": self.schema(depth), **{word: self.schema(depth) for word in words}}
        if self.random.random() < 0.25:
            return self.unevaluated(depth)
        word = self.random.choice(["anyOf", "oneOf", "oneOf", "allOf"])
        return {word: [self.schema(depth) for _ in range(self.random.randint(1, 3))]}

    def unevaluated(self, depth):
        """Schemas in place that evaluate some members or items, and a word on the others."""
        is_object = self.random.random() < 0.6
        part = self.members if is_object else self.items
        found = {}
        for word in self.some(["anyOf", "oneOf", "allOf", "if", "properties"], 1, 2):
            if word == "if":
                found.update({key: part(depth) for key in ("if", "then", "else")})
            elif word == "properties":
                found.update(part(depth))
            else:
                found[word] = [part(depth) for _ in range(self.random.randint(1, 3))]
        found["unevaluatedProperties" if is_object else "unevaluatedItems"] = self.random.choice(
            [False, False, {"type": "integer"}, {"const": "a"}]
        )
        return {"type": "object" if is_object else "array", **found}

    def members(self, depth):
        found = {"properties": {name: self.schema(depth) for name in self.some(NAMES, 1, 2)}}
        if self.random.random() < 0.3:
            found["patternProperties"] = {self.random.choice(PATTERNS): self.schema(depth)}
        if self.random.random() < 0.5:
            found["required"] = self.some(NAMES, 1, 1)
        return found

    def items(self, depth):
        found = {"prefixItems": [self.schema(depth) for _ in range(self.random.randint(1, 2))]}
        if self.random.random() < 0.3:
            found["contains"] = self.schema(depth)
        return found


def orders(value):
    """The value with its members in every order."""
    if isinstance(value, list):
        for items in itertools.product(*(list(orders(item)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for names in itertools.permutations(value):
            for items in itertools.product(*(list(orders(value[name])) for name in names)):
                yield dict(zip(names, items, strict=True))
    else:
        yield value


def accepts(matcher, value):
    return accepts_text(matcher, json.dumps(value, ensure_ascii=False))


def accepts_text(matcher, text):
    ids = [*text.encode(), STOP]
    matcher.reset()
    if matcher._engine.validate_tokens(ids[:-1]) < len(ids) - 1:
        return False
    try:
        matcher.accept_tokens(ids)
    except GrammarError:
        return False
    return True


def check(seed):
    """None when the schema is refused; else how many instances are valid."""
    draw = Draw(seed)
    schema = draw.schema()
    validator = jsonschema.Draft202012Validator(schema)
    values = [draw.value() for _ in range(30)]
    is_valid = [validator.is_valid(value) for value in values]
    try:
        matcher = Matcher(Grammar.from_json_schema(schema))
    except GrammarError as error:
        if "no value satisfies" in str(error):
            assert not any(is_valid), (seed, schema, values[is_valid.index(True)])
        return None
    for value, verdict in zip(values, is_valid, strict=True):
        some = any(accepts(matcher, one) for one in itertools.islice(orders(value), 200))
        assert some == verdict, (seed, schema, value, verdict)
        if isinstance(value, dict) and value:
            text = with_a_name_twice(draw, value)
            if accepts_text(matcher, text):
                assert validator.is_valid(json.loads(text)), (seed, schema, text)
    return sum(is_valid)


def with_a_name_twice(draw, value):
    """Readers of JSON keep the last member of a name."""
    members = [*value.items(), (draw.random.choice([*value]), draw.value(1))]
    draw.random.shuffle(members)
    spelt = (f"{json.dumps(name)}: {json.dumps(v)}" for name, v in members)
    return "{" + ", ".join(spelt) + "}"


@pytest.mark.parametrize("start", range(8))
def test_random_schemas_accept_what_jsonschema_accepts(start):
    counts = [check(8 * index + start) for index in range(CASES // 8)]
    compiled = [count for count in counts if count is not None]
    assert len(compiled) > len(counts) // 2 and sum(compiled) > len(compiled)
