"""A worker without a model: `PIE_WORKER=tests.cli.fake_worker`. Sends back what it is sent.

FAKE_WORKER: `silent` sends nothing back, `slow` never ends to load, `fail` reports LoadFailed, `crash` exits while loading.
"""

import argparse
import os
import sys
import time

from ipc import messages as m
from ipc.codec import PROTOCOL_VERSION
from ipc.transport import ZmqLink
from ipc.types import EngineInfo, ModelInfo


def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("--link", "--model-path", "--model-name"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    behaviour = os.environ.get("FAKE_WORKER", "")
    link = ZmqLink(options.link, bind=False, is_hub=False)
    link.send([m.Loading(0.5, "loading weights")], [])
    if behaviour == "slow":
        time.sleep(600)
    if behaviour == "fail":
        link.send([m.LoadFailed("the weights are damaged", "`pie models add` it again")], [])
        link.close()
        return 1
    if behaviour == "crash":
        print("out of luck", file=sys.stderr, flush=True)
        return 7
    model = ModelInfo(
        name=options.model_name, architecture="fake", path=options.model_path, vocab_size=256,
        output_vocab_size=256, layers=1, width=8, context_length=1024, dtype="float32",
    )  # fmt: skip
    link.send([m.Ready(model, EngineInfo(PROTOCOL_VERSION, 16, 64), {"load": 0.0})], [])
    while True:
        link.wait(None)
        while (message := link.receive()) is not None:
            controls, batches = message
            if batches and behaviour != "silent":
                link.send([], batches)
            if any(isinstance(control, m.Shutdown) for control in controls):
                link.close()
                return 0


if __name__ == "__main__":
    sys.exit(main())
