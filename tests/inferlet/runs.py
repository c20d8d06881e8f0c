"""What the tests of run_ahead have in common."""

from tests.inferlet.support import appending, greedy


def decoding(ws, tok, *channels):
    """A decode loop: embeds the last token, puts the next."""

    def step():
        return greedy(tok, *channels)()

    return appending(ws, tok, step)


def history(hub, number=0):
    return hub.worker.sets_ever[number]
