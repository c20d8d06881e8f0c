"""Bad input: the right exit code, one clear message, and the engine goes on."""

import pytest

pytestmark = pytest.mark.model

APPS = {
    "syntax error": ("def main(:\n", "SyntaxError", "app.py"),
    "exception": (
        "async def main(input):\n    return helper()\n\ndef helper():\n    raise ValueError('boom')\n",
        "ValueError: boom", "line 5",
    ),
    "no main": ("x = 1\n", "main", "app.py"),
    "returns a set": ("async def main(input):\n    return {1, 2}\n", "set", "JSON"),
    "import error": ("import nothing_like_it\nasync def main(input): ...\n", "nothing_like_it", "app.py"),
    "exits": ("import sys\nasync def main(input):\n    sys.exit(3)\n", "SystemExit", "line 3"),
    "prompt beyond the context": (
        "from inferlet import *\n"
        "async def main(input):\n"
        "    ws, pipe = WorkingSet(), Pipeline()\n"
        "    for _ in range(3):\n"
        "        p = ForwardPass()\n"
        "        p.embed([1] * min(model.max_embed_length(), model.context_length()))\n"
        "        p.state([ws], StateGeometry.folding())\n"
        "        pipe.submit(p)\n",
        "InferletError", "context",
    ),
    "token id out of range": (
        "from inferlet import *\n"
        "async def main(input):\n"
        "    p = ForwardPass()\n"
        "    p.embed([5, model.output_vocab_size()])\n"
        "    p.state([WorkingSet()], StateGeometry.folding())\n"
        "    Pipeline().submit(p)\n",
        "InferletError", "vocabulary",
    ),
    "op outside a stage": (
        "from inferlet import *\nasync def main(input):\n    return softmax(1.0)\n",
        "TraceError", "line 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APPS)
def test_a_fault_of_the_app_exits_1_and_names_itself_and_its_place(pie, app, name):
    source, *words = APPS[name]
    done = pie("run", app(source))
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    assert "inferlet/runtime" not in done.stderr, "the traceback shows the user's own frames only"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--input", "{nope"], "JSON"),
        (["--input", "[1]"], "object"),
        (["--input", "@/no/such/file"], "/no/such/file"),
        (["--file", "doc=/no/such/file"], "/no/such/file"),
        (["--file", "doc"], "NAME=PATH"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--", "--k", "{broken"], "JSON"),
    ],
)
def test_bad_usage_exits_2_before_launch(pie, arguments, word):
    done = pie("run", "inferlets/hello.py", *arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == "" and word in done.stderr
    assert done.stderr.count("error:") == 1


def test_a_missing_app_exits_2(pie):
    done = pie("run", "nope.py")
    assert done.returncode == 2 and "nope.py" in done.stderr


def test_a_device_made_token_out_of_range_fails_its_own_pipeline_only(result, app):
    path = app(
        "from inferlet import *\n"
        "async def main(input):\n"
        "    def start(value):\n"
        "        tok, ws, pipe = Channel([1], dtype.i32), WorkingSet(), Pipeline()\n"
        "        def step():\n"
        "            t = reduce_argmax(intrinsics.output(0, 'logits'))\n"
        "            tok.put(t * 0 + value)\n"
        "            return t\n"
        "        pre, dec = ForwardPass(), ForwardPass()\n"
        "        pre.embed([5, 6]); dec.embed(tok)\n"
        "        for p in (pre, dec): p.state([ws], StateGeometry.folding())\n"
        "        a, b = pre.epilogue(step), dec.epilogue(step)\n"
        "        pipe.submit(pre); pipe.submit(dec)\n"
        "        return a, b\n"
        "    (a, b), (c, d) = start(10**6), start(7)\n"
        "    await a\n"
        "    try:\n"
        "        await b\n"
        "        failed = None\n"
        "    except InferletError as e:\n"
        "        failed = str(e)\n"
        "    return [failed, await c, await d]\n"
    )
    failed, good, better = result(path)
    assert failed and "1000000" in failed
    assert isinstance(good, int) and isinstance(better, int)
