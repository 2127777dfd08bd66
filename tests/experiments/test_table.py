"""A table keeps every value, stacks what differs, and says which rows are blank."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flowbias.experiments import Table

NUMBERS = st.lists(st.floats(allow_nan=False), min_size=1, max_size=8)


def test_single_values_are_repeated():
    table = Table.of({"n": 3, "word": "x", "value": [1.0, 2.0]})
    assert_array_equal(table["n"], [3.0, 3.0])
    assert_array_equal(table["word"], ["x", "x"])


def test_columns_of_two_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        Table.of({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize(
    "values", [np.zeros((2, 2)), [object()], [1j], [2**53 + 1], np.ma.masked_equal([1, 2], 2)]
)
def test_only_numbers_and_words(values):
    with pytest.raises(TypeError, match="column 'a'"):
        Table.of({"a": values})


def test_parts_with_other_columns_are_stacked_and_found_again():
    table = Table.stack(
        [
            Table.of({"part": "curve", "x": [1.0, 2.0]}),
            Table.of({"part": "names", "word": ["a", "b", "c"]}),
        ]
    )
    assert len(table) == 5
    assert np.isnan(table["x"][2:]).all()
    assert set(table.part("curve").columns) == {"part", "x"}
    assert set(table.part("names").columns) == {"part", "word"}


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(KeyError, match=r"'b'.*there are a"):
        Table.of({"a": [1.0]})["b"]


@given(values=NUMBERS)
def test_csv_loses_no_bit(values):
    rows = list(csv.DictReader(io.StringIO(Table.of({"v": values, "w": "a,b"}).csv())))
    assert_array_equal([float(row["v"]) for row in rows], values)
    assert {row["w"] for row in rows} == {"a,b"}


def test_csv_leaves_blanks_empty():
    table = Table.stack([Table.of({"a": [1.0]}), Table.of({"b": ["x"]})])
    assert table.csv() == "a,b\n1,\n,x\n"


@given(values=NUMBERS, at=st.integers(0, 7))
def test_digest_sees_every_bit(values, at):
    changed = np.array(values)
    bits = changed.view(np.uint64)
    bits[at % len(values)] ^= np.uint64(1)
    assert Table.of({"v": values}).digest != Table.of({"v": changed}).digest
    assert Table.of({"v": values}).digest == Table.of({"v": list(values)}).digest


def test_summary_takes_values_that_occurred():
    table = Table.of({"n": [1, 1, 1, 1, 2, 2], "v": [4.0, 1.0, 2.0, 3.0, -np.inf, 5.0]})
    summary = table.summary("v", by="n")
    assert_array_equal(summary.x, [1.0, 2.0])
    assert_array_equal(summary.median, [2.0, -np.inf])
    assert_array_equal(summary.low, [1.0, -np.inf])
    assert_array_equal(summary.high, [3.0, 5.0])
