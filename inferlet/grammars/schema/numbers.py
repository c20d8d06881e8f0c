"""Numbers: whether a shape has any, and the regexes of their decimal spellings.

Bounded numbers are spelt without an exponent: with one, «at most 7» is no regular language.
"""

import math
from decimal import Decimal

from inferlet.grammars.schema.shapes import Number

INTEGER = r"-?(?:0|[1-9][0-9]*)"
ANY = INTEGER + r"(?:\.[0-9]+)?(?:[E\x65][+\-]?[0-9]+)?"
_PLAIN = INTEGER + r"(?:\.[0-9]+)?"
_UNSIGNED = r"(?:0|[1-9][0-9]*)"


def holds(shape: Number, value: Decimal) -> bool:
    """Whether one value is in the shape."""
    whole = value == value.to_integral_value()
    if (shape.is_integer and not whole) or (shape.is_fraction and whole):
        return False
    if shape.low and (value < shape.low[0] or (shape.low[1] and value == shape.low[0])):
        return False
    if shape.high and (value > shape.high[0] or (shape.high[1] and value == shape.high[0])):
        return False
    if any(value % multiple != 0 for multiple in shape.multiples):
        return False
    if any(value % step == 0 for step in shape.indivisible):
        return False
    return value not in shape.excluded


def is_empty(shape: Number) -> bool:
    if shape.values is not None:
        return not any(holds(shape, value) for value in shape.values)
    if shape.low and shape.high:
        low, high = shape.low, shape.high
        if low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1])):
            return True
        first, last = integer_bounds(shape)
        step = common_multiple(shape.multiples) if shape.multiples else None
        if step is not None:
            least = -(-low[0] // step) * step if low[0] > 0 else (low[0] / step).to_integral_value(
                "ROUND_CEILING") * step  # fmt: skip
            candidates = [least, least + step]
            return not any(holds(_without_excluded(shape), value) for value in candidates)
        if shape.is_integer and last - first < 1000:
            return all(Decimal(n) in shape.excluded for n in range(first, last + 1))
        if low[0] == high[0]:
            return not holds(shape, low[0])
    return False


def _without_excluded(shape: Number) -> Number:
    return Number(shape.is_integer, shape.is_fraction, shape.low, shape.high, shape.multiples)


def integer_bounds(shape: Number) -> tuple[int | None, int | None]:
    low = high = None
    if shape.low:
        low = math.ceil(shape.low[0])
        low += shape.low[1] and low == shape.low[0]
    if shape.high:
        high = math.floor(shape.high[0])
        high -= shape.high[1] and high == shape.high[0]
    return low, high


def common_multiple(steps: tuple[Decimal, ...]) -> Decimal:
    """The least positive number that is a multiple of all."""
    scale = Decimal(10) ** max(0, *(-step.as_tuple().exponent for step in steps))
    return Decimal(math.lcm(*(int(step * scale) for step in steps))) / scale


def spellings(value: Decimal) -> list[str]:
    """As written in the schema, and as an integer when it is one."""
    found = [str(value)]
    if value == value.to_integral_value() and abs(value) < Decimal(10) ** 40:
        found.insert(0, str(int(value)))
    return list(dict.fromkeys(found))


def regexes(shape: Number) -> tuple[list[str], list[str]]:
    """Regexes that a spelling matches all of, and regexes that it matches none of."""
    positive = [_base(shape)]
    negative = [_value(value) for value in shape.excluded]
    if shape.is_fraction:
        negative.append(INTEGER + r"(?:\.0*)?")
    if shape.is_integer:
        low, high = integer_bounds(shape)
        if low is not None:
            positive.append(_at_least(Decimal(low), False))
        if high is not None:
            positive.append(_at_most(Decimal(high), False))
        return positive, negative
    if shape.low:
        positive.append(_at_least(*shape.low))
    if shape.high:
        positive.append(_at_most(*shape.high))
    return positive, negative


def _base(shape: Number) -> str:
    if shape.is_integer:
        return INTEGER
    has_exponents = not (shape.excluded or shape.is_fraction)
    for bound in (shape.low, shape.high):
        has_exponents = has_exponents and (bound is None or bound[0] == 0)
    return ANY if has_exponents else _PLAIN


