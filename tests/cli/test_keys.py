"""Keys for clients on other machines, and the addresses at which an engine listens."""

import errno
import io
import os
import socket
import stat

import pytest

from pie_cli import addresses, config, keys, remote
from pie_cli.__main__ import command
from pie_cli.usage import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PIE_HOME", str(tmp_path / "home"))
    for name in ("PIE_ENGINE", "PIE_KEY", "PIE_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def saved(tmp_path, name="laptop"):
    key, text = keys.new(name)
    path = tmp_path / f"{name}.key"
    keys.save(path, text)
    return key, path


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_file_says_all_that_a_client_needs(tmp_path):
    key, path = saved(tmp_path)
    assert keys.read(path) == key
    assert keys.known() == {key.public: "laptop"}


def test_keys_are_for_this_user_alone(tmp_path, home):
    _, path = saved(tmp_path)
    assert mode(path) == 0o600 and mode(home / "keys") == 0o700
    assert {mode(file) for file in (home / "keys").iterdir()} == {0o600}


def test_the_secret_of_a_client_is_not_kept(tmp_path, home):
    key, _ = saved(tmp_path)
    assert all(key.secret not in file.read_text() for file in (home / "keys").iterdir())


def test_all_keys_are_for_the_same_server(tmp_path):
    first, second = saved(tmp_path)[0], saved(tmp_path, "phone")[0]
    assert first.server == second.server and first.public != second.public
    assert len(keys.server_secret()) == 40


def test_a_name_is_given_once_and_again_after_it_was_taken_back(tmp_path):
    keys.new("laptop")
    with pytest.raises(UsageError, match="there is a key `laptop`"):
        keys.new("laptop")
    keys.remove("laptop")
    keys.new("laptop")
    with pytest.raises(UsageError, match="no key `phone`"):
        keys.remove("phone")


@pytest.mark.parametrize(
    ("name", "text"),
    [("empty", ""), ("words", "hello"), ("half", "z" * 39), ("a\nb", "z" * 40), ("a b", "z" * 40)],
)
def test_a_file_among_the_keys_that_is_none_lets_nobody_in(home, name, text):
    key, _ = keys.new("laptop")
    (home / "keys" / f"{name}.pub").write_text(text)
    assert keys.known() == {key.public: "laptop"}


def test_a_damaged_key_can_be_taken_back(home):
    keys.new("laptop")
    path = home / "keys" / "laptop.pub"
    path.write_text("")
    with pytest.raises(UsageError, match="needs a key"):
        keys.server_secret()
    keys.remove("laptop")
    assert not path.exists()


def test_of_two_names_for_one_key_each_can_be_taken_back(home):
    keys.new("laptop")
    folder = home / "keys"
    (folder / "twin.pub").write_bytes((folder / "laptop.pub").read_bytes())
    keys.remove("laptop")
    keys.remove("twin")
    assert keys.known() == {}


@pytest.mark.parametrize("name", ["../server", "server.key", "a/../laptop", "", "laptop\0"])
def test_what_is_no_keys_name_takes_nothing_back(home, name):
    keys.new("laptop")
    (home / "server.pub").touch()
    with pytest.raises(UsageError, match="no key"):
        keys.remove(name)
    assert (home / "server.pub").exists() and "laptop" in keys.known().values()


def test_whoever_looks_while_a_key_is_made_sees_it_whole_or_not_at_all(home, monkeypatch):
    seen = []

    class Watched(io.TextIOWrapper):
        def write(self, text):
            seen.extend(path.read_text() for path in (home / "keys").glob("*.pub"))
            return super().write(text)

    def watched(file, mode="r", **options):
        if isinstance(file, int) and mode == "w":
            return Watched(io.FileIO(file, "w"), **options)
        return open(file, mode, **options)

    monkeypatch.setattr(keys, "open", watched, raising=False)
    key, _ = keys.new("laptop")
    assert all(len(text.strip()) == 40 for text in seen) and key.public in keys.known()
    assert sorted(path.name for path in (home / "keys").iterdir()) == ["laptop.pub", "server.key"]


def test_a_key_that_a_full_disk_cuts_off_is_none(home, tmp_path, monkeypatch):
    keys.new("phone")
    before = sorted((home / "keys").iterdir())

    class Full(io.TextIOWrapper):
        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        keys,
        "open",
        lambda file, *_, **options: Full(io.FileIO(file, "w"), **options),
        raising=False,
    )
    with pytest.raises(UsageError, match="No space left"):
        keys.new("laptop")
    with pytest.raises(UsageError, match="No space left"):
        keys.save(tmp_path / "x.key", "text")
    assert sorted((home / "keys").iterdir()) == before and not (tmp_path / "x.key").exists()


@pytest.mark.parametrize("name", ['"a\\nb"', "5", '["a"]', '""'])
def test_a_key_file_with_an_odd_name_is_refused(tmp_path, name):
    _, path = saved(tmp_path)
    path.write_text(path.read_text().replace('"laptop"', name))
    with pytest.raises(UsageError, match="is no key"):
        keys.read(path)


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".a", "a b", "a:b", "x" * 65, "a\n"])
def test_a_name_is_no_path(name):
    with pytest.raises(UsageError, match="cannot be a key's name"):
        keys.new(name)


