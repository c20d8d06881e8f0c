"""Tensor: the handle of one device value while a stage is recorded. Owns the operators and the
errors that tell a tensor from a number. Holds no data.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from inferlet.errors import with_hint
from ipc.types import DType, TensorType

if TYPE_CHECKING:
    from inferlet.eta.trace import Stage


class Tensor:
    """A value on the device. `.shape` and `.dtype` are static; the data exist only in a fire."""

    __slots__ = ("__weakref__", "dtype", "node", "shape", "stage")
    # Makes `numpy_scalar * tensor` come to us instead of building an object array.
    __array_ufunc__ = None

    def __init__(self, stage: "Stage", node: int, made: TensorType) -> None:
        self.stage = stage
        self.node = node
        self.shape: tuple[int, ...] = made.shape
        self.dtype: DType = made.dtype

    def reshape(self, *shape: Any) -> "Tensor":
        """The same elements, row-major, in another shape."""
        from inferlet.eta import ops

        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype.label}{list(self.shape)}, {self.stage.label})"

    __hash__ = object.__hash__

    # -- what a tensor is not

    def _refuse(self, what: str, hint: str) -> NoReturn:
        from inferlet.eta.trace import fail

        file, line = self.stage.line_of(self)
        fail(f"{what} (made at {file}:{line})", hint)

    def __getattr__(self, name: str) -> NoReturn:
        from inferlet.eta.hints import attribute_hint

        words = f"a traced tensor has no attribute `{name}`"
        hint = "" if name.startswith("__") else attribute_hint(name)
        raise AttributeError(with_hint(words, hint), name=name, obj=self)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse(
            "a traced tensor cannot be changed", "write `scatter_set(t, i, x)` for `t[i] = x`"
        )

    def __pow__(self, other: Any) -> NoReturn:
        self._refuse(
            "a traced tensor has no `**`",
            "write `x * x` for a square, and `exp(y * log(x))` for `x ** y`",
        )

    __rpow__ = __pow__

    def __matmul__(self, other: Any) -> NoReturn:
        self._refuse("a traced tensor has no `@`", "write `matmul(a, b)`")

    __rmatmul__ = __matmul__

    def __xor__(self, other: Any) -> NoReturn:
        self._refuse("a traced tensor has no `^`", "write `ne(a, b)`")

    __rxor__ = __xor__

    def __bool__(self) -> NoReturn:  # noqa: PLE0304
        self._refuse(
            "a traced tensor has no truth value",
            "both branches run on the device: write `select(c, a, b)` for `if`, "
            "and `and_`, `or_`, `not_` for `and`, `or`, `not`",
        )

    def __int__(self) -> NoReturn:
        self._refuse(
            "a traced tensor has no int value yet",
            "return it from the stage, or `put` it on a channel that the host takes",
        )

    def __float__(self) -> NoReturn:
        self._refuse(
            "a traced tensor has no float value yet",
            "return it from the stage, or `put` it on a channel that the host takes",
        )

    def __index__(self) -> NoReturn:  # noqa: PLE0305
        self._refuse(
            "a traced tensor cannot index a host sequence",
            "use `gather(src, idx)` with `constant(values)` on the device",
        )

    def __len__(self) -> NoReturn:  # noqa: PLE0303
        self._refuse("`len` of a traced tensor is not defined", "use `t.shape[0]`")

    def __iter__(self) -> NoReturn:
        self._refuse(
            "a traced tensor cannot be iterated",
            "operations work on whole tensors; `gather(t, i)` gives one row",
        )

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse("a traced tensor cannot be indexed", "write `gather(t, i)` for `t[i]`")

    def __contains__(self, item: Any) -> NoReturn:
        self._refuse(
            "`in` asks a traced tensor for a truth value", "write `reduce_max(cast(eq(...)))`"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("numpy cannot read a traced tensor", "use the operations of `inferlet.eta`")


def _binary(name: str, swap: bool = False) -> Any:
    def operator(self: Tensor, other: Any) -> Tensor:
        from inferlet.eta.trace import record

        return record(name, other, self) if swap else record(name, self, other)

    return operator


def _unary(name: str) -> Any:
    def operator(self: Tensor) -> Tensor:
        from inferlet.eta.trace import record

        return record(name, self)

    return operator


def _equality(name: str, with_none: bool) -> Any:
    def operator(self: Tensor, other: Any) -> Any:
        from inferlet.eta.trace import record

        return with_none if other is None else record(name, self, other)

    return operator


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "mod": "rem", "truediv": "div", "floordiv": "div",
    "and": "and_", "or": "or_",
}  # fmt: skip
for _symbol, _name in _BINARY.items():
    setattr(Tensor, f"__{_symbol}__", _binary(_name))
    setattr(Tensor, f"__r{_symbol}__", _binary(_name, swap=True))
for _symbol in ("lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_symbol}__", _binary(_symbol))
for _symbol, _name in (("neg", "neg"), ("abs", "abs"), ("invert", "not_")):
    setattr(Tensor, f"__{_symbol}__", _unary(_name))
Tensor.__eq__ = _equality("eq", with_none=False)  # type: ignore[method-assign]
Tensor.__ne__ = _equality("ne", with_none=True)  # type: ignore[method-assign]
# Assigning `__eq__` leaves `__hash__` as it is: tensors hash by identity.
