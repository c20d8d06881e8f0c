"""The formats of strings that are enforced, as patterns. Dates are those of the calendar."""

import functools

from inferlet.grammars.regex import whole
from inferlet.grammars.regex.tree import Node

_YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = (
    r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
)  # fmt: skip
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)  # fmt: skip
_HOUR, _SIXTY = r"(?:[01][0-9]|2[0-3])", r"[0-5][0-9]"
_OFFSET = rf"(?:[Zz]|[+-]{_HOUR}:{_SIXTY})"
# A leap second is the last of a day in UTC.
_TIME = (
    rf"(?:{_HOUR}:{_SIXTY}:{_SIXTY}(?:\.[0-9]+)?{_OFFSET}"
    r"|23:59:60(?:\.[0-9]+)?(?:[Zz]|[+-]00:00))"
)  # fmt: skip
_DURATION_TIME = (
    r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
)  # fmt: skip
_DURATION = (
    r"P(?:(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
    rf"(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)"
)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H16 = r"[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """Eight groups, of which the last two may be an IPv4 address; `::` stands for at least one."""
    last = rf"(?:{_H16}:{_H16}|{_IPV4})"
    options = [rf"(?:{_H16}:){{6}}{last}"]
    for before in range(8):
        start = rf"(?:{_H16}(?::{_H16}){{0,{before - 1}}})?" if before else ""
        after = 7 - before  # at most, after up to `before` groups
        ends = [""] if after >= 0 else []
        if after >= 1:
            ends.append(_H16 if after == 1 else rf"(?:{_H16}:){{0,{after - 1}}}{_H16}")
        if after >= 2:
            ends.append(rf"(?:{_H16}:){{0,{after - 2}}}{_IPV4}")
        options.append(rf"{start}::(?:{'|'.join(ends)})")
    return f"(?:{'|'.join(options)})"


_IPV6 = _ipv6()
# A label has at most 63 characters; its third and fourth are not both `-`.
_LABEL = (
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]"
    r"|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])?"
)
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_EMAIL = rf"(?:{_ATEXT}(?:\.{_ATEXT})*|{_QUOTED})@(?:{_HOSTNAME}|\[{_IPV4}\]|\[IPv6:{_IPV6}\])"

_PERCENT = r"%[0-9A-Fa-f]{2}"
# What RFC 3987 adds to URIs: letters of all scripts, and private characters in queries.
_UCS = r"\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}\u{E1000}-\u{EFFFD}" + "".join(
    rf"\u{{{plane:X}0000}}-\u{{{plane:X}FFFD}}" for plane in range(1, 14)
)
_PRIVATE = r"\u{E000}-\u{F8FF}\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}"


def _uris(letters: str, private: str) -> tuple[str, str]:
    """Absolute and relative references with these characters beside those of ASCII."""
    unreserved = r"A-Za-z0-9._~!$&'()*+,;=\-" + letters
    char = rf"(?:[{unreserved}:@]|{_PERCENT})"
    segments = rf"(?:/{char}*)*"
    address = rf"\[(?:{_IPV6}|v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:\-]+)\]"
    authority = (
        rf"(?:(?:[{unreserved}:]|{_PERCENT})*@)?"
        rf"(?:{address}|(?:[{unreserved}]|{_PERCENT})*)(?::[0-9]*)?"
    )
    tail = rf"(?:\?(?:{char}|[/?{private}])*)?(?:#(?:{char}|[/?])*)?"
    start = rf"//{authority}{segments}|/(?:{char}+{segments})?"
    no_colon = rf"(?:[{unreserved}@]|{_PERCENT})+"
    absolute = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{start}|{char}+{segments}|){tail}"
    return absolute, rf"(?:{start}|{no_colon}{segments}|){tail}"


_URI, _RELATIVE = _uris("", "")
_IRI, _RELATIVE_IRI = _uris(_UCS, _PRIVATE)
_VARIABLE = rf"(?:[A-Za-z0-9_]|{_PERCENT})(?:\.?(?:[A-Za-z0-9_]|{_PERCENT}))*"
_VARIABLE += r"(?::[1-9][0-9]{0,3}|\*)?"
_TEMPLATE = (
    rf"(?:[!#$&(-;=?-\[\]_a-z~{_UCS}{_PRIVATE}]|{_PERCENT}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "uuid": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "email": _EMAIL,
    "hostname": rf"(?=[A-Za-z0-9.-]{{1,253}}$){_HOSTNAME}",
    "uri": _URI,
    "uri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "uri-template": _TEMPLATE,
    "iri": _IRI,
    "iri-reference": rf"(?:{_IRI}|{_RELATIVE_IRI})",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    # Of OpenAPI: base64, and a hint for forms.
    "byte": r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "password": r"[\s\S]*",
}

# What the drafts mean by themselves, the oldest with names of its own. A draft says that a format
# which it does not define asserts nothing; but validators know the names of later drafts too.
DEFINED = frozenset(
    ("date-time", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uri-template",
     "json-pointer", "date", "time", "idn-email", "idn-hostname", "iri", "iri-reference",
     "relative-json-pointer", "regex", "duration", "uuid")
)  # fmt: skip
_DEFINED_BY_3 = frozenset(("utc-millisec", "color", "style", "phone", "ip-address", "host-name"))


def is_defined(name: object, draft: int) -> bool:
    """Whether the draft, or a later one, gives the format a meaning."""
    return not isinstance(name, str) or name in DEFINED or (draft == 3 and name in _DEFINED_BY_3)


@functools.cache
def tree_of(name: str) -> Node | None:
    """The texts of a format; None when it is not known."""
    pattern = PATTERNS.get(name)
    return None if pattern is None else whole.search(f"^{pattern}$")
