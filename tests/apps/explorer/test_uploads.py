"""Files that readers send: read, or refused in words before they can do harm."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.apps.explorer.views import own_data as uploads
from flowbias.apps.explorer.views.own_data import (
    LARGEST_FILE,
    LARGEST_TABLE,
    MOST_SAMPLES,
    read_upload,
)
from flowbias.ground.arguments import InputError

X, Y = np.arange(1.0, 7.0).reshape(2, 3), np.array([1.0, -1.0])


def archive(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=True, **arrays)
    return file.getvalue()


def array_header(shape, *, dtype="<f8"):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def claiming(shape, *, dtype="<f8"):
    """An archive whose X says it has that shape, and holds nothing of it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("X.npy", array_header(shape, dtype=dtype))
    return file.getvalue()


def data_or_refusal(content):
    """The data and no words, or no data and why."""
    try:
        return read_upload(content), ""
    except InputError as error:
        return None, str(error)


def refusal(content):
    data, why = data_or_refusal(content)
    assert data is None
    assert why.startswith("file: ")
    return why


def test_both_kinds_of_file_by_their_content():
    for content in (archive(X=X, y=Y), b"a,b,c,y\n1,2,3,1\n4,5,6,-1\n"):
        problem = read_upload(content).problem
        np.testing.assert_array_equal(problem.X, X)
        np.testing.assert_array_equal(problem.y, Y)
    assert read_upload(b"a,y,b\n1,2,3\n").names == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty file"),
        (b"1,2,nan\n3,4,5\n", "line 1, column 3: must be a finite number, got 'nan'"),
        (b"1,2,3\n4,five,6\n", "line 2, column 2: must be a finite number, got 'five'"),
        (b"a,y\n1,2\n,3\n", "(--impute mean). Options are those of the command: flowbias limit"),
        (b"once upon a time", "a header and nothing below it"),
        (b"once\nupon\na time", "must have a column for y"),
        (b"1,2,3\n4,5\n", "line 2: must have 3 columns like line 1, got 2"),
        (b"\xff\xfe\x00", "must be text"),
        (pickle.dumps(X), "got a pickle, which is a program and is never run"),
        (b"\x93NUMPY\x01\x00", "got a single NumPy array"),
        (archive(X=X), "there is no y"),
        (archive(X=np.array([[1, "two"]], dtype=object), y=Y), "Python objects (a pickle)"),
        (archive(X=X, y=np.array(["a", "b"])), "y: must be an array of real numbers"),
        (archive(X=X + 1j, y=Y), "X: must be an array of real numbers"),
        (archive(X=np.where(X == 2.0, np.nan, X), y=Y), "X: must be finite"),
        (archive(X=X, y=np.ones(5)), "y: "),
        (archive(X=X, y=Y)[:200], "cannot be read as a NumPy archive"),
        (b"PK\x05\x06" + b"\0" * 18, "no X and no y"),
        (claiming((10**6, 10**6)), "X: must have at most 60000 numbers to be answered at once"),
        (claiming((LARGEST_TABLE + 1,), dtype="|u1"), "must have at most 60000 numbers"),
        (b"1," * LARGEST_TABLE * 2 + b"1,1", "to be answered at once, got about 1.2e+05"),
        (b"1,2\n" * (MOST_SAMPLES + 1), "must have at most 200 samples"),
        (b"1" * (LARGEST_FILE + 1), "must have at most 5 MB, got 5 MB"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(content, says):
    assert says in refusal(content)


def test_a_pickle_never_runs(tmp_path):
    mark = tmp_path / "ran"

    class Harm:
        def __reduce__(self):
            return mark.touch, ()

    inside = np.array([[Harm()]], dtype=object)
    for content in (pickle.dumps(Harm()), archive(X=inside, y=Y), pickle.dumps(Harm(), protocol=0)):
        refusal(content)
    assert not mark.exists()


def test_a_bomb_is_judged_by_its_headers(monkeypatch):
    """A gigabyte of zeros in a megabyte: refused before any of it is unpacked."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
        made.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(array_header((8, 2**24)))
        for _ in range(16):
            member.write(bytes(2**22))
    assert len(file.getvalue()) < LARGEST_FILE
    unpacked = []
    whole = zipfile.ZipExtFile._update_crc
    monkeypatch.setattr(
        zipfile.ZipExtFile,
        "_update_crc",
        lambda self, data: (unpacked.append(len(data)), whole(self, data)),
    )
    assert "shape (8, 16777216)" in refusal(file.getvalue())
    assert sum(unpacked) < 2**17


@pytest.mark.parametrize(
    ("name", "opening", "says"),
    [
        # A header that claims to be 64 MB long; an array and no array under NumPy's other name.
        ("X.npy", b"\x93NUMPY\x02\x00" + (2**26).to_bytes(4, "little"), "reading array header"),
        ("X", array_header((8, 2**23)), "shape (8, 8388608)"),
        ("X", b"", "magic string"),
    ],
)
def test_nothing_but_the_opening_of_a_member_is_unpacked(name, opening, says):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        made.writestr(name, opening + bytes(2**26))
        made.writestr("y", b"")
    tracemalloc.start()
    told = refusal(file.getvalue())
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert says in told
    assert highest < 2**22


def test_other_packings_are_refused_unopened():
    """What follows the head of an LZMA member decides how much memory the reader takes."""
    file, array = io.BytesIO(), io.BytesIO()
    np.save(array, X)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("X.npy", array.getvalue())
    assert "X.npy: must be stored or deflated" in refusal(file.getvalue())


def test_a_member_cannot_hold_more_than_its_header_says():
    """Bytes behind the array are not read: the header bounds what is allocated."""
    header = io.BytesIO()
    np.save(header, X)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("X.npy", header.getvalue() + bytes(2**20))
        rest = io.BytesIO()
        np.save(rest, Y)
        made.writestr("y.npy", rest.getvalue())
    np.testing.assert_array_equal(read_upload(file.getvalue()).problem.X, X)


def test_limits_are_those_of_the_table(monkeypatch):
    monkeypatch.setattr(uploads, "LARGEST_TABLE", 8)
    assert read_upload(archive(X=X, y=Y)).problem.X.shape == (2, 3)
    assert "2 samples of 4 features" in refusal(archive(X=np.ones((2, 4)), y=Y))


@given(
    content=st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(b"PK\x03\x04".__add__))
)
def test_any_bytes_are_read_or_refused(content):
    data, why = data_or_refusal(content)
    assert why.startswith("file: ") if data is None else np.isfinite(data.problem.X).all()


@given(cut=st.integers(0, 600), place=st.integers(0, 600), byte=st.integers(0, 255))
def test_a_damaged_archive_is_read_or_refused(cut, place, byte):
    content = bytearray(archive(X=X, y=Y)[: cut or None])
    if place < len(content):
        content[place] = byte
    data, why = data_or_refusal(bytes(content))
    assert why.startswith("file: ") if data is None else np.isfinite(data.problem.X).all()
