"""What a stage costs is known from its shapes, and bounded."""

import pytest

from ipc.eta import work
from ipc.eta.check import CheckError, check
from ipc.eta.text import parse
from ipc.types import DType, TensorType

TOO_MUCH = {
    "products": "%0 = constant dtype=f32 shape=[1,1]\n%1 = broadcast %0 shape=[8000,8000]\n"
    "%2 = matmul %1 %1\nreturn %2",
    "a sort": "%0 = constant dtype=u32 shape=[2]\n%1 = gumbel %0 shape=[33554432]\n"
    "%2 = top_k_indices %1 k=33554432\nreturn %2",
    "sums in order": "%0 = iota n=67108864\n%1 = scatter_add %0 %0 %0\nreturn %1",
    "draws": "%0 = constant dtype=u32 shape=[2]\n%1 = normal %0 shape=[134217728]\nreturn %1",
}

ORDINARY = {
    "a head": "%0 = constant dtype=f32 shape=[1,1]\n%1 = broadcast %0 shape=[32,576]\n"
    "%2 = broadcast %0 shape=[576,49152]\n%3 = matmul %1 %2\nreturn %3",
    "a wide layer": "%0 = constant dtype=f32 shape=[1,1]\n%1 = broadcast %0 shape=[32,4096]\n"
    "%2 = broadcast %0 shape=[4096,4096]\n%3 = matmul %1 %2\nreturn %3",
    "a nucleus of 512 rows": "%0 = constant dtype=f32 shape=[1,1]\n"
    "%1 = broadcast %0 shape=[512,49152]\n%2 = constant dtype=f32 shape=[]\n"
    "%3 = constant dtype=u32 shape=[2]\n%4 = nucleus_sample %1 %2 %3\nreturn %4",
    "128 rows ranked whole": "%0 = constant dtype=f32 shape=[1,1]\n"
    "%1 = broadcast %0 shape=[128,49152]\n%2 = top_k_indices %1 k=49152\nreturn %2",
    "a vocabulary of 262,144 counted": "%0 = iota n=262144\n%1 = scatter_add %0 %0 %0\nreturn %1",
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_an_operation_that_would_take_seconds_is_refused(name):
    with pytest.raises(CheckError, match="costs .* the most for a stage is"):
        check(parse(TOO_MUCH[name]), [], {})


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_work_passes(name):
    check(parse(ORDINARY[name]), [], {})


def test_the_operations_of_a_stage_are_bounded_together():
    lines = ["%0 = constant dtype=f32 shape=[1,1]", "%1 = broadcast %0 shape=[1800,1800]"]
    lines += [f"%{i} = matmul %{i - 1} %{i - 1}" for i in range(2, 12)]
    with pytest.raises(CheckError, match="with this `matmul` the stage costs") as error:
        check(parse("\n".join([*lines, "return %11"])), [], {})
    assert 2 < error.value.node < 11


def test_products_are_counted_as_multiply_adds():
    matrix = TensorType(DType.f32, (2, 3)), TensorType(DType.f32, (3, 5))
    assert work.products(matrix, TensorType(DType.f32, (2, 5))) == 2 * 3 * 5
    w, e = TensorType(DType.f32, (5, 3)), TensorType(DType.f32, (2, 3))
    assert work.products((w, e), TensorType(DType.f32, (2, 5))) == 2 * 3 * 5


def test_the_channels_of_a_stage_cost_work_too(monkeypatch):
    monkeypatch.setattr(work, "MAX_SLOTS", 2)
    cell = TensorType(DType.i32, (1,))
    lines = [f"%{i} = front slot={i}\nread {i}" for i in range(3)]
    program = parse("\n".join([*lines, "return %0 %1 %2"]))
    with pytest.raises(CheckError, match="uses 3 channels; the most is 2"):
        check(program, [cell] * 3, {})
    monkeypatch.undo()
    types = check(program, [cell] * 3, {})
    assert work.of_program(program, types) >= 3 * work.STEPS_PER_SLOT
