"""The two inferlets of README.md that talk to each other do as it says."""

import re

from tests.cli.conftest import ROOT, SECONDS, wait_until

README = (ROOT / "README.md").read_text()


def test_the_pair_of_the_readme_runs_as_it_stands(own_engine):
    apps = {
        name: own_engine.write(text, name)
        for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", README, re.S)
    }
    first, second = re.findall(r"(?m)^pie run (.*(?:listener|caller)\.py.*?)  +# ", README)
    listener = own_engine.start("run", *(apps.get(word, word) for word in first.split()))
    wait_until(lambda: any(row["state"] == "running" for row in own_engine.processes()))
    called = own_engine.pie("run", *(apps.get(word, word) for word in second.split()))
    assert (called.returncode, called.stdout) == (0, "null\n"), called.stderr
    out, _ = listener.communicate(timeout=SECONDS)
    assert (listener.returncode, out) == (0, re.search(r'then prints (".*")', README)[1] + "\n")
