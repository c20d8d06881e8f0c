"""Grammars over a corpus of JSON schemas with instances: how many are wholly right, and how fast.

    python -m tests.bench.grammar CORPUS [--suite FOLDER] [--limit N] [--open]

CORPUS holds a JSON object a line, or is gzip of that: `{"id", "schema", "tests": [{"data", "valid"}]}`
(the layout of MaskBench). --suite names a folder of JSON-Schema-Test-Suite files. With --open,
schemas that list properties and do not say what others are get `"additionalProperties": true`, as
JSON Schema has it; without, such a schema allows no others. Times are of the processor, not the clock.
"""

import argparse
import collections
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferlet import grammar
from inferlet.errors import GrammarError
from inferlet.runtime import handles
from inferlet.runtime.tokenizer import Vocabulary
from inferlet.testing import Client, Hub

MODEL = Path("~/.pie/models/smollm2-135m-instruct").expanduser()
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = ("enum", "const", "default", "examples")


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The corpus, one schema with its tests at a time."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def suite_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """JSON-Schema-Test-Suite in the same form; each test counts by itself."""
    for file in sorted(folder.glob("*.json")):
        for group in json.loads(file.read_text()):
            name = f"{file.stem}: {group['description']}"
            yield {"id": name, "schema": group["schema"], "tests": group["tests"]}


def opened(value: Any, is_map: bool = False) -> Any:
    """The schema with JSON Schema's own default for members that are not listed."""
    if isinstance(value, list):
        return [opened(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {
        key: inner if key in _DATA and not is_map else opened(inner, not is_map and key in _MAPS)
        for key, inner in value.items()
    }
    if not is_map and isinstance(value.get("properties"), dict):
        found.setdefault("additionalProperties", True)
        if "unevaluatedProperties" in value and "additionalProperties" not in value:
            del found["additionalProperties"]
    return found


class Report:
    """Counts and times of one corpus."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.encode = vocabulary.encode
        self.stop = min(grammar.stop_ids())
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.spent: list[tuple[float, str]] = []
        self.compiled: list[float] = []
        self.first: list[float] = []
        self.both: list[float] = []
        self.masks: list[float] = []

    def add(self, row: dict[str, Any]) -> None:
        """One schema: compiled, and its tests walked token by token."""
        self.counts["schemas"] += 1
        self.counts["tests"] += len(row["tests"])
        start = time.process_time()
        try:
            compiled = grammar.Grammar.from_json_schema(row["schema"])
            between = time.process_time()
            matcher = grammar.Matcher(compiled)
            matcher.mask()
        except GrammarError as error:
            self._refused(row, error)
            return
        finally:
            self.spent.append((time.process_time() - start, row["id"]))
        end = start + self.spent[-1][0]
        self.compiled.append(between - start)
        self.first.append(end - between)
        self.both.append(end - start)
        is_right = True
        for test in row["tests"]:
            try:
                is_accepted = self._accepts(matcher, json.dumps(test["data"], ensure_ascii=False))
            except GrammarError as error:  # the engine gave up in the middle
                is_accepted = False
                self.counts["gave up"] += 1
                self.wrong.append(f"gave up: {row['id']}: {str(error)[:120]}")
            if is_accepted == test["valid"]:
                self.counts["tests right"] += 1
                continue
            is_right = False
            kind = "invalid accepted" if is_accepted else "valid rejected"
            self.counts[kind] += 1
            self.wrong.append(f"{kind}: {row['id']}: {test.get('description', '')}")
        self.counts["wholly right"] += is_right

    def _refused(self, row: dict[str, Any], error: GrammarError) -> None:
        self.counts["refused"] += 1
        if not any(test["valid"] for test in row["tests"]):
            # Nothing is accepted, and nothing should be.
            self.counts["refused, all tests invalid"] += 1
            self.counts["tests right"] += len(row["tests"])
        self.refusals[
            str(error).partition("\n")[0].partition("`: ")[2][:90] or str(error)[:90]
        ] += 1

    def _accepts(self, matcher: grammar.Matcher, text: str) -> bool:
        matcher.reset()
        for token in self.encode(text):
            start = time.process_time()
            packed = matcher.mask()
            self.masks.append(time.process_time() - start)
            if not packed[token >> 5] >> (token & 31) & 1:
                return False
            matcher.accept_tokens([token])
        return bool(matcher.mask()[self.stop >> 5] >> (self.stop & 31) & 1)

    def print(self) -> None:
        for name, count in sorted(self.counts.items()):
            print(f"{count:7d}  {name}")
        share = self.counts["wholly right"] / max(self.counts["schemas"], 1)
        print(f"{share:7.1%}  of schemas wholly right")
        for name, times in (
            ("compilation", self.compiled), ("matcher and first mask", self.first),
            ("both", self.both), ("mask", self.masks),
        ):  # fmt: skip
            times.sort()
            if times:
                marks = [
                    times[min(len(times) - 1, int(len(times) * q))] for q in (0.5, 0.9, 0.99, 1)
                ]
                print(f"{name}: p50 p90 p99 max", *(f"{mark * 1e6:.0f}" for mark in marks), "us")
        slow = sorted(self.spent, reverse=True)[:5]
        print("slowest to compile:", *(f"{name} {spent:.2f} s;" for spent, name in slow))
        print("refusals:")
        for reason, count in self.refusals.most_common():
            print(f"{count:7d}  {reason}")
        print("wrong:")
        for line in self.wrong:
            print("        ", line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--open", action="store_true")
    options = parser.parse_args()
    vocabulary = Vocabulary.load(MODEL)
    handles.install(Hub(Client(), vocabulary=vocabulary).runtime)
    grammar.Matcher(grammar.Grammar.json()).mask()  # what is made once for a vocabulary
    report = Report(vocabulary)
    rows = suite_rows(options.suite) if options.suite else rows_of(options.corpus)
    for index, row in enumerate(rows):
        if index == options.limit:
            break
        if options.open:
            row["schema"] = opened(row["schema"])
        report.add(row)
    report.print()


if __name__ == "__main__":
    main()
