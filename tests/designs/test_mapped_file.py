"""A mapped file read by plain reads is the array that np.memmap sees."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.designs.dense import MappedFile, MemoryMappedDesign
from flowbias.problems.regression import InputError

N, D, OFFSET = 5, 12, 24


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mapped")
    values = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    made = {}
    for order in "CF":
        path = folder / order
        path.write_bytes(b"\xff" * OFFSET + values.tobytes(order))
        made[order] = np.memmap(path, np.float32, "r", OFFSET, (N, D), order)
    return made


bounds = st.none() | st.integers(-D - 2, D + 2)
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1]))
indices = st.one_of(
    slices, st.tuples(slices), st.tuples(slices, slices), st.just((slice(None), [3, 1]))
)


@pytest.mark.parametrize("order", "CF")
@given(index=indices)
def test_it_is_indexed_like_the_mapped_array(maps, order, index):
    part = MappedFile.of(maps[order])[index]
    np.testing.assert_array_equal(part, np.array(maps[order])[index])
    assert type(part) is np.ndarray
    assert part.dtype == np.float32


def test_what_is_sent_is_a_path(maps):
    assert len(pickle.dumps(MappedFile.of(maps["C"]))) < 1000
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(MappedFile.of(maps["C"])))[:], maps["C"]
    )


def test_a_view_an_array_and_a_vector_are_not_files(maps, tmp_path):
    (tmp_path / "vector").write_bytes(bytes(80))
    assert MappedFile.of(maps["C"][:, 2:]) is None
    assert MappedFile.of(np.array(maps["C"])) is None
    assert MappedFile.of(np.memmap(tmp_path / "vector", mode="r")) is None


def test_a_file_that_was_cut_short_is_said(tmp_path):
    path = tmp_path / "short.npy"
    np.save(path, np.zeros((N, D)))
    file = MappedFile.of(np.load(path, mmap_mode="r"))
    path.write_bytes(path.read_bytes()[:-8])
    np.testing.assert_array_equal(file[:, : D - 1], np.zeros((N, D - 1)))
    with pytest.raises(InputError, match=r"short\.npy must hold 5 x 12 entries of float64"):
        file[:, 1:]


def test_what_was_written_to_a_private_map_is_seen(maps):
    path, shape = maps["C"].filename, (N, D)
    private = np.memmap(path, np.float32, "c", OFFSET, shape)
    private *= 2
    design = MemoryMappedDesign(private)
    seen = np.hstack([block.values for block in design.blocks()])
    np.testing.assert_array_equal(seen, 2 * np.array(maps["C"]))


def test_a_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / "X"
    path.write_bytes(bytes(8 * N * D))
    design = MemoryMappedDesign(np.memmap(path, np.float64, "r", 0, (N, D)))
    path.unlink()
    with pytest.raises(InputError, match=r"must be readable.*FileNotFoundError"):
        list(design.blocks())


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("place", [(0, 0), (N - 1, 2)])
def test_a_file_that_was_replaced_since_it_was_mapped_is_refused(tmp_path, order, place):
    values = np.asarray(np.random.default_rng(0).normal(size=(N, D)), order=order)
    np.save(tmp_path / "X.npy", values)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert MappedFile.of(mapped).order == order
    values[place] *= 2
    np.save(tmp_path / "new.npy", values)
    (tmp_path / "new.npy").replace(tmp_path / "X.npy")
    with pytest.raises(InputError, match=r"X\.npy must be the file that was mapped.*map it again"):
        MemoryMappedDesign(mapped)


def test_a_file_that_was_cut_short_before_it_is_used_is_said(tmp_path):
    # As much as a page: to look at the map behind the end would end the process.
    path = tmp_path / "X"
    path.write_bytes(bytes(8 * N * 4096))
    mapped = np.memmap(path, np.float64, "r", 0, (N, 4096))
    with path.open("r+b") as file:
        file.truncate(8 * 4096)
    with pytest.raises(InputError, match=r"must be the file that was mapped, got other entries or"):
        MemoryMappedDesign(mapped)


def test_a_map_that_is_being_written_is_its_file(tmp_path):
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", 0, (N, D))
    mapped[:] = np.nan
    mapped[2] = -0.0
    assert MappedFile.of(mapped) is not None
