"""The worker with the tiny model, whatever the store has: `PIE_WORKER=tests.end_to_end.tiny_worker`."""

import sys

from worker.__main__ import main
from worker.model import TINY

if __name__ == "__main__":
    sys.argv[sys.argv.index("--model-path") + 1] = TINY
    sys.argv += ["--kv-bytes", str(64 << 20)]
    sys.exit(main())
