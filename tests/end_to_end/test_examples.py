"""The example programs of the contract, as they stand, show what their headings say."""

import json
import subprocess
import sys

import pytest

from tests.end_to_end.conftest import PROGRAMS, ROOT, environment

pytestmark = pytest.mark.model
FRANCE = {"prompt": "The capital of France is", "max_tokens": 12}
STORY = {"prompt": "Once upon a time there was a fox who", "max_tokens": 24}


@pytest.fixture(scope="session")
def reference(model_path):
    """Greedy continuation by transformers in float32: `reference(prompt, n)`, token ids."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)

    def generate(prompt: str | list[int], n: int) -> list[int]:
        ids = tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt
        out = model.generate(
            torch.tensor([ids]), max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=2
        )
        return out[0, len(ids) :].tolist()

    generate.tokenizer = tokenizer
    return generate


def test_greedy_tokens_equal_transformers_and_frozen_counts_the_embedded_rows(result, reference):
    for value in (FRANCE, STORY):
        got = result(PROGRAMS / "greedy.py", value)
        prompt = reference.tokenizer(value["prompt"])["input_ids"]
        assert got["frozen"] == len(prompt) + value["max_tokens"] - 1
        want = reference.tokenizer.decode(got["tokens"])
        assert got["text"] == want
        assert stop_at_end(got["tokens"]) == stop_at_end(reference(value["prompt"], value["max_tokens"]))


def stop_at_end(tokens: list[int], stop: int = 2) -> list[int]:
    """transformers forbids the stop token with `min_new_tokens`: compare up to it."""
    return tokens[: tokens.index(stop)] if stop in tokens else tokens


def test_completion_tokens_equal_transformers(pie, reference):
    done = pie("run", "inferlets/completion.py", "--input", json.dumps({**FRANCE, "max_tokens": 8}))
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)["tokens"]
    assert stop_at_end(tokens) == stop_at_end(reference(FRANCE["prompt"], 8))[: len(tokens)]


def test_streaming_chat_arrives_in_pieces_and_continues_the_same_state(pie, reference):
    value = {"system": "You answer briefly.", "user": "Name a colour.", "max_tokens": 24}
    done = pie(
        "run", PROGRAMS / "stream_chat.py", "--events", "--input", json.dumps(value),
        stdin="Another one?\nbye\n",
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    pieces = [e["message"] for e in events if e["event"] == "message"]
    assert len(pieces) > 4
    returned = events[-1]
    assert returned["event"] == "return" and returned["value"]["turns"] == 2
    assert returned["value"]["frozen"] == frozen_by_replay(reference.tokenizer, value, pieces)


def frozen_by_replay(tokenizer, value: dict, pieces: list[str]) -> int:
    """Rows of the template's rendering up to the last reply's body: its stop is not embedded."""
    text = "".join(pieces)
    bodies = [len(tokenizer(text, add_special_tokens=False)["input_ids"])]
    history = [
        {"role": "system", "content": value["system"]}, {"role": "user", "content": value["user"]},
    ]  # fmt: skip
    opening = tokenizer.apply_chat_template(history, add_generation_prompt=True, return_dict=True)
    later = "<|im_end|>\n<|im_start|>user\nAnother one?<|im_end|>\n<|im_start|>assistant\n"
    later_ids = tokenizer(later, add_special_tokens=False)["input_ids"]
    return len(opening["input_ids"]) + len(later_ids) + sum(bodies)


def test_equal_seeds_give_equal_text_and_other_seeds_other_text(result):
    first = result(PROGRAMS / "top_p.py", {**STORY, "seed": 3})
    assert result(PROGRAMS / "top_p.py", {**STORY, "seed": 3}) == first
    assert result(PROGRAMS / "top_p.py", {**STORY, "seed": 4}) != first


def test_top_p_of_zero_is_greedy(result):
    sampled = result(PROGRAMS / "top_p.py", {**STORY, "top_p": 0, "temperature": 1})
    assert sampled["tokens"] == result(PROGRAMS / "greedy.py", STORY)["tokens"]


def test_best_of_n_computes_the_prompt_once_and_scores_the_best(result, reference):
    value = {"prompt": "Tell me a joke.", "max_tokens": 16, "n": 4}
    got = result(PROGRAMS / "best_of.py", value)
    chat = [{"role": "user", "content": value["prompt"]}]
    ids = reference.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
    assert got["prompt_tokens"] == len(ids["input_ids"]) - 1
    alone = [result(PROGRAMS / "best_of.py", {**value, "n": 1, "seed": i}) for i in range(4)]
    best = max(alone, key=lambda r: r["score"])
    assert got["text"] == best["text"]
    assert got["score"] == pytest.approx(best["score"], abs=1e-3)


def test_equal_seeds_in_all_branches_give_equal_branches(result, app):
    source = (PROGRAMS / "best_of.py").read_text()
    same = source.replace('input.get("seed", 0) + i', 'input.get("seed", 0)').replace(
        "score, ids = max(await", "branches = list(await"
    )
    start = same.index("    return {\"score\"")
    path = app(same[:start] + "    return [ids for _, ids in branches]\n")
    branches = result(path, {"prompt": "Tell me a joke.", "max_tokens": 12, "n": 3})
    assert branches[0] == branches[1] == branches[2] and len(branches[0]) > 3


def test_a_beam_of_width_one_is_greedy_and_a_wider_one_scores_as_well(result):
    one = result(PROGRAMS / "beam.py", {**FRANCE, "width": 1})
    assert one["text"] == result(PROGRAMS / "greedy.py", FRANCE)["text"]
    assert result(PROGRAMS / "beam.py", {**FRANCE, "width": 3})["score"] >= one["score"]


def test_speculative_tokens_are_greedy_ones_in_fewer_fires(result):
    value = {"prompt": "one two three one two three one two three one two", "max_tokens": 24}
    got = result(PROGRAMS / "speculative.py", value)
    assert got["tokens"] == result(PROGRAMS / "greedy.py", value)["tokens"]
    assert got["fires"] < 20


def test_guidance_of_equal_prompts_is_greedy(result):
    expected = result(PROGRAMS / "greedy.py", STORY)["tokens"]
    for scale, negative in ((1.5, STORY["prompt"]), (1, "Once")):
        value = {**STORY, "negative": negative, "scale": scale}
        assert result(PROGRAMS / "guidance.py", value)["tokens"] == expected


def test_a_window_of_the_total_length_is_greedy_and_a_narrow_one_is_not(result):
    expected = result(PROGRAMS / "greedy.py", STORY)["tokens"]
    assert result(PROGRAMS / "sliding_window.py", {**STORY, "window": 64})["tokens"] == expected
    assert result(PROGRAMS / "sliding_window.py", {**STORY, "window": 3})["tokens"] != expected


def test_constrained_text_satisfies_the_schema(result):
    schema = {
        "type": "object", "required": ["city", "visited", "rating"],
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "visited": {"type": "boolean"},
            "rating": {"enum": [1, 2, 3]},
        },
    }  # fmt: skip
    value = {"question": "Where is the Eiffel Tower?", "schema": schema}
    got = result(PROGRAMS / "constrained.py", value)["value"]
    assert list(got) == ["city", "visited", "rating"] and len(got["city"]) <= 12
    assert isinstance(got["visited"], bool) and got["rating"] in (1, 2, 3)


def test_an_agent_whose_model_may_call_ends_with_an_answer(result):
    got = result(PROGRAMS / "tool_agent.py", {"question": "Say hello."})
    assert 0 <= got["calls"] <= 8 and got["answer"].strip()


def test_a_forced_call_is_found_answered_and_in_the_history_of_the_reply(result):
    got = result(PROGRAMS / "tool_agent_forced.py", {"question": "What is 2 plus 3?"})
    assert got["said"].startswith('<tool_call>\n{"name": "add", "arguments": {')
    assert got["calls"] and got["answer"].strip()
    for (name, arguments), total in zip(got["calls"], got["sums"], strict=True):
        values = json.loads(arguments)
        assert name == "add" and set(values) == {"a", "b"} and sum(values.values()) == total


def test_two_processes_talk_by_send_to_and_both_logs_alternate(home, pie):
    first = subprocess.Popen(
        [sys.executable, "-m", "pie_cli", "run", str(PROGRAMS / "talking.py"), "--no-stdin"],
        env=environment(home), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said = next(line for line in first.stderr if line.startswith("{"))  # the engine may start first
    peer = json.loads(said)["id"]
    value = {"peer": peer, "topic": "Is rain good?"}
    second = pie("run", PROGRAMS / "talking.py", "--no-stdin", "--input", json.dumps(value))
    assert second.returncode == 0, second.stderr
    out, err = first.communicate(timeout=800)
    assert first.returncode == 0, err
    logs = json.loads(out)["log"], json.loads(second.stdout)["log"]
    assert [len(log) for log in logs] == [2, 2] and all(map(str.strip, logs[0] + logs[1]))
