"""Writes the generated parts of docs/sdk.md from the SDK's own code: `python -m tests.sdk_page`."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import inferlet
from inferlet import channel as channel_module
from inferlet import dtypes, errors, forward, pipeline, working_set
from inferlet.eta import composite, intrinsics, ops, tensor
from inferlet.formats.calls import scan
from ipc.eta.ops import TABLE
from ipc.types import Limits

PAGE = Path(__file__).resolve().parent.parent / "docs/sdk.md"

# What the rules of `ipc/eta/rules.py` take and give.
SHAPES = {
    "arithmetic": "numbers, elementwise",
    "compare": "numbers, elementwise → bool",
    "logic": "bool, elementwise",
    "unary_number": "a number, any shape → the same",
    "unary_f32": "f32, any shape → the same",
    "row_f32": "f32 `[..,n]` → the same",
    "matmul": "f32 `[m,k]`, f32 `[k,n]` → f32 `[m,n]`",
    "mm": "`[o,k]`, f32 `[r,k]` → f32 `[r,o]`",
    "transpose": "`[m,n]` → `[n,m]`",
    "select": "bool and two of one dtype, elementwise",
    "mask_apply": "f32 `[..,n]`, bool of its shape or packed u32 → f32 `[..,n]`",
    "reshape": "any → `shape`",
    "broadcast": "any → `shape`",
    "cast": "any → the same shape",
    "iota": "an int → u32 `[n]`",
    "indptr": "ints → u32 `[rows+1]`",
    "reduce_number": "numbers `[..,n]` → `[..]`",
    "reduce_index": "numbers `[..,n]` → i32 `[..]`",
    "scan": "numbers `[..,n]` → the same",
    "threshold": "f32 `[n]` or `[rows,n]`, f32 `()` or `[rows]` → bool of its shape",
    "rank": "f32 `[n]` or `[rows,n]`, integers `()` or `[rows]` → bool of its shape",
    "entropy": "f32 `[..,n]` → f32 `[..]`",
    "draw": "u32 `[2]` → f32 `shape`",
    "gumbel_max": "f32 `[..,n]`, u32 `[2]` → i32 `[..]`",
    "nucleus": "f32 `[n]` or `[rows,n]`, f32 `()` or `[rows]`, u32 `[2]` → i32 `()` or `[rows]`",
    "masked_argmax": "f32 `[..,n]`, bool or packed u32 → i32 `[..]`",
    "gather": "`[n,rest..]`, integers of shape S → `S ++ rest`",
    "gather_row": "`[m,n]`, integers `[m]` → `[m]`",
    "scatter": "`[n,rest..]`, integers `[k]`, `[k,rest..]` or `()` → the first's shape",
    "scatter_add": "numbers, as `scatter_set`",
    "position_mask": "u32 of shape S → bool `S ++ [length]`",
    "declared": "a scalar, nested list or array → its shape",
}
COMPOSED = {  # of no single row
    "top_k": "f32 `[n]` or `[rows,n]` → f32 and u32 `[k]` or `[rows,k]`",
    "sort_desc": "f32 `[n]` → f32 `[n]`, u32 `[n]`",
    "pivot_threshold": "f32 `[n]` or `[rows,n]` → bool of its shape",
}
LIMITS = {
    "memory": ("bytes", "what the app allocates beyond a bare launch"),
    "cpu": ("seconds", "CPU time"),
    "descriptors": ("count", "open descriptors"),
    "pages": ("count", "KV pages that its working sets hold"),
    "pipelines": ("count", "open pipelines"),
    "channels": (
        "bytes",
        "its channels' rings: cell size times (capacity + `model.run_ahead_window()`)",
    ),
    "passes": ("count", "passes that are queued"),
    "output": ("bytes", "what it prints, in all"),
    "messages": ("a second", "all that it says to the hub; beyond it waits to be read"),
    "inbox": ("count", "messages that it has not received; a further sender is refused"),
}


def _nodes(module: ModuleType) -> dict[str, ast.stmt]:
    body = ast.parse(inspect.getsource(module)).body
    return {node.name: node for node in body if hasattr(node, "name")}


def _text(node: ast.AST) -> str:
    """A docstring on one line."""
    return " ".join((ast.get_docstring(node) or "").split())


def _line(name: str, text: str) -> str:
    return f"- `{name}`: {text}" if text else f"- `{name}`"


def _call(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, is_method: bool = False) -> str:
    """How a function is called, as its source writes the types."""
    decorators = {ast.unparse(d) for d in node.decorator_list}
    gives = ast.unparse(node.returns) if node.returns else "None"
    gives = "" if gives == "None" else f" -> {gives}"
    if "property" in decorators:
        return name + gives
    if is_method:
        node.args.args = node.args.args[1:]
    arguments = ast.unparse(node.args)
    waits = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{waits}{name}({arguments}){gives}".replace("'", "")


def _class_lines(node: ast.ClassDef, name: str) -> Iterator[str]:
    """The class, then its public members."""
    functions = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    made = next((f for f in functions if f.name == "__init__"), None)
    fields = ", ".join(ast.unparse(n) for n in node.body if isinstance(n, ast.AnnAssign))
    is_hidden = node.name in ("Grammar", "Tensor")  # the engine or the SDK makes them
    call = name if is_hidden or not (made or fields) else f"{name}({fields})"
    if made and not is_hidden:
        call = _call(name, made, True)
    how = _text(made) if made and not is_hidden else ""
    yield _line(call, " ".join(filter(None, [_text(node), how])))
    for member in node.body:
        if isinstance(member, ast.ClassDef):
            yield from (f"  {line}" for line in _class_lines(member, f"{name}.{member.name}"))
        elif member in functions and not member.name.startswith("_"):
            is_static = any(ast.unparse(d) == "classmethod" for d in member.decorator_list)
            owner = name if is_static else ""
            yield "  " + _line(_call(f"{owner}.{member.name}", member, True), _text(member))


def _module_lines(module: ModuleType, prefix: str) -> Iterator[str]:
    nodes = _nodes(module)
    for name in module.__all__:
        node = nodes.get(name)
        if isinstance(node, ast.ClassDef):
            yield from _class_lines(node, f"{prefix}.{name}")
        elif node is not None:
            yield _line(_call(f"{prefix}.{name}", node), _text(node))


def _op_lines() -> Iterator[str]:
    nodes = _nodes(ops) | _nodes(composite)
    rules = {op.name: SHAPES[op.rule] for op in TABLE if op.name in ops.__all__} | COMPOSED
    for name in ops.__all__:
        taken = nodes[name].args
        for argument in taken.args:
            argument.annotation = None  # the shapes say it
        yield f"- `{name}({ast.unparse(taken)})`: {rules[name]}. {_text(nodes[name])}"


def _dtype_lines() -> Iterator[str]:
    node = _nodes(dtypes)["dtype"]
    names = [ast.unparse(item.targets[0]) for item in node.body if isinstance(item, ast.Assign)]
    yield f"- {', '.join(f'`dtype.{name}`' for name in names)}: {_text(node)}"


def reference() -> str:
    """Every public name of `inferlet`."""
    parts: list[tuple[str, Iterator[str]]] = [
        (f"`{name}`: {inspect.getdoc(getattr(inferlet, name)).splitlines()[0]}",
         _module_lines(getattr(inferlet, name), name))
        for name in ("model", "chat", "tools", "reasoning", "session")
    ]  # fmt: skip
    parts[2] = (parts[2][0], [*parts[2][1], *_class_lines(_nodes(scan)["Call"], "tools.Call")])
    grammar, mask = _nodes(inferlet.grammar), _module_lines(inferlet.mask, "mask")
    both = [line for name in ("Grammar", "Matcher") for line in _class_lines(grammar[name], name)]
    parts.append(("`Grammar`, `Matcher`, `mask` (and the same names in `grammar`)", [*both, *mask]))
    for name, module in {
        "WorkingSet": working_set, "StateGeometry": forward, "ForwardPass": forward,
        "Pipeline": pipeline, "Channel": channel_module, "Tensor": tensor,
    }.items():  # fmt: skip
        parts.append((f"`{name}`", _class_lines(_nodes(module)[name], name)))
    parts.append(("`dtype`, `intrinsics`", [
        *_dtype_lines(), _line(_call("intrinsics.output", _nodes(intrinsics)["output"]),
                               _text(_nodes(intrinsics)["output"])),
    ]))  # fmt: skip
    parts.append(("Operations (also in `eta`)", _op_lines()))
    failures = [node for node in _nodes(errors).values() if isinstance(node, ast.ClassDef)]
    parts.append(("Errors", [
        _line(f"{node.name}({ast.unparse(node.bases[0])})", _text(node)) for node in failures
    ]))  # fmt: skip
    return "\n".join(f"### {title}\n" + "\n".join(lines) + "\n" for title, lines in parts)


def limits() -> str:
    """The limits of a process, with the engine's defaults."""
    rows = [f"| `{key}` | {getattr(Limits(), key):,} | {LIMITS[key][0]} | {LIMITS[key][1]} |"
            for key in Limits.__struct_fields__]  # fmt: skip
    return "\n".join(["| key | default | unit | counts |", "|---|---|---|---|", *rows]) + "\n"


def with_parts(page: str) -> str:
    """The page with its generated parts made anew."""
    for name, text in (("reference", reference()), ("limits", limits())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + text + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(with_parts(PAGE.read_text()))
