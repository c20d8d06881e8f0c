"""vLLM's own engine as the yardstick of benchmarks. `pie bench --against vllm` runs this file:

    python -m worker.model.vllm_yardstick MODEL_FOLDER --lanes 32 --tokens 128

One JSON line of prompts in, one of tokens out; the first line out says that it is loaded.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable

#: prompts, number of new tokens -> new tokens of each prompt
Generate = Callable[[list[list[int]], int], list[list[int]]]


def load(model_path: str, max_lanes: int, max_tokens: int, **changes: object) -> Generate:
    """vLLM's engine in this process, all cores, eager: compiling takes it minutes. `changes` to its
    settings."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    from vllm import LLM, SamplingParams

    settings = {
        "dtype": "float32",
        "max_model_len": max(512, max_tokens),
        "max_num_seqs": max_lanes,
        "max_num_batched_tokens": max(2048, max_lanes * max_tokens),
        "kv_cache_memory_bytes": 1 << 30,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "disable_log_stats": True,
    }
    engine = LLM(model_path, **{**settings, **changes})

    def generate(prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        params = SamplingParams(
            temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False
        )
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = engine.generate(inputs, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    return generate


def main() -> None:
    parser = argparse.ArgumentParser(description="vLLM behind JSON lines.")
    parser.add_argument("model")
    parser.add_argument("--lanes", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="of a lane, prompt included")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    generate = load(options.model, options.lanes, options.tokens, dtype=options.dtype)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        tokens = generate(request["prompts"], request["new"])
        print(json.dumps(tokens), file=answers, flush=True)


if __name__ == "__main__":
    main()
