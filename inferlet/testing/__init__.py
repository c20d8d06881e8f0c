"""What users test their inferlets with: `run(main, input, model=…)` and `draw(make, logits, count)`
against the fake engine. The README beside this file is a recipe."""

from inferlet.testing.harness import Client, Hub, byte_vocabulary, run, run_together, run_with
from inferlet.testing.sampling import draw

__all__ = ["Client", "Hub", "byte_vocabulary", "draw", "run", "run_together", "run_with"]
