"""Import rules of the architecture: parsed from every file, and proven once at run time."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"ipc", "inferlet", "worker", "pie_cli", "inferlets"}
STDLIB = set(sys.stdlib_module_names)

# folder -> (our packages it may import, third-party packages it may import; None = any)
MAY_IMPORT: dict[str, tuple[set[str], set[str] | None]] = {
    "ipc": ({"ipc"}, {"msgspec"}),
    "inferlet": ({"inferlet", "ipc"}, {"numpy", "tokenizers", "jinja2", "llguidance", "msgspec"}),
    "worker": ({"worker", "ipc"}, None),
    "pie_cli": ({"pie_cli", "ipc"}, None),
    "inferlets": ({"inferlet"}, {"numpy"}),
}
NEVER: dict[str, set[str]] = {
    "worker": {"typer", "rich"},
    "pie_cli": {"torch", "vllm", "transformers", "worker"},
}
NO_TORCH = {
    "scheduler.py", "pages.py", "working_set.py", "state.py", "commands.py", "channel_commands.py",
    "heads.py", "beginning.py", "settle.py", "holding.py",
}  # fmt: skip


def _imports(path: Path) -> set[str]:
    """Top-level names of every absolute import in the file, lazy ones included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; ours are absolute"
            found.add(node.module or "")
    return found


def _files(folder: str) -> list[Path]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"no Python file in {folder}"
    return files


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_what_the_table_allows(folder: str):
    ours, others = MAY_IMPORT[folder]
    for path in _files(folder):
        for name in _imports(path):
            top = name.partition(".")[0]
            where = f"{path.relative_to(ROOT)} imports {name}"
            assert top not in NEVER.get(folder, ()), where
            if top in OURS:
                assert top in ours or _is_zygote(path, top), where
            elif top not in STDLIB and others is not None:
                assert top in others or _is_transport(path, top), where


def _is_zygote(path: Path, top: str) -> bool:
    return top == "inferlet" and path.name == "zygote.py"


def _is_transport(path: Path, top: str) -> bool:
    return top == "zmq" and path == ROOT / "ipc/transport.py"


def test_scheduling_imports_no_torch():
    for name in NO_TORCH:
        assert not {"torch", "numpy"} & {i.partition(".")[0] for i in _imports(ROOT / "worker" / name)}


def test_vllm_is_known_to_the_model_folder_alone():
    for path in _files("worker"):
        if "model" not in path.relative_to(ROOT).parts:
            assert "vllm" not in {i.partition(".")[0] for i in _imports(path)}, path


def test_the_sdk_loads_without_torch_vllm_and_transformers():
    code = """
import sys, pkgutil, importlib
for name in ("torch", "vllm", "transformers", "zmq", "worker", "pie_cli"):
    sys.modules[name] = None
import inferlet
for module in pkgutil.walk_packages(inferlet.__path__, "inferlet."):
    importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env={"PYTHONPATH": str(ROOT)})
