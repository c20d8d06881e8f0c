"""`pie inspect --dot`: the graph has what the text says of each pass."""

DECODER = """
from inferlet import *

async def main(input):
    state, pipe, token = WorkingSet(), Pipeline(), Channel.from_([1], dtype.i32)

    def choose():
        token.put(reduce_argmax(intrinsics.output(0, "logits")))

    forward = ForwardPass()
    forward.embed(token)
    forward.state([state], StateGeometry.folding())
    forward.epilogue(choose)
    pipe.submit(forward)
"""


def test_an_edge_leads_from_a_channel_to_the_pass_whose_tokens_it_feeds(engine):
    app = engine.write(DECODER, "decoder.py")
    text = engine.pie("inspect", app).stdout
    assert "tokens from channel 0" in text
    graph = engine.pie("inspect", app, "--dot").stdout
    assert '  c0 -> p0 [label="tokens"];' in graph
    assert "  p0 -> p0e_0;" in graph and "-> c0;" in graph, "and from its output back to it"


def test_an_app_without_main_is_not_said_to_submit_nothing(engine):
    done = engine.pie("inspect", engine.write("value = 1", "no_main.py"))
    assert done.returncode == 1 and "`main`" in done.stderr
    assert done.stdout.strip() == ""
