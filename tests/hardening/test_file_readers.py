"""Any bytes at all in a data file: data, or one line that says what is wrong with the file."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.cli.data import Data, read_data
from flowbias.problem import InputError

NUMBERS = st.sampled_from(
    ["1", "-2.5", "1e3", "0", "nan", "inf", "1e999", "", " 7 ", "x", '"3"', "1,5", "0x1F", "１"]
)
SEPARATORS = st.sampled_from([",", ";", "\t", " ", ", ", '","'])
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\0"])


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Text that is nearly a table of numbers."""
    separator, end = draw(SEPARATORS), draw(LINE_ENDS)
    rows = draw(st.lists(st.lists(NUMBERS, max_size=4), max_size=4))
    header = draw(st.sampled_from(["", "a,b,y" + end, "y" + end, "\ufeffa,y" + end]))
    text = header + end.join(separator.join(row) for row in rows)
    return text.encode(draw(st.sampled_from(["utf-8", "utf-16", "utf-8-sig"])))


def archive(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


GOOD_ARCHIVE = archive(X=np.arange(6.0).reshape(2, 3), y=np.ones(2))
DTYPES = ["f8", "f4", "i8", "u1", "?", "c16", "U3", "S2", "M8[s]", "f2"]


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Archives of arrays of every shape and kind."""
    members = {}
    for name in draw(st.lists(st.sampled_from(["X", "y", "z", "X/y"]), unique=True)):
        shape = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple))
        members[name] = np.ones(shape).astype(draw(st.sampled_from(DTYPES)))
    return archive(**members)


@st.composite
def damaged_archives(draw: st.DrawFn) -> bytes:
    """A good archive, cut short and with bytes changed."""
    content = bytearray(GOOD_ARCHIVE[: draw(st.integers(0, len(GOOD_ARCHIVE)))])
    for place in draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=8)):
        if content:
            content[place] = draw(st.integers(0, 255))
    return bytes(content)


FILES = {
    "csv, any bytes": (".csv", st.binary(max_size=200)),
    "csv, any text": (".csv", st.text(max_size=100).map(lambda text: text.encode("utf-8"))),
    "csv, nearly a table": (".csv", tables()),
    "npz, any bytes": (".npz", st.binary(max_size=200)),
    "npz, any arrays": (".npz", archives()),
    "npz, damaged": (".npz", damaged_archives()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("files")


def assert_one_line_about(file: Path, complaint: str) -> None:
    assert str(file) in complaint
    assert "\n" not in complaint


@pytest.mark.parametrize(("suffix", "contents"), FILES.values(), ids=FILES)
@given(data=st.data())
def test_reading(suffix, contents, folder, data):
    file = folder / f"data{suffix}"
    file.write_bytes(data.draw(contents))
    try:
        read = read_data(file)
    except InputError as refusal:
        assert_one_line_about(file, str(refusal))
    else:
        assert isinstance(read, Data)
        assert np.isfinite(read.problem.X).all()
