"""Grammars that are meant to hurt: each is a grammar or a GrammarError, within 10 s of the processor
and the memory that an inferlet has by default. Each is compiled in a forked child with these limits,
as in an inferlet of its own."""

import hashlib
import json
import os
import resource
import signal
from pathlib import Path

import pytest

from inferlet import Grammar, GrammarError, Matcher
from inferlet.runtime import handles
from inferlet.testing import Client, Hub, byte_vocabulary
from inferlet.testing.harness import CHATML

SECONDS = 10
MEMORY = 2**30  # above what the process has when it starts
VOCABULARY = byte_vocabulary(CHATML)


@pytest.fixture(autouse=True)
def bytes_model():
    handles.install(Hub(Client(), vocabulary=VOCABULARY).runtime)
    yield
    handles.install(None)


def nested(count, opening, inside, closing):
    return opening * count + inside + closing * count


def properties(count, **more):
    return {"properties": {f"p{n}": {"type": "string"} for n in range(count)}, **more}


def chain(count, step):
    """Definitions that lead to each other."""
    definitions = {f"d{n}": step({"$ref": f"#/$defs/d{n + 1}"}) for n in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "null"}}}


def digests(count):
    return [hashlib.sha256(str(n).encode()).hexdigest() for n in range(count)]


def documents(count):
    """Each refers to each, and the anchor is that of the first on the way."""
    others = {f"q{n}": {"$ref": f"d{n}"} for n in range(count)}
    one = {"$dynamicAnchor": "a", "properties": others, "items": {"$dynamicRef": "#a"}}
    return {"$id": "http://x/r", "$ref": "d0", "$defs": {
        f"d{n}": {"$id": f"d{n}", **one} for n in range(count)}}  # fmt: skip


