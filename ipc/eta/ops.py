"""The op table: one row per op. Owns every fact about an op; tracer, checker, encoder, printer,
documentation and executor read it. Refuses to compute anything.

Adding an op = one row here, one kernel (`worker/eta/kernels.py`), one reference function
(`inferlet/testing/reference.py`), its vectors. A code is never reused.

An argument is written `name` or `name:literal`. `literal` says which dtype a Python number takes
there: `same` joins the dtype of the op's other `same` arguments, a dtype name fixes it, nothing
means that numbers are refused.
"""

from dataclasses import dataclass
from typing import NamedTuple

# A result that is an index, so never negative.
INDEX = "index"
# Every element of the result is an element of one of the value arguments, or zero.
CARRY = "carry"
# Touches a channel slot; lives in `Program.effects`, never in `Program.nodes`.
EFFECT = "effect"
# Type comes from outside the program: a slot, a model output, the attributes.
SOURCE = "source"
# Not on the API page's primary surface.
EXTRA = "extra"
# No user-level function of this name; other functions record it.
INTERNAL = "internal"
# The user-level function is written by hand in `inferlet/eta/composite.py`.
HAND = "hand"
# Elementwise over equal shapes and scalars.
ELEMENTWISE = "elementwise"


class Arg(NamedTuple):
    name: str
    literal: str  # "", "same", or a dtype label


@dataclass(frozen=True, eq=False)
class Op:
    """One row. `rule` names a function of `ipc.eta.rules`. Rows are compared by identity."""

    code: int
    name: str
    section: str
    args: tuple[Arg, ...]
    attrs: tuple[tuple[str, str], ...]  # (name, kind): uint, shape, dtype, str
    rule: str
    traits: frozenset[str]
    since: int
    doc: str

    def __repr__(self) -> str:
        return f"Op({self.name})"

    @property
    def attr_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.attrs)


def _row(
    code: int, name: str, section: str, args: str, attrs: str, rule: str, traits: str, doc: str
) -> Op:
    parsed_args = tuple(Arg(*(word.split(":") + [""])[:2]) for word in args.split())
    parsed_attrs = tuple(tuple(word.split(":")) for word in attrs.split())
    return Op(
        code, name, section, parsed_args, parsed_attrs, rule, frozenset(traits.split()), 1, doc
    )


