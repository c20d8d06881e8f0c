"""Ids of processes among several engines."""

from pie_cli.engine.ids import Ids


def make(folder) -> Ids:
    return Ids(str(folder / "last"), str(folder / "names"))


def test_numbers_rise_over_engines_and_restarts(tmp_path):
    one, two = make(tmp_path), make(tmp_path)
    assert [one.next_number(), two.next_number(), one.next_number()] == [1, 2, 3]
    assert make(tmp_path).next_number() == 4


def test_a_damaged_or_missing_counter_costs_uniqueness_not_launches(tmp_path):
    ids = make(tmp_path)
    assert ids.next_number() == 1
    (tmp_path / "last").write_text("what")
    assert ids.next_number() == 2
    nowhere = Ids("/nowhere/last", "/proc/names")
    assert [nowhere.next_number(), nowhere.next_number()] == [1, 2]
    assert nowhere.take("a") and nowhere.take("a")


def test_a_name_is_taken_by_one_engine_until_it_is_released(tmp_path):
    one, two = make(tmp_path), make(tmp_path)
    assert one.take("chat") and not two.take("chat")
    one.release("chat")
    one.release("never taken")
    assert two.take("chat") and not one.take("chat")
    assert [path.name for path in (tmp_path / "names").iterdir()] == ["chat"]
