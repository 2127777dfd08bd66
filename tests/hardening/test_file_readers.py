"""Any bytes at all in a data file: data, or one line that says what is wrong with the file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.apps.cli.files import read_arrays, read_data
from flowbias.apps.data_files.regression_data import RegressionData
from flowbias.apps.explorer.views.own_data import read_upload
from flowbias.ground.arguments import InputError

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


def array_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def packed(packing: int, **members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def archive(**arrays: np.ndarray) -> bytes:
    members = {name: array_bytes(array) for name, array in arrays.items()}
    return packed(zipfile.ZIP_STORED, **members)


Y = array_bytes(np.ones(2))
GOOD_ARCHIVES = [
    packed(packing, X=array_bytes(np.arange(6.0).reshape(2, 3)), y=Y)
    for packing in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_BZIP2,
        zipfile.ZIP_LZMA,
    )
]
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
    """A good archive, cut short, and with bytes changed, added and left out."""
    good = draw(st.sampled_from(GOOD_ARCHIVES))
    content = bytearray(good[: draw(st.integers(len(good) // 2, len(good)) | st.just(len(good)))])
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        content[start : start + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(content)


HEADER_WORDS = st.sampled_from(
    [
        *("{", "}", "(", ")", "[", "]", ",", ":", "\n", "'", "1", "2,3", "-1", "True", "()"),
        *("'descr'", "'<f8'", "'|O'", "'fortran_order'", "False", "'shape'", "(2,3)", "9" * 30),
    ]
)


@st.composite
def archives_with_odd_headers(draw: st.DrawFn) -> bytes:
    """An array whose header is nearly Python."""
    whole = "{'descr':'<f8','fortran_order':False,'shape':(2,3)}"
    start = draw(st.integers(0, len(whole)))
    stop = draw(st.integers(start, min(start + 6, len(whole))))
    odd = whole[:start] + "".join(draw(st.lists(HEADER_WORDS, max_size=4))) + whole[stop:]
    return with_header(odd)


def with_header(text: str) -> bytes:
    header = text.encode()
    length = len(header).to_bytes(2, "little")
    member = b"\x93NUMPY\x01\x00" + length + header + bytes(48)
    return packed(zipfile.ZIP_STORED, X=member, y=Y)


# Without the rest of Unicode, which costs seconds to draw from: letters, signs and digits are here.
TEXT = st.text(st.characters(max_codepoint=0x2100), max_size=100)
FILES = {
    "csv, any bytes": (".csv", st.binary(max_size=200)),
    "csv, any text": (".csv", TEXT.map(lambda text: text.encode("utf-8"))),
    "csv, nearly a table": (".csv", tables()),
    "npz, any bytes": (".npz", st.binary(max_size=200)),
    "npz, any arrays": (".npz", archives()),
    "npz, damaged": (".npz", damaged_archives()),
    "npz, odd header": (".npz", archives_with_odd_headers()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("files")


def assert_one_line_about(file: Path, complaint: str) -> None:
    assert str(file) in complaint
    assert "\n" not in complaint


def uploaded(file: Path) -> RegressionData:
    """As the explorer reads it, which does not know its name."""
    try:
        return read_upload(file.read_bytes())
    except InputError as refusal:
        raise InputError(f"{file}: {refusal}") from refusal


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
        assert isinstance(read, RegressionData)
        assert np.isfinite(read.problem.X).all()
    for other in (read_arrays, uploaded):
        try:
            other(file)
        except InputError as refusal:
            assert_one_line_about(file, str(refusal))


ODD_HEADERS = {
    "not closed": "{'descr':'<f8','fortran_order':False,'shape':(2,3\n",
    "too large": "{'descr':'<f8','fortran_order':False,'shape':(" + "9" * 30 + ",)}",
    "true": "{'descr':'<f8','fortran_order':False,'shape':(True,3)}",
    "list as key": "{[]:1}",
}
READERS = {"limit": read_data, "regime": read_arrays, "explorer": uploaded}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("header", ODD_HEADERS.values(), ids=ODD_HEADERS)
def test_a_header_that_is_no_header(header, read, tmp_path):
    file = tmp_path / "data.npz"
    file.write_bytes(with_header(header))
    with pytest.raises(
        InputError,
        match=r"data\.npz: .*(cannot be read as a NumPy archive.*: \S|must have at most)",
    ):
        read(file)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("packing", range(len(GOOD_ARCHIVES)))
def test_a_damaged_byte_of_any_packing(packing, read, tmp_path):
    """Each in turn: the archive is read all the same, or refused for what is wrong with it."""
    file = tmp_path / "data.npz"
    refused = set()
    for place in range(30, 200):
        content = bytearray(GOOD_ARCHIVES[packing])
        content[place] ^= 255
        file.write_bytes(content)
        try:
            read(file)
        except InputError as refusal:
            refused.add(str(refusal))
    assert refused
    assert not [words for words in refused if "None" in words or ": ." in words or "\n" in words]


def test_names_of_members_are_quoted(tmp_path):
    file = tmp_path / "data.npz"
    file.write_bytes(archive(**{"a\nb": np.ones(2)}))
    for read in READERS.values():
        with pytest.raises(InputError) as refusal:
            read(file)
        assert_one_line_about(file, str(refusal.value))


def test_a_name_of_two_lines_is_told_in_one(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text('"a\nb",y\n1,2\nx,3\n')
    with pytest.raises(InputError, match=r"column 1 \(a b\)"):
        read_data(file)
