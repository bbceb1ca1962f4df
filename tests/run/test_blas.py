"""Linear algebra on the host by one thread, while a run learns."""

import pytest

from replicax.run import blas


def threads():
    return [count() for count, _ in blas._openblas()]


@pytest.fixture
def two():
    before = threads()
    if not before:
        pytest.skip("no OpenBLAS")
    for _, choose in blas._openblas():
        choose(2)
    yield
    for (_, choose), number in zip(blas._openblas(), before):
        choose(number)


@pytest.mark.usefixtures("two")
def test_inside_there_is_one_thread_and_afterwards_as_many_as_before() -> None:
    many = threads()
    with pytest.raises(KeyError), blas.one_thread():
        assert set(threads()) == {1}
        raise KeyError
    assert threads() == many and 2 in many