def _value(value: Decimal) -> str:
    """All plain spellings of one value."""
    sign, digits, fraction = _split(value)
    zeros = r"(?:\.0+)?" if not fraction else rf"\.{fraction}0*"
    sign = "-?" if value == 0 else "-" if sign else ""
    return sign + digits + zeros


def _split(value: Decimal) -> tuple[bool, str, str]:
    text = format(abs(value), "f")
    digits, _, fraction = text.partition(".")
    return value < 0, digits, fraction.rstrip("0")


_EXPONENT = r"(?:[E\x65][+\-]?[0-9]+)?"
_ZERO = rf"-?0(?:\.0+)?{_EXPONENT}"
# A mantissa with a digit that is not 0.
_NONZERO = rf"(?:[1-9][0-9]*(?:\.[0-9]+)?|0\.0*[1-9][0-9]*){_EXPONENT}"


def _at_least(value: Decimal, is_strict: bool) -> str:
    if value == 0:
        return _NONZERO if is_strict else f"{_NONZERO}|{_ZERO}"
    if value > 0:
        return _magnitude_at_least(value, is_strict)
    nonnegative = rf"{_UNSIGNED}(?:\.[0-9]+)?|-0(?:\.0+)?"
    return f"{nonnegative}|-(?:{_magnitude_at_most(-value, is_strict)})"


def _at_most(value: Decimal, is_strict: bool) -> str:
    if value == 0:
        return f"-(?:{_NONZERO})" if is_strict else f"-(?:{_NONZERO})|{_ZERO}"
    if value < 0:
        return f"-(?:{_magnitude_at_least(-value, is_strict)})"
    nonpositive = rf"-{_UNSIGNED}(?:\.[0-9]+)?"
    return f"{nonpositive}|{_magnitude_at_most(value, is_strict)}"


def _magnitude_at_least(value: Decimal, is_strict: bool) -> str:
    """Unsigned spellings of numbers from a positive value on."""
    _, digits, fraction = _split(value)
    options = [f"(?:{'|'.join(_integers_from(str(int(digits) + 1)))})(?:\\.[0-9]+)?"]
    if not fraction:
        options.append(digits + (r"\.0*[1-9][0-9]*" if is_strict else r"(?:\.[0-9]+)?"))
        return "|".join(options)
    for index, digit in enumerate(fraction):
        if digit != "9":
            options.append(rf"{digits}\.{fraction[:index]}[{int(digit) + 1}-9][0-9]*")
    options.append(rf"{digits}\.{fraction}" + ("0*[1-9][0-9]*" if is_strict else "[0-9]*"))
    return "|".join(options)


def _magnitude_at_most(value: Decimal, is_strict: bool) -> str:
    """Unsigned spellings of numbers from 0 up to a positive value."""
    _, digits, fraction = _split(value)
    options = []
    if digits != "0":
        options.append(f"(?:{'|'.join(_integers_to(str(int(digits) - 1)))})(?:\\.[0-9]+)?")
    if not fraction:
        if not is_strict:
            options.append(digits + r"(?:\.0+)?")
        return "|".join(options)
    options.append(digits)
    for index, digit in enumerate(fraction):
        if index:
            options.append(rf"{digits}\.{fraction[:index]}")
        if digit != "0":
            options.append(rf"{digits}\.{fraction[:index]}[0-{int(digit) - 1}][0-9]*")
    if not is_strict:
        options.append(rf"{digits}\.{fraction}0*")
    return "|".join(options)


def _integers_from(least: str) -> list[str]:
    """Digits of all integers >= `least`, which is positive."""
    options = [f"[1-9][0-9]{{{len(least)},}}", least]
    for index, digit in enumerate(least):
        if digit != "9":
            rest = len(least) - index - 1
            options.append(f"{least[:index]}[{int(digit) + 1}-9][0-9]{{{rest}}}")
    return options


def _integers_to(most: str) -> list[str]:
    """Digits of all integers from 0 to `most`."""
    options = ["0", most]
    if len(most) > 1:
        options.append(f"[1-9][0-9]{{0,{len(most) - 2}}}")
    for index, digit in enumerate(most):
        least = 1 if index == 0 else 0
        if int(digit) > least:
            rest = len(most) - index - 1
            options.append(f"{most[:index]}[{least}-{int(digit) - 1}][0-9]{{{rest}}}")
    return options
