"""The engine's log."""

from pie_cli.engine import journal
from pie_cli.engine.journal import Journal


def test_a_line_holds_an_event_whatever_its_values(tmp_path):
    path = tmp_path / "log"
    log = Journal(str(path))
    log.info("event", text='two\nlines "quoted"', number=1.5, nothing=None, odd="\udcff")
    log.error("other", id="p-1")
    first, second = path.read_text().splitlines()
    assert first.endswith('Z info event text="two\\nlines \\"quoted\\"" number=1.500 odd="\\udcff"')
    assert second.endswith("Z error other id=p-1")


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path):
    path = tmp_path / "log"
    Journal(str(path)).info("event", text="a\x1b[2J\r\x00\x85\u202eé b")
    text = path.read_bytes().decode()
    assert text.splitlines()[0].endswith('text="a\\x1b[2J\\r\\x00\\x85\\u202eé b"')


def test_a_full_disk_or_no_folder_stops_nothing(tmp_path):
    Journal("/dev/full").info("event")
    Journal(str(tmp_path / "no" / "folder")).warning("event")


def test_a_log_that_has_become_too_long_keeps_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MAX_SIZE", 3000)
    monkeypatch.setattr(journal, "KEPT_SIZE", 1000)
    monkeypatch.setattr(journal, "LINES_BETWEEN_LOOKS", 10)
    path = tmp_path / "log"
    log = Journal(str(path))
    for number in range(500):
        log.info("event", number=number)
    lines = path.read_text().splitlines()
    assert path.stat().st_size < 4000
    assert lines[-1].endswith("number=499") and all(" info event number=" in x for x in lines)
