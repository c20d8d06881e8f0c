"""What `from inferlet import *` gives, and what importing it costs."""

import subprocess
import sys

import inferlet
import inferlet.eta

CLASSES = {"WorkingSet", "StateGeometry", "ForwardPass", "Pipeline", "Channel", "Tensor"}
CLASSES |= {"Grammar", "Matcher"}
MODULES = {"model", "chat", "tools", "reasoning", "session", "grammar", "mask", "eta"}
NAMESPACES = {"dtype", "intrinsics"}
ERRORS = {"InferletError", "TraceError", "ChannelFull", "OutOfMemory", "PipelineClosed"}
ERRORS |= {"GrammarError"}


def test_the_public_names_are_these_and_the_operations():
    operations = set(inferlet.eta.__all__) - {"Channel", "Tensor", "dtype", "intrinsics"}
    assert set(inferlet.__all__) == CLASSES | MODULES | NAMESPACES | ERRORS | operations
    assert len(inferlet.__all__) == len(set(inferlet.__all__))


def test_every_public_name_exists():
    modules = (inferlet, inferlet.eta, inferlet.chat, inferlet.model, inferlet.session)
    for module in (*modules, inferlet.tools, inferlet.reasoning):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_eta_exports_its_part_of_the_surface():
    assert {"Channel", "Tensor", "dtype", "intrinsics"} <= set(inferlet.eta.__all__)


def test_errors_are_below_inferlet_error():
    for name in ERRORS:
        assert issubclass(getattr(inferlet, name), inferlet.InferletError)
    assert issubclass(inferlet.InferletError, RuntimeError)


def test_import_needs_neither_torch_nor_vllm_nor_transformers():
    code = (
        "import sys\n"
        "for name in ('torch', 'vllm', 'transformers'): sys.modules[name] = None\n"
        "import inferlet, inferlet.testing, inferlet.runtime.launch\n"
        "assert not {'worker', 'pie_cli', 'zmq'} & {m.partition('.')[0] for m in sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
