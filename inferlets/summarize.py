"""Summarises an attached document, in the model's own words.

    pie run inferlets/summarize.py --file doc=README.md -- --max-tokens 120
"""

from inferlet import *

QUESTION = "Summarize the following document in a few sentences.\n\n"


async def main(input: dict) -> dict:
    document = session.file("doc").decode("utf-8", errors="replace")
    limit = input.get("max_tokens", 120)
    state, pipe, stops = WorkingSet(), Pipeline(), set(chat.stop_tokens())
    token, text = Channel([1], dtype.i32), chat.Decoder()

    def choose():
        best = reduce_argmax(intrinsics.output(0, "logits"))
        token.put(best)
        return best

    def build(tokens):
        forward = ForwardPass()
        forward.embed(tokens)
        forward.state([state], StateGeometry.folding())
        return forward, forward.epilogue(choose)

    def on_token(t):
        match text.feed([t]):
            case chat.Event.Delta(piece):
                session.send(piece)
                pieces.append(piece)
        return t not in stops

    prompt, kept = fit(document, input.get("context", 2048) - limit)
    (prefill, first), (decode, _), pieces = build(prompt), build(token), []
    pipe.submit(prefill)
    if on_token(await first):
        await pipe.run_ahead(decode, limit - 1, on_token)
    session.send("\n")
    return {"summary": "".join(pieces), "document_tokens": kept}


def fit(document: str, room: int) -> tuple[list[int], int]:
    """The prompt, its document cut so that the whole fits in `room` tokens, and the tokens kept."""
    tokens = model.encode(document)
    frame = len(chat.first_user(QUESTION) + chat.cue())
    kept = tokens[: max(0, room - frame)]
    return chat.first_user(QUESTION + model.decode(kept)) + chat.cue(), len(kept)
