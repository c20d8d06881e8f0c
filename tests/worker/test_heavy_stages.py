"""Stages that cost much: counted in waves and steps, never in seconds."""

from dataclasses import replace

from ipc import messages as m
from tests.worker.bench import CONFIG, Bench, Chat, Client, greedy_tokens, logits, program
from tests.worker.test_fairness import Waves

# A sum over 4,000 elements costs about 56,000 steps, a choice of a token 40,000.
LIGHT = replace(CONFIG, light_steps=50_000, heavy_steps=120_000, process_steps=230_000)
PROMPT = [3, 1, 4, 1, 5]


def heavy(b):
    x = b.add("broadcast", (b.add("reduce_max", (logits(b),)),), {"shape": (4000,)})
    return [b.add("reduce_sum", (b.add("mul", (x, x)),))]


def submit_heavy(client: Client, count: int) -> None:
    stage = client.stage(program(heavy))
    for _ in range(count):
        pass_id = client.define_pass([1, 2], [client.working_set()], epilogue=stage)
        client.submit(client.pipeline(), pass_id)


def test_light_lanes_have_waves_to_themselves_between_those_of_heavy_stages():
    bench = Bench(1024, config=LIGHT)
    waves, victim, attacker = Waves(bench), Chat(bench.client(), PROMPT), bench.client()
    victim.start()
    bench.settle()
    victim.run(30, credits=6)
    submit_heavy(attacker, 20)
    while len(victim.tokens) < 31 or len(attacker.fired()) < 20:
        assert bench.step()
        victim.client.say(m.Credit(victim.pipeline, 1))
    assert victim.tokens == greedy_tokens(PROMPT, 31)
    own, others = waves.of(victim.client), waves.of(attacker)
    both = [rows for rows, other in zip(own, others) if other]
    assert max(others) <= 2 * 2, "two fires of two rows are within heavy_steps"
    while_decoding = others[1:31]
    assert 0 in while_decoding and not any(a and b for a, b in zip(while_decoding, others[2:31]))
    assert both[:5] == [1] * 5, "heavy stages keep nobody out"


def test_heavy_stages_do_not_rest_when_nobody_else_is_ready():
    bench = Bench(1024, config=LIGHT)
    client = bench.client()
    submit_heavy(client, 10)
    assert bench.settle() <= 10
    assert len(client.fired()) == 10


def test_many_light_fires_of_one_process_are_spread_over_waves():
    bench = Bench(1024, config=replace(LIGHT, light_steps=100_000))
    waves, attacker, victim = Waves(bench), bench.client(), Chat(bench.client(), PROMPT)
    submit_heavy(attacker, 20)
    victim.start()
    bench.settle()
    rows = waves.of(attacker)
    assert sum(rows) == 40 and max(rows) <= 2 * 4
    assert waves.of(victim.client)[0] == len(PROMPT)
    assert len(attacker.fired()) == 20 and len(victim.tokens) == 1


def test_nothing_of_an_ended_process_runs_any_more():
    bench = Bench(1024, config=LIGHT)
    attacker, victim = bench.client(), Chat(bench.client(), PROMPT)
    submit_heavy(attacker, 20)
    victim.start()
    bench.step()
    waves, done = Waves(bench), len(attacker.fired())
    assert done < 20
    bench.hub.send([m.ProcessEnded(attacker.number)], [])
    victim.run(3)
    bench.settle()
    assert sum(waves.of(attacker)) == 0 and len(attacker.fired()) == done
    assert victim.tokens == greedy_tokens(PROMPT, 4)
