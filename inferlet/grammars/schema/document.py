"""The schema as JSON: loading, where things are, and what `$ref` means."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from inferlet import naming
from inferlet.errors import GrammarError
from inferlet.grammars.schema import keywords

MAX_DEPTH = 400
_FLATTER = "\n\nhint: move parts to `$defs` and use `$ref`"
MAX_EXPONENT = 400  # of a number in a schema
# Words for which a document is walked: they name places, or are rewritten around subschemas.
_WALKED = re.compile(
    r'\\u|"(?:\$id|\$anchor|\$dynamic|\$recursive|if"|depend|strictProperties|unevaluated)'
)
MAX_SCOPED = 20_000  # places, each as often as there are ways to it


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """One subschema: equal only to itself."""

    value: Any  # a dict or a bool
    path: str
    base: str
    scope: tuple[str, ...] = ()  # documents on the way here, where a dynamic reference needs them


def shown(place: Place | str) -> str:
    """A path for messages, its middle left out when it is long."""
    path = place if isinstance(place, str) else place.path
    return path if len(path) <= 200 else f"{path[:80]}…{path[-100:]}"


def refuse(place: Place | str, keyword: str, why: str, hint: str = "") -> GrammarError:
    """The error for a keyword that cannot be enforced."""
    path = shown(place)
    hint = hint or "leave the keyword out, or say the same with supported keywords"
    return GrammarError(f"schema at `{path}`: `{keyword}` {why}\n\nhint: {hint}")


def canonical(schema: str | bytes | dict | bool) -> str:
    """The schema as JSON text, for comparison and as the source."""
    if isinstance(schema, str | bytes):
        return schema if isinstance(schema, str) else schema.decode("utf-8", "replace")
    if not isinstance(schema, dict | bool):
        raise TypeError(
            f"`Grammar.from_json_schema` got {naming.kind(schema)}; it takes JSON text, a dict "
            "or a bool"
        )
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from None


def load(text: str) -> Any:
    """JSON with exact decimals; GrammarError with the position of the fault."""
    try:
        return json.loads(text, parse_float=_decimal, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GrammarError(f"the schema is no JSON, {where}: {error.msg}") from None
    except RecursionError:
        raise GrammarError(f"the schema is nested deeper than {MAX_DEPTH}{_FLATTER}") from None
    except ValueError as error:
        raise GrammarError(
            f"the schema cannot be read: {error}\n\nhint: use numbers of at most {MAX_EXPONENT} digits"
        ) from None


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if abs(number.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"the number {text} is too large")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


class Document:
    """One schema document, and the places in it."""

    def __init__(self, root: Any, text: str = "") -> None:
        """`text`, of which the root was read, tells whether a walk can be left out."""
        self._places: dict[int, Place] = {}
        self._by_uri: dict[str, Any] = {}
        self._made: list[Any] = []  # values made here: kept, since places go by identity
        self.true = Place(True, "#", "")
        self.false = Place(False, "#", "")
        if not text or text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(root)
        self._root_value = root
        declared = keywords.declared_draft(root)
        self.draft = declared or keywords.NEWEST
        self.is_declared = declared is not None
        self._targets: set[str] = set()
        self._resources: set[str] = set()  # bases of embedded documents
        self._dynamic: dict[tuple[str, str], Any] = {}  # by base and `$dynamicAnchor`
        self._scoped: dict[tuple[int, tuple[str, ...]], Place] = {}
        self._has_dynamic = False
        self._is_walked = False
        if not text or _WALKED.search(text) or (self.draft <= 4 and '"id"' in text):
            self._walk()
        self._has_scopes = bool(self._has_dynamic and self._resources)
        self.root = self.at(root, "#")

    def at(self, value: Any, path: str, parent: Place | None = None) -> Place:
        """The place of a subschema that was found in the document."""
        if value is True:
            return self.true
        if value is False:
            return Place(False, path, "")
        if not isinstance(value, dict):
            raise GrammarError(
                f"schema at `{path}`: a schema is an object or a boolean, not {_kind(value)}"
            )
        known = self._places.get(id(value))
        if known is None:
            known = Place(value, path, parent.base if parent else "")
            self._places[id(value)] = known
        return self._in_scope(known, parent) if self._has_scopes else known

    def _in_scope(self, place: Place, parent: Place | None) -> Place:
        """The place as it is reached from another one: documents count in order of entrance."""
        scope = parent.scope if parent else ()
        if place.base not in scope:
            scope += (place.base,)
        key = (id(place.value), scope)
        if key not in self._scoped:
            if len(self._scoped) >= MAX_SCOPED:
                raise refuse(place, "$dynamicRef", "is reached in too many ways")
            self._scoped[key] = Place(place.value, place.path, place.base, scope)
        return self._scoped[key]

    def first_with(self, keyword: str) -> Place:
        """The first place that has a keyword."""
        self._walk()
        found = (place for place in self._places.values() if keyword in place.value)
        return next(found, self.root)

    def make(self, value: Any, path: str, parent: Place | None = None) -> Place:
        """A place for a schema that is not in the document."""
        self._made.append(value)
        return self.at(value, path, parent)

    def resolve(self, place: Place, keyword: str) -> Place:
        """What a `$ref` means; GrammarError when it is not in the document."""
        reference = place.value[keyword]
        if not isinstance(reference, str):
            raise refuse(place, keyword, "must be a string")
        uri, fragment = urldefrag(_joined(place.base, reference))
        value: Any = self._by_uri.get(uri)
        if value is None and uri in ("", "#"):
            value = self._root_value
        if value is None:
            raise refuse(
                place, keyword, f"`{reference}` is not in this document",
                "put the schema under `$defs` and refer to it with `#/$defs/…`",
            )  # fmt: skip
        if fragment and not fragment.startswith("/"):
            value = self._by_uri.get(f"{uri}#{fragment}")
            if value is None:
                raise refuse(place, keyword, f"`{reference}` names no `$anchor` of this document")
            return self.at(value, f"#{fragment}", place)
        return self._pointer(place, keyword, value, fragment)

    def resolve_dynamic(self, place: Place, keyword: str) -> Place:
        """The outermost anchor of the name. It is the only one where no document is embedded."""
        found = self.resolve(place, keyword)
        if not self._resources:
            return found
        if keyword != "$dynamicRef":
            raise refuse(
                place, keyword, "is not supported in a document that embeds others by `$id`"
            )
        name = urldefrag(place.value[keyword]).fragment
        if isinstance(found.value, dict) and found.value.get("$dynamicAnchor") == name:
            for base in place.scope:
                if (base, name) in self._dynamic:
                    return self.at(self._dynamic[base, name], f"#{name}", place)
        return found

    def _pointer(self, place: Place, keyword: str, value: Any, fragment: str) -> Place:
        base = place.base
        for part in fragment.split("/")[1:]:
            if isinstance(value, dict) and value is not self._root_value:
                base = self._base_of(value, base)
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            else:
                raise refuse(place, keyword, f"`#{fragment}` points to nothing")
        return self.at(value, f"#{fragment}", Place(None, "", base, place.scope))

    def _add_target(self, reference: Any) -> None:
        """All places that a pointer passes."""
        if isinstance(reference, str) and reference.startswith("#/"):
            parts = unquote(reference).split("/")
            self._targets.update("/".join(parts[: n + 1]) for n in range(1, len(parts)))

    def holds_target(self, place: Place, word: str) -> bool:
        """Whether a `$ref` points into the value of a word: then it holds definitions."""
        self._walk()
        return f"{place.path}/{escape(word)}" in self._targets

    def _base_of(self, value: dict, base: str) -> str:
        known = self._places.get(id(value))
        return known.base if known else base

    def _walk(self) -> None:
        """Bases, `$id` and `$anchor` of every subschema; and where it is, once that matters."""
        if self._is_walked:
            return
        self._is_walked = True
        root = self._root_value
        todo: list[tuple[Any, str, str]] = [(root, "#", "")]
        while todo:
            value, path, base = todo.pop()
            if not isinstance(value, dict):
                continue
            own = value.get("$id", value.get("id") if self.draft <= 4 else None)
            is_overridden = self.draft <= 7 and "$ref" in value
            if isinstance(own, str) and not is_overridden:
                if own.startswith("#"):
                    self._by_uri[f"{base}{own}"] = value
                else:
                    base = urldefrag(urljoin(base, own))[0]
                    self._resources.update((base,) if value is not root else ())
                    self._by_uri.setdefault(base, value)
            for anchor in (value.get("$anchor"), value.get("$dynamicAnchor")):
                if isinstance(anchor, str):
                    self._by_uri[f"{base}#{anchor}"] = value
            if isinstance(anchor := value.get("$dynamicAnchor"), str):
                self._dynamic[base, anchor] = value
            self._has_dynamic = self._has_dynamic or "$dynamicRef" in value
            self._places.setdefault(id(value), Place(value, path, base))
            self._add_target(value.get("$ref"))
            todo.extend((inner, f"{path}/{where}", base) for where, inner in subschemas(value))


def _joined(base: str, reference: str) -> str:
    """`urljoin`, which knows no fragments of a URN."""
    is_fragment = reference.startswith("#")
    return urldefrag(base).url + reference if is_fragment else urljoin(base, reference)


def subschemas(value: dict) -> Iterator[tuple[str, Any]]:
    """Everything in a schema that is a schema, with its relative pointer."""
    for keyword, inner in value.items():
        if type(inner) not in (dict, list):
            continue
        if keyword in keywords.MAPS and isinstance(inner, dict):
            for name, schema in inner.items():
                yield f"{keyword}/{escape(name)}", schema
        elif keyword in keywords.LISTS and isinstance(inner, list):
            for index, schema in enumerate(inner):
                yield f"{keyword}/{index}", schema
        elif keyword in keywords.SCHEMAS:
            yield keyword, inner


def escape(name: str) -> str:
    """A part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def _check_depth(root: Any) -> None:
    todo = [([root], 0)]
    while todo:
        value, depth = todo.pop()
        if depth > MAX_DEPTH + 1:
            raise GrammarError(f"the schema is nested deeper than {MAX_DEPTH}{_FLATTER}")
        inner = value.values() if isinstance(value, dict) else value
        for item in inner:
            if type(item) is dict or type(item) is list:
                todo.append((item, depth + 1))


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number")