# fmt: off
TABLE: tuple[Op, ...] = (
    # Sources and effects
    _row(1, "front", "10.2", "", "slot:uint", "declared", "source internal",
         "The oldest committed cell of a channel slot."),
    _row(2, "output", "17", "", "lane:uint name:str", "declared", "source internal",
         "A model output of one lane."),
    _row(3, "constant", "15.3", "", "dtype:dtype shape:shape", "declared", "source hand",
         "A value of the constant pool; the value itself is not part of the program."),
    _row(4, "take", "10.2", "", "slot:uint", "void", "effect internal",
         "Dequeues: gives and clears the new value, else gives the front and marks it popped."),
    _row(5, "read", "10.2", "", "slot:uint", "void", "effect internal extra",
         "Gives the new value if there is one, else the front."),
    _row(6, "put", "10.2", "x", "slot:uint", "void", "effect internal",
         "Sets the new value of a channel slot; a later put replaces it."),
    _row(7, "held", "10.2", "", "slot:uint", "void", "effect internal",
         "The stage begins with the new value that an earlier phase of the fire put."),
    _row(8, "spent", "10.2", "", "slot:uint", "void", "effect internal",
         "Takes once more what an earlier phase of the fire put and took: pops nothing."),
    _row(9, "earlier", "10.2", "", "slot:uint", "declared", "source internal",
         "What an earlier phase of the fire put on a channel slot."),
    # Arithmetic
    _row(16, "add", "15.1", "a:same b:same", "", "arithmetic", "elementwise",
         "`a + b`. Integers wrap."),
    _row(17, "sub", "15.1", "a:same b:same", "", "arithmetic", "elementwise extra",
         "`a - b`. Integers wrap."),
    _row(18, "mul", "15.1", "a:same b:same", "", "arithmetic", "elementwise",
         "`a * b`. Integers wrap."),
    _row(19, "div", "15.1", "a:same b:same", "", "arithmetic", "elementwise",
         "`a / b`. Integers truncate toward zero; x / 0 = 0."),
    _row(20, "rem", "15.1", "a:same b:same", "", "arithmetic", "elementwise extra",
         "`a - b * trunc(a / b)`: the sign of the dividend; integer x rem 0 = 0."),
    _row(21, "abs", "15.1", "x:same", "", "unary_number", "elementwise hand",
         "Absolute value; integers wrap."),
    _row(22, "neg", "15.1", "x:same", "", "unary_number", "elementwise extra",
         "`-x`; integers wrap."),
    _row(23, "sign", "15.1", "x:same", "", "unary_number", "elementwise extra",
         "-1, 0 or 1; the sign of NaN is 0."),
    _row(24, "exp", "15.1", "x:same", "", "unary_f32", "elementwise", "e to the x."),
    _row(25, "log", "15.1", "x:same", "", "unary_f32", "elementwise",
         "Natural logarithm: -inf at 0, NaN below."),
    _row(26, "cos", "15.1", "x:same", "", "unary_f32", "elementwise", "Cosine of radians."),
    _row(27, "sin", "15.1", "x:same", "", "unary_f32", "elementwise extra", "Sine of radians."),
    _row(28, "sqrt", "15.1", "x:same", "", "unary_f32", "elementwise extra",
         "Square root; NaN below 0."),
    _row(29, "rsqrt", "15.1", "x:same", "", "unary_f32", "elementwise extra", "`1 / sqrt(x)`."),
    _row(30, "recip", "15.1", "x:same", "", "unary_f32", "elementwise extra", "`1 / x`."),
    _row(31, "max_elem", "15.1", "a:same b:same", "", "arithmetic", "elementwise carry",
         "The larger; a number beats NaN; `max(-0, 0) = 0`."),
    _row(32, "min_elem", "15.1", "a:same b:same", "", "arithmetic", "elementwise carry",
         "The smaller; a number beats NaN; `min(-0, 0) = -0`."),
    _row(33, "l2norm", "15.1", "x", "", "row_f32", "",
         "Each row divided by its Euclidean norm; a zero row gives NaN."),
    _row(34, "matmul", "15.1", "a b", "", "matmul", "",
         "`[m,k]` times `[k,n]`; rank 2 exactly."),
    _row(35, "mm", "15.1", "w e", "", "mm", "extra hand",
         "`e @ w^T`: w `[o,k]`, e `[r,k]`, result `[r,o]`; bf16 and f16 weights are cast."),
    _row(36, "transpose", "15.1", "x", "", "transpose", "carry extra",
         "`[m,n]` to `[n,m]`."),
    # Comparison and logic
    _row(40, "eq", "15.2", "a:same b:same", "", "compare", "elementwise", "`a == b`."),
    _row(41, "ne", "15.2", "a:same b:same", "", "compare", "elementwise",
         "`a != b`; True with NaN."),
    _row(42, "lt", "15.2", "a:same b:same", "", "compare", "elementwise", "`a < b`."),
    _row(43, "le", "15.2", "a:same b:same", "", "compare", "elementwise", "`a <= b`."),
    _row(44, "gt", "15.2", "a:same b:same", "", "compare", "elementwise", "`a > b`."),
    _row(45, "ge", "15.2", "a:same b:same", "", "compare", "elementwise", "`a >= b`."),
    _row(46, "and_", "15.2", "a:bool b:bool", "", "logic", "elementwise", "Both."),
    _row(47, "or_", "15.2", "a:bool b:bool", "", "logic", "elementwise extra", "Either."),
    _row(48, "not_", "15.2", "x:bool", "", "logic", "elementwise extra", "The opposite."),
    _row(49, "select", "15.2", "c:bool a:same b:same", "", "select", "elementwise carry",
         "`a` where `c`, else `b`. Both are computed."),
    _row(50, "mask_apply", "15.2", "x:f32 m:bool", "", "mask_apply", "",
         "`select(m, x, -inf)`; for x `[..,n]`, m may be packed words, u32 `[..,ceil(n/32)]`."),
    # Shape
    _row(56, "reshape", "15.3", "x:same", "shape:shape", "reshape", "carry",
         "Row-major, equal element count."),
    _row(57, "broadcast", "15.3", "x:same", "shape:shape", "broadcast", "carry",
         "Aligns on the left; extents of 1 repeat."),
    _row(58, "cast", "15.3", "x:same", "dtype:dtype", "cast", "",
         "f32 to integers truncates and saturates; i32 and u32 wrap; a number is True unless 0."),
    _row(59, "iota", "15.3", "", "n:uint", "iota", "", "u32 `[n]`: 0 .. n-1."),
    _row(60, "indptr", "15.3", "run_len:u32", "rows:uint", "indptr", "hand",
         "u32 `[rows+1]`: `i * run_len`, wrapping."),
    # Reductions and scans
    _row(64, "reduce_max", "15.4", "x:same", "", "reduce_number", "carry",
         "Largest of each row, ignoring NaN; -inf for a row of NaN."),
    _row(65, "reduce_min", "15.4", "x:same", "", "reduce_number", "carry extra",
         "Smallest of each row, ignoring NaN; +inf for a row of NaN."),
    _row(66, "reduce_sum", "15.4", "x:same", "", "reduce_number", "",
         "Sum of each row. Integers wrap; f32 adds in the fixed tree."),
    _row(67, "reduce_argmax", "15.4", "x:same", "", "reduce_index", "index",
         "Lowest index of each row's maximum; NaN is never chosen; 0 for a row of NaN."),
    _row(68, "cumsum", "15.4", "x", "", "scan", "", "Inclusive sums, left to right."),
    _row(69, "cumprod", "15.4", "x", "", "scan", "", "Inclusive products, left to right."),
    _row(70, "cummass_le", "15.4", "x p:f32", "", "threshold", "hand",
         "Keep i iff the mass ranked strictly before i is < p."),
    _row(71, "rank_le", "15.4", "x k:i32", "", "rank", "extra hand",
         "Keep i iff fewer than k elements of its row are strictly greater."),
    _row(72, "prob_ge", "15.4", "x t:f32", "", "threshold", "extra hand", "`x[i] >= t`."),
    # Distributions
    _row(80, "softmax", "15.5", "x", "", "row_f32", "",
         "`exp(x-m) / sum(exp(x-m))` of each row."),
    _row(81, "log_softmax", "15.5", "x", "", "row_f32", "",
         "`(x-m) - log(sum(exp(x-m)))` of each row."),
    _row(82, "entropy", "15.5", "p", "", "entropy", "",
         "`-sum(p * log(max_elem(p, 2^-126)))` of each row, in nats."),
    _row(83, "entropy_from_logprobs", "15.5", "p lp", "", "entropy", "",
         "`-sum(p * lp)` of each row, no guard."),
    _row(84, "top_k_indices", "15.5", "x", "k:uint", "top_k", "internal index",
         "Indices of the k largest, descending, lower index first, NaN last."),
    _row(85, "pick", "15.5", "x idx", "", "pick", "internal carry",
         "Elements of each row at the row's indices."),
    _row(86, "gumbel", "15.5", "state", "shape:shape", "draw", "",
         "Standard Gumbel draws; state is u32 `[2]`: key and counter, and draws advance neither."),
    _row(87, "normal", "15.5", "state", "shape:shape", "draw", "extra",
         "Standard normal draws; state as for `gumbel`."),
    _row(88, "gumbel_max", "15.5", "logits state", "", "gumbel_max", "index",
         "A sample of softmax(logits): `reduce_argmax(logits + gumbel(state, logits.shape))`."),
    _row(89, "nucleus_sample", "15.5", "logits top_p:f32 state", "", "nucleus", "index",
         "A sample from the smallest set of likeliest elements with mass top_p."),
    _row(90, "masked_argmax", "15.5", "logits m:bool", "", "masked_argmax", "index",
         "`reduce_argmax(mask_apply(logits, m))`; 0 when nothing is allowed."),
    # Indexing and masks
    _row(96, "gather", "15.6", "src idx:i32", "", "gather", "carry",
         "`src[idx]` along axis 0; zero or False out of range."),
    _row(97, "gather_row", "15.6", "src idx", "", "gather_row", "carry",
         "`src[i, idx[i]]` for src `[m,n]`; zero or False out of range."),
    _row(98, "scatter_set", "15.6", "base:same idx vals:same", "", "scatter", "carry extra",
         "Copy of base with rows replaced; the last duplicate wins."),
    _row(99, "scatter_add", "15.6", "base:same idx vals:same", "", "scatter_add", "extra",
         "Copy of base with rows added to, in index order."),
    _row(100, "causal_mask", "15.6", "pos", "length:uint", "position_mask", "", "`k <= pos`."),
    _row(101, "sliding_window_mask", "15.6", "pos", "length:uint window:uint", "position_mask",
         "extra", "`k <= pos` and `k + window > pos`."),
    _row(102, "sink_window_mask", "15.6", "pos", "length:uint sink:uint window:uint",
         "position_mask", "extra", "`k <= pos` and (`k < sink` or `k + window > pos`)."),
)
# fmt: on

BY_NAME: dict[str, Op] = {op.name: op for op in TABLE}
BY_CODE: dict[int, Op] = {op.code: op for op in TABLE}
