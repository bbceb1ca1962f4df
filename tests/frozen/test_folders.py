"""Folders of format 5, written by version 0.2.0, are read and resumed."""

import numpy as np
import pytest

import replicax as rx
from frozen import folders


@pytest.mark.parametrize("name", folders.FOLDERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_folder_of_version_02_is_read_and_resumed(name, tmp_path):
    stored, folder = folders.FOLDERS[name], folders.unpack(name, tmp_path)
    steps, expected = read(name, folder)
    resumed = rx.resume(folder, stored.target(), progress=False, **stored.again)
    if name == "hmc":  # on another machine its paths part some time after the stop
        steps = steps + 16
        np.testing.assert_array_equal(resumed.rung_of[:, :steps], expected["rung_of"][:, :steps])
    else:
        assert_same(folders.contents(resumed), expected)


@pytest.mark.parametrize("name", folders.GONE)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_folder_with_an_option_that_is_gone_is_read_but_not_resumed(name, tmp_path):
    (option, target), folder = folders.GONE[name], folders.unpack(name, tmp_path)
    read(name, folder)
    assert rx.load(folder).summary()
    with pytest.raises(ValueError, match=f"started with {option}, which is gone since version 0.3"):
        rx.resume(folder, target(), progress=False)
    read(name, folder)


def read(name, folder):
    """Check that a stored folder holds the first steps of its run; return their number and what
    the whole run holds."""
    expected = {
        key.removeprefix(f"{name}/"): value
        for key, value in np.load(folders.HERE / "folders.npz").items()
        if key.startswith(f"{name}/")
    }
    loaded = folders.contents(rx.load(folder))
    steps = loaded["rung_of"].shape[1]
    assert 0 < steps < expected["rung_of"].shape[1]
    np.testing.assert_array_equal(loaded["rung_of"], expected["rung_of"][:, :steps])
    return steps, expected


def assert_same(seen, expected):
    """Index paths are equal on every machine; floats differ in their last digits."""
    assert set(seen) == set(expected)
    for key, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(seen[key], value, rtol=2e-4, atol=2e-5, err_msg=key)
        else:
            np.testing.assert_array_equal(seen[key], value, err_msg=key)