SCHEMAS = {
    "10,000 arrays": lambda: nested(10_000, '{"items":', "{}", "}"),
    "100,000 arrays": lambda: nested(100_000, '{"items":', "{}", "}"),
    "a constant of 10,000 arrays": lambda: nested(10_000, '{"const":[', "1", "]") + "}",
    "190 objects": lambda: nested(190, '{"properties":{"a":', "{}", "}}"),
    "negations": lambda: nested(390, '{"not":', '{"type":"null"}', "}"),
    "allOf in allOf": lambda: nested(190, '{"allOf":[', '{"type":"null"}', "]}"),
    "itself": lambda: {"$ref": "#"},
    "itself, negated": lambda: {"not": {"$ref": "#"}},
    "each other": lambda: {
        "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "each other in a choice": lambda: {
        "$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
                                       "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    "without end": lambda: {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "a dynamic loop": lambda: {"$dynamicRef": "#a", "$dynamicAnchor": "a"},
    "5,000 references": lambda: chain(5000, lambda inner: inner),
    "5,000 references in arrays": lambda: chain(5000, lambda inner: {"items": inner}),
    "an enum of 5 MB": lambda: {"enum": [f"value-{n:020d}" for n in range(150_000)]},
    "an enum of 1 MB without order": lambda: {"enum": digests(15_000)},
    "200,000 numbers": lambda: {"enum": list(range(10**6, 12 * 10**5))},
    "a constant of 5 MB": lambda: {"const": "x" * 5_000_000},
    "30,000 objects": lambda: {"enum": [{"a": n, "b": [n]} for n in range(30_000)]},
    "20,000 properties": lambda: properties(20_000),
    "1,000 properties and others": lambda: properties(1000, additionalProperties=True),
    "a count of properties": lambda: properties(300, minProperties=150),
    "100 overlapping branches": lambda: {
        "oneOf": [properties(n, additionalProperties=True) for n in range(100)]},
    "overlapping patterns": lambda: {
        "oneOf": [{"type": "string", "pattern": f"a{n}.*b{n}"} for n in range(20)]},
    "2 to the 30 cases": lambda: {
        "allOf": [{"anyOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(30)]},
    "documents in every order": lambda: documents(9),
    "40 dependencies": lambda: {"dependentRequired": {f"a{n}": [f"b{n}"] for n in range(40)}},
    "1,000,000,000 items": lambda: {"type": "array", "minItems": 10**9},
    "a million characters": lambda: {"type": "string", "minLength": 10**6},
    "a number of 5,000 digits": lambda: '{"maximum":1' + "0" * 5000 + "}",
    "a large exponent": lambda: '{"minimum": 1e999999999}',
    "60 patterns of names": lambda: {
        "patternProperties": {f"a{n}.*b{n}": {"type": "null"} for n in range(60)}},
    "names that count": lambda: {
        "patternProperties": {f"x.{{{n}}}y": {"type": "null"} for n in range(12)}},
    "16 lookaheads": lambda: {
        "type": "string", "pattern": "^" + "".join(f"(?=.*{c}.{{9}})" for c in "abcdefghijklmnop")},
    "half a surrogate pair": lambda: {"const": "\ud800"},
    "half a pair as a name": lambda: {"properties": {"\udfff": {}}},
    "half a pair in a pattern": lambda: {"type": "string", "pattern": "\ud800"},
}  # fmt: skip
REGEXES = {
    "an exponential automaton": lambda: "(a|b)*a(a|b){25}",
    "many wildcards": lambda: "(.*a){20}.{500}b(.*c){20}",
    "{1,100000}": lambda: "a{1,100000}",
    "{1,100000} of words": lambda: "([a-z]+ ){1,100000}",
    "counts in counts": lambda: "(((a{1,1000}){1,1000}){1,1000}){1,1000}",
    "repeated repetitions": lambda: "((a+)+)+b",
    "50,000 groups": lambda: "(" * 50_000 + "a" + ")" * 50_000,
    "30,000 alternatives": lambda: "|".join(f"w{n}" for n in range(30_000)),
    "a quarter of a megabyte": lambda: "a" * 2**18,
    "half a pair": lambda: "\ud800",
    "nothing": lambda: r"[^\x00-\U0010FFFF]",
}
RULES = {
    "left recursion": lambda: 'root ::= root "a" | "a"',
    "left recursion through others": lambda: 'root ::= b "x" | "r"\nb ::= root "y" | "b"',
    "hidden left recursion": lambda: 'root ::= e root "a" | "b"\ne ::= "e"?',
    "empty rules in circles": lambda: 'root ::= a root | ""\na ::= "" | root',
    "repetitions of the empty text": lambda: 'root ::= (("a"?)*)* "b"',
    "many derivations": lambda: 'root ::= root root root | root root | "a"',
    "50,000 groups": lambda: "root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000,
    "50,000 alternatives": lambda: "root ::= " + " | ".join(f'"w{n}"' for n in range(50_000)),
    "20,000 rules": lambda: "root ::= " + " | ".join(f"r{n}" for n in range(20_000)) + "\n"
    + "\n".join(f'r{n} ::= "x{n}" root?' for n in range(20_000)),
    "a chain of 20,000 rules": lambda: "root ::= r0\n"
    + "".join(f'r{n} ::= "a" r{n + 1} | "b"\n' for n in range(20_000)) + 'r20000 ::= "b"',
    "{1,100000}": lambda: 'root ::= ("a" | "b"){1,100000}',
    "counts in counts": lambda: 'root ::= ((("a" root?){1,1000}){1,1000}){1,1000}',
    "half a pair": lambda: 'root ::= "\x00\ud800"',
}  # fmt: skip
CASES = [
    *((Grammar.from_json_schema, name, make) for name, make in SCHEMAS.items()),
    *((Grammar.from_regex, name, make) for name, make in REGEXES.items()),
    *((Grammar.from_ebnf, name, make) for name, make in RULES.items()),
]


def limit():
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if os.path.exists("/proc") else 0
    space = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, used + SECONDS))


def outcome(constructor, make):
    """What a child of ours says of the grammar, or the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            source = make()
            limit()
            try:
                matcher = Matcher(constructor(source))
                said = f"grammar {sum(word.bit_count() for word in matcher.mask())}"
            except GrammarError as error:
                said = f"GrammarError {error}"
            os.write(writer, said.encode("utf-8", "backslashreplace")[:2000])
        except BaseException as error:  # noqa: BLE001 - a forked child must end here
            os.write(writer, f"{type(error).__name__} {error}".encode("utf-8", "replace")[:500])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return said


@pytest.mark.parametrize(
    ("constructor", "make"),
    [(constructor, make) for constructor, _, make in CASES],
    ids=[f"{constructor.__name__}: {name}" for constructor, name, _ in CASES],
)
def test_a_hostile_grammar_is_a_grammar_or_an_error_within_the_limits(constructor, make):
    said = outcome(constructor, make)
    assert said.startswith(("grammar ", "GrammarError ")), said
    assert said != "grammar 0"
    if said.startswith("GrammarError"):
        assert len(said) < 1200 and "panic" not in said


def test_errors_of_recursion_name_the_place():
    for schema in ({"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}):
        with pytest.raises(GrammarError, match="schema at `#`: it refers to itself"):
            Grammar.from_json_schema(schema)
    with pytest.raises(GrammarError, match="`#/\\$defs/[ab]`"):
        Grammar.from_json_schema(SCHEMAS["each other"]())


def test_a_matcher_is_usable_after_others_failed():
    matcher = Matcher(Grammar.json())
    before = matcher.mask()
    for make in (SCHEMAS["20,000 properties"], SCHEMAS["2 to the 30 cases"]):
        with pytest.raises(GrammarError):
            Grammar.from_json_schema(json.dumps(make()))
    assert matcher.mask() == before == Matcher(Grammar.json()).mask()
