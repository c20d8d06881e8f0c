"""Keywords become shapes; with a negative sign, the shapes of all values that a keyword forbids."""

from collections.abc import Iterator, Sequence
from typing import Any

from inferlet.errors import GrammarError
from inferlet.grammars.schema import asserts, containers, keywords, members, shapes, unevaluated
from inferlet.grammars.schema.document import Document, Place, refuse, shown
from inferlet.grammars.schema.emptiness import Emptiness
from inferlet.grammars.schema.limits import simplified
from inferlet.grammars.schema.shapes import EVERYTHING, Need, Term, Union

MAX_SHAPES = 1500
MAX_STEPS = 200_000
MANY = 24  # shapes
MAX_ABSORBED = 4000
# Marks a schema that tests and does not describe. Not a keyword: no document can hold it unseen.
QUIET = "\0quiet"
_NO_OBJECT = {"type": ["null", "boolean", "number", "string", "array"]}
_PLAIN = keywords.ANNOTATIONS | {"type"}
_REWRITTEN = frozenset(
    ("if", "dependencies", "dependentRequired", "dependentSchemas", "strictProperties")
)


class _SelfReference(GrammarError):
    """A schema is needed that is being expanded."""


class Expander:
    """The unions of shapes of one document."""

    def __init__(self, document: Document, is_void: Any) -> None:
        """`is_void(tree)` asks the engine whether a regular language has no text."""
        self.document = document
        self.is_void = is_void
        self.emptiness = Emptiness(self, is_void, members.is_possible)
        self._terms: dict[Term, Union] = {}
        self._needs: dict[Need, Union] = {}
        self._open: set[Term] = set()
        self._rewritten: dict[tuple[int, str], Place] = {}
        self._steps = 0

    def union_of(self, need: Need) -> Union:
        """Shapes of the values that satisfy all terms; those found empty are left out."""
        found = self._needs.get(need)
        if found is None:
            found = self.all_of(need) if need else list(EVERYTHING.values())
            if any(type(shape) is shapes.Object and shape.some for shape in found):
                found = [one for shape in found for one in members.split(shape)]
            is_empty = self.emptiness.of_shape
            found = [shape for shape in found if not is_empty(shape)]
            self._needs[need] = found
        return found

    def expand(self, term: Term) -> Union:
        """Shapes of one schema or of its negation."""
        found = self._terms.get(term)
        if found is not None:
            return found
        place, sign = term
        if term in self._open:
            raise _SelfReference(
                f"schema at `{shown(place)}`: it refers to itself without a value in between\n\n"
                "hint: a recursive `$ref` belongs below `properties` or `items`"
            )
        self._open.add(term)
        try:
            if isinstance(place.value, bool):
                found = list(EVERYTHING.values()) if place.value == sign else []
            elif sign:
                found = _plain(place.value) or self._positive(place)
            else:
                found = self._negative(place)
        except RecursionError:
            raise GrammarError(f"schema at `{shown(place)}`: combined too deeply") from None
        finally:
            self._open.discard(term)
        self._terms[term] = found
        return found

    def meet(self, one: Union, other: Union, place: Place) -> Union:
        """Values in both unions."""
        if len(one) * len(other) > MAX_SHAPES:
            one, other = self._few(one), self._few(other)
        found: dict[shapes.Shape, None] = {}
        self._steps += len(one) * len(other)
        if self._steps > MAX_STEPS:
            raise self._too_many(place)
        for first in one:
            for second in other:
                both = shapes.intersect(first, second)
                both = both and simplified(both)
                if both is not None:
                    found[both] = None
        if len(one) > 1 and len(other) > 1:
            found = dict.fromkeys(self._few(list(found)))
        if len(found) > MAX_SHAPES:
            raise self._too_many(place)
        return list(found)

    @staticmethod
    def _too_many(place: Place) -> GrammarError:
        return GrammarError(
            f"schema at `{shown(place)}`: its combinations have over {MAX_SHAPES} cases\n\n"
            "hint: use fewer `anyOf`, `oneOf`, `if` and `dependentRequired` together"
        )

    def _positive(self, place: Place) -> Union:
        found: Union | None = None
        for part in self._parts(place):
            more = self._part(place, part, True)
            found = more if found is None else self.meet(found, more, place)
        return list(EVERYTHING.values()) if found is None else found

    def _negative(self, place: Place) -> Union:
        """A value is forbidden when one part forbids it."""
        found: dict[shapes.Shape, None] = {}
        for part in self._parts(place):
            found.update(dict.fromkeys(self._part(place, part, False)))
        return list(found)

    def _parts(self, place: Place) -> Iterator[str]:
        """Keywords in order; those that assert by themselves count as one, «local»."""
        value = place.value
        if "$ref" in value and self.document.draft <= 7:
            yield "$ref"
            return
        has_local = False
        for keyword in value:
            if (
                keyword in unevaluated.KEYWORDS
                and value[keyword] is not True
                and keywords.has_evaluating(value)
            ):
                yield keyword
            if keyword in keywords.APPLICATORS or keyword in _REWRITTEN or keyword == QUIET:
                yield keyword
            elif keyword in keywords.ENFORCED:
                if not has_local and keyword not in ("then", "else"):
                    has_local = True
                    yield "local"
            else:
                self._check_word(place, keyword)

    def _check_word(self, place: Place, word: str) -> None:
        """A draft says of itself that unknown words assert nothing; without one, nobody does."""
        if word in keywords.REFUSED:
            raise refuse(place, word, "is not supported")
        if keywords.is_note(word, place.value[word]) or self.document.holds_target(place, word):
            return
        if meant := keywords.meant(word):
            raise refuse(place, word, "is no keyword", f"write `{meant}`")
        if not self.document.is_declared:
            raise refuse(
                place, word, "is no keyword",
                f"leave it out, call it `x-{word}`, or name a draft in `$schema`: "
                "each says that it ignores unknown words",
            )  # fmt: skip

    def _part(self, place: Place, part: str, sign: bool) -> Union:
        match part:
            case "local":
                return asserts.positive(self, place) if sign else asserts.negative(self, place)
            case "$ref":
                return self.expand((self.document.resolve(place, "$ref"), sign))
            case "$dynamicRef" | "$recursiveRef":
                return self.expand((self.document.resolve_dynamic(place, part), sign))
            case "not":
                return self._quiet(self.expand((self.inner(place, "not"), not sign)))
            case "allOf" | "anyOf":
                terms = [(branch, sign) for branch in self.branches(place, part)]
                return self.all_of(terms) if (part == "allOf") == sign else self._any(terms)
            case "oneOf":
                return self._one_of(place, sign)
            case "unevaluatedProperties" | "unevaluatedItems":
                if not sign:
                    raise refuse(place, part, "cannot be negated")
                return unevaluated.union_of(self, place, part)
            case "\0quiet":
                return self._quiet(self.expand((self.inner(place, QUIET), sign)))
        rewritten = self._rewritten.get((id(place), part))
        if rewritten is None:
            path = f"{place.path}/{part}"
            rewritten = self.document.make(self._rewrite(place, part), path, place)
            self._rewritten[id(place), part] = rewritten
        return self.expand((rewritten, sign))

    @staticmethod
    def _quiet(union: Union) -> Union:
        return [shapes.without_listing(shape) for shape in union]

    def inner(self, place: Place, keyword: str) -> Place:
        return self.document.at(place.value[keyword], f"{place.path}/{keyword}", place)

    def quietly(self, place: Place, keyword: str) -> Place:
        """The subschema under a keyword, as one that tests and does not describe."""
        known = self._rewritten.get((id(place), QUIET + keyword))
        if known is None:
            path = f"{place.path}/{keyword}"
            known = self.document.make({QUIET: place.value[keyword]}, path, place)
            self._rewritten[id(place), QUIET + keyword] = known
        return known

    def branches(self, place: Place, keyword: str) -> list[Place]:
        value = place.value[keyword]
        if not isinstance(value, list) or not value:
            raise refuse(place, keyword, "must be a list of at least one schema")
        return [
            self.document.at(branch, f"{place.path}/{keyword}/{index}", place)
            for index, branch in enumerate(value)
        ]

    def all_of(self, terms: Sequence[Term]) -> Union:
        found = self.expand(terms[0])
        for term in terms[1:]:
            found = self.meet(found, self.expand(term), term[0])
        return found

    def _any(self, terms: list[Term]) -> Union:
        return list(dict.fromkeys(shape for term in terms for shape in self.expand(term)))

    def _one_of(self, place: Place, sign: bool) -> Union:
        """Each branch without the others; branches that cannot both match need no negation."""
        branches = self.branches(place, "oneOf")
        found: dict[shapes.Shape, None] = {}
        for index, branch in enumerate(branches):
            own = self.expand((branch, True))
            rivals = [
                rival
                for other, rival in enumerate(branches)
                if other != index and not self._are_disjoint(own, self.expand((rival, True)))
            ]
            for rival in rivals:
                if sign:
                    own = self.meet(own, self._without(place, rival), place)
                else:
                    both = self.meet(own, self.expand((rival, True)), place)
                    found.update(dict.fromkeys(both))
            if sign:
                self._check_multiples(place, own)
                found.update(dict.fromkeys(own))
        if not sign:
            found.update(dict.fromkeys(self.all_of([(branch, False) for branch in branches])))
            return self._quiet(list(found))
        return list(found)

    def _check_multiples(self, place: Place, union: Union) -> None:
        for shape in union:
            if isinstance(shape, shapes.Number) and shape.indivisible and shape.values is None:
                raise refuse(
                    place, "oneOf", "has branches that can both match, and `multipleOf` cannot be "
                    "negated", "use `anyOf`",
                )  # fmt: skip

    def _few(self, union: Union) -> Union:
        """Of many shapes, most are often empty or parts of others, and would be multiplied."""
        if len(union) <= MANY:
            return union
        union = [shape for shape in union if not self._is_empty(shape)]
        self._steps += len(union)
        return shapes.absorbed(union) if len(union) <= MAX_ABSORBED else union

    def _without(self, place: Place, rival: Place) -> Union:
        try:
            return self._quiet(self.expand((rival, False)))
        except GrammarError as error:
            raise refuse(
                place, "oneOf", f"has branches that can both match, and {error}",
                "use `anyOf`, or tell the branches apart by a required `const` property",
            ) from None  # fmt: skip

    def _are_disjoint(self, one: Union, other: Union) -> bool:
        for first in one:
            for second in other:
                both = shapes.intersect(first, second)
                both = both and simplified(both)
                if both is not None and not self._is_empty(both):
                    return False
        return True

    def _is_empty(self, shape: shapes.Shape) -> bool:
        """Asked in the middle of an expansion: a member may have the schema that is expanded."""
        try:
            return self.emptiness.of_shape(shape)
        except _SelfReference:
            return False

    def _rewrite(self, place: Place, keyword: str) -> dict:
        value = place.value[keyword]
        if keyword == "if":
            no = {"allOf": [{"not": value}, place.value.get("else", True)]}
            return {"anyOf": [{"allOf": [{QUIET: value}, place.value.get("then", True)]}, no]}
        if keyword == "strictProperties":
            return _strict(place)
        if not isinstance(value, dict):
            raise refuse(place, keyword, "must be an object")
        rules = []
        for name, then in value.items():
            if isinstance(then, str):
                then = [then]
            if isinstance(then, list):
                then = {"required": then}
            given = {"type": "object", "required": [name]}
            rules.append(
                {"anyOf": [_NO_OBJECT, {"not": {"required": [name]}}, {"allOf": [given, then]}]}
            )
        return {"allOf": rules} if rules else {}


def _strict(place: Place) -> dict:
    """Members of all listed names, and no others."""
    if not isinstance(place.value["strictProperties"], bool):
        raise refuse(place, "strictProperties", "must be a boolean")
    if not place.value["strictProperties"]:
        return {}
    listed, patterns = (
        dict.fromkeys(containers.map_of(place, word), True)
        for word in ("properties", "patternProperties")
    )
    return {"properties": listed, "patternProperties": patterns, "required": list(listed),
            "additionalProperties": False}  # fmt: skip


def _plain(value: dict) -> Union | None:
    """What most schemas are: the name of a type, and annotations."""
    kind = value.get("type")
    if type(kind) is str and kind in shapes.ALL_OF_TYPE and value.keys() <= _PLAIN:
        return [shapes.ALL_OF_TYPE[kind]]
    return None
