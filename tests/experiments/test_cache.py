"""The cache gives back what it was given, to the last bit, or nothing."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flowbias.experiments import cache as cache_module
from flowbias.experiments.cache import Cache, DamagedEntryError, Entry, Key, default_folder
from flowbias.ground.atomic import write_atomically

KEY = Key("toy", "toy/sums i=1", "0123456789abcdef")
COLUMNS = {"v": np.array([1.5, np.nan, -np.inf, 5e-324]), "w": np.array(["a", "bc", "", "ü"])}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def stored(cache, key=KEY):
    cache.store(key, Entry(COLUMNS, seconds=2.5))
    return cache.file(key)


@given(values=st.lists(st.floats(), max_size=5), seconds=st.floats(0, 1e6))
def test_round_trip(tmp_path_factory, values, seconds):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    column = np.array(values, dtype=np.float64)
    cache.store(KEY, Entry({"v": column}, seconds))
    entry = cache.load(KEY)
    assert entry.columns["v"].tobytes() == column.tobytes()
    assert entry.seconds == seconds
    assert not entry.stale


def test_nothing_where_nothing_was_stored(cache):
    assert cache.load(KEY) is None
    assert cache.load_stale(KEY) is None


def test_every_flipped_byte_is_noticed(cache):
    file = stored(cache)
    content = file.read_bytes()
    for i in range(len(content)):
        file.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        with pytest.raises(DamagedEntryError, match=r"damaged"):
            cache.load(KEY)


def test_every_truncation_is_noticed(cache):
    file = stored(cache)
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(DamagedEntryError):
            cache.load(KEY)


@pytest.mark.parametrize("field", ["experiment", "task", "fingerprint"])
def test_an_entry_in_another_ones_place_is_not_used(cache, field):
    other = Key(**{**vars(KEY), field: "other"})
    content = stored(cache, other).read_bytes()
    write_atomically(cache.file(KEY), content)
    with pytest.raises(DamagedEntryError, match="another result"):
        cache.load(KEY)


def test_an_entry_is_an_ordinary_archive(cache):
    with np.load(stored(cache), allow_pickle=False) as archive:
        assert_array_equal(archive["column0"], COLUMNS["v"])
        assert '"columns": ["v", "w"]' in str(archive["description"])


class Bomb:
    """Runs code when unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path(self.file),))


def test_nothing_is_ever_unpickled(cache, tmp_path):
    bomb = Bomb()
    bomb.file = str(tmp_path / "exploded")
    with pytest.raises(ValueError, match="pickle"):
        cache.store(KEY, Entry({"v": np.array([bomb], dtype=object)}, 0.0))
    sealed = cache_module._sealed(pickle.dumps(bomb))
    write_atomically(cache.file(KEY), sealed)
    with pytest.raises(DamagedEntryError):
        cache.load(KEY)
    assert not (tmp_path / "exploded").exists()


def test_stale_entries_are_found_newest_first_and_damaged_ones_passed_over(cache):
    for i, mark in enumerate(["old", "newer", "newest"]):
        key = Key(KEY.experiment, KEY.task, mark)
        cache.store(key, Entry({"v": np.array([float(i)])}, 0.0))
        os.utime(cache.file(key), (i, i))
    assert cache.load(KEY) is None
    assert_array_equal(cache.load_stale(KEY).columns["v"], [2.0])
    assert cache.load_stale(KEY).stale
    newest = cache.file(Key(KEY.experiment, KEY.task, "newest"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert_array_equal(cache.load_stale(KEY).columns["v"], [1.0])


def test_writing_leaves_nothing_else_behind(cache):
    file = stored(cache)
    assert list(file.parent.iterdir()) == [file]


def test_a_failed_write_keeps_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "a.bin"
    write_atomically(file, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_has_the_rights_of_any_other_and_the_umask_is_left_alone(tmp_path, monkeypatch):
    """To read the umask is to set it, for the files that other threads make at that moment."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("os.umask", lambda mask: pytest.fail(f"umask set to {mask:o}"))
            write_atomically(tmp_path / "ours", b"")
        (tmp_path / "any other").touch()
    finally:
        os.umask(before)
    ours, other = (file.stat().st_mode & 0o777 for file in sorted(tmp_path.iterdir())[::-1])
    assert ours == other == 0o640


@pytest.mark.parametrize("links", [["a"], ["a", "b", "c"]], ids=["itself", "round about"])
def test_a_link_that_leads_back_to_itself_gives_way_to_the_file(tmp_path, links):
    for link, following in zip(links, [*links[1:], links[0]], strict=True):
        (tmp_path / link).symlink_to(tmp_path / following)
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_link_stays_one(tmp_path):
    (tmp_path / "named").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "named")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "named").read_bytes() == b"new"


def test_the_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FLOWBIAS_CACHE", raising=False)
    assert default_folder() == tmp_path / "flowbias"
    monkeypatch.setenv("FLOWBIAS_CACHE", str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"
