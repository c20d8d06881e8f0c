"""What users test their inferlets with: `run(main, input, model=…)` against the fake engine."""

from inferlet.testing.harness import Client, Hub, byte_vocabulary, run, run_with

__all__ = ["Client", "Hub", "byte_vocabulary", "run", "run_with"]