def test_without_a_key_nothing_listens():
    with pytest.raises(UsageError, match="needs a key") as caught:
        keys.server_secret()
    assert "pie key new" in caught.value.hint


def test_a_key_that_others_can_read_is_refused(tmp_path):
    _, path = saved(tmp_path)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others can read"):
        keys.read(path)


@pytest.mark.parametrize("text", ["", "x", "name = 1", "\xff", 'name = "a"\nserver = "b"'])
def test_a_file_that_is_no_key_is_refused(tmp_path, text):
    path = tmp_path / "x.key"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(UsageError, match="is no key"):
        keys.read(path)


def test_a_damaged_pair_of_the_server_is_said_so(home):
    keys.new("laptop")
    (home / "keys" / "server.key").write_text("public = 1")
    with pytest.raises(UsageError, match="is no pair of keys"):
        keys.server_secret()


def test_a_zeromq_without_encryption_is_said_so(monkeypatch):
    monkeypatch.setattr("ipc.transport.has_keys", lambda: False)
    with pytest.raises(UsageError, match="without CURVE"):
        keys.new("laptop")


# ---- addresses


@pytest.mark.parametrize(
    ("text", "host"), [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("*", "0.0.0.0")]
)
def test_an_engine_listens_where_it_is_told_to(text, host):
    listener = addresses.listen(f"tcp://{text}:0")
    with socket.socket(fileno=listener.descriptor) as listening:
        assert listener.address == f"tcp://{host}:{listening.getsockname()[1]}"
        assert listener.is_open == (text == "*")
        assert not os.get_inheritable(listener.descriptor)


@pytest.mark.parametrize(
    "text",
    ["", "7410", "127.0.0.1:7410", "tcp://127.0.0.1", "tcp://example.org:1", "tcp://:1", "ipc://x",
     "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1", "tcp://*:*", "tcp://eth0:7410"],
)  # fmt: skip
def test_no_name_is_looked_up_to_listen(text):
    with pytest.raises(UsageError, match="no address to listen at"):
        addresses.listen(text)


def test_the_address_of_an_engine_is_a_setting_and_a_flag(monkeypatch, tmp_path):
    _, path = saved(tmp_path)
    assert remote.chosen() is None
    monkeypatch.setenv("PIE_ENGINE", "tcp://there:7410")
    with pytest.raises(UsageError, match="the engine at tcp://there:7410 needs a key"):
        remote.chosen()
    monkeypatch.setenv("PIE_KEY", str(path))
    assert remote.chosen().address == "tcp://there:7410"
    assert remote.chosen(address="tcp://[::1]:1").address == "tcp://[::1]:1"
    assert remote.chosen(address="local") is None
    monkeypatch.setitem(config.FLAGS, "engine.address", "local")
    assert remote.chosen() is None


def found(*hosts):
    """What a name comes to: loopback addresses, and a port at which only the last one listens."""
    listening = socket.create_server((hosts[-1], 0))
    port = listening.getsockname()[1]
    families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host in hosts]
    places = [(host, port, 0, 0) if ":" in host else (host, port) for host in hosts]
    rows = [(f, socket.SOCK_STREAM, 6, "", p) for f, p in zip(families, places, strict=True)]
    return listening, port, rows


@pytest.mark.parametrize(
    "hosts", [("127.0.0.1",), ("::1", "127.0.0.1"), ("127.0.0.2", "127.0.0.1")]
)
def test_of_a_hosts_addresses_one_that_answers_is_taken(monkeypatch, hosts):
    listening, port, rows = found(*hosts)
    with listening:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
        assert addresses.resolved(f"tcp://localhost:{port}") == f"tcp://127.0.0.1:{port}"


def test_where_none_answers_the_first_address_is_named(monkeypatch):
    listening, port, rows = found("127.0.0.2", "127.0.0.1")
    listening.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    assert addresses.resolved(f"tcp://there:{port}") == f"tcp://127.0.0.2:{port}"


@pytest.mark.parametrize(
    ("fate", "hint"),
    [
        ("taken back", "it is a key that was taken back: `rm laptop.key`, or `-o FILE` names another"),
        ("good", "it is the key `laptop`, which may connect; `-o FILE` names another"),
        ("elsewhere's", "it is a key for another machine's engine; `-o FILE` names another"),
        ("no key", "`-o FILE` names another"),
    ],
)  # fmt: skip
def test_a_key_file_in_the_way_is_told_by_what_it_is(tmp_path, monkeypatch, capsys, fate, hint):
    monkeypatch.chdir(tmp_path)
    assert command(["key", "new", "laptop"]) == 0
    if fate == "taken back":
        assert command(["key", "remove", "laptop"]) == 0
        assert "its file opens nothing any more" in capsys.readouterr().err
    elif fate == "elsewhere's":
        monkeypatch.setenv("PIE_HOME", str(tmp_path / "elsewhere"))
    elif fate == "no key":
        (tmp_path / "laptop.key").write_text("mine")
    before = (tmp_path / "laptop.key").read_text()
    assert command(["key", "new", "laptop"]) == 2
    assert f"error: `laptop.key` exists\n\nhint: {hint}\n" in capsys.readouterr().err
    assert (tmp_path / "laptop.key").read_text() == before
