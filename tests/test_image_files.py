"""The formats that image data comes in: IDX, records of CIFAR-10, PNG files with rows of images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowbias.datasets.image_sets import (
    decode_idx,
    read_idx,
    read_labels,
    read_png_rows,
    read_records,
    records_of_png_package,
    write_records,
)
from tests import tiny_images as tiny

ARRAYS = st.sampled_from(sorted(tiny.TYPES)).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@given(ARRAYS)
def test_idx_gives_back_every_array(array):
    found = read_idx(tiny.idx_bytes(array), "file")
    assert found.dtype == array.dtype
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@given(ARRAYS, st.data())
def test_a_cut_or_longer_idx_file_is_refused(array, data):
    whole = tiny.idx_bytes(array)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for content in (whole[:cut], whole + b"\0"):
        with pytest.raises(ValueError, match=r"^some-file: must .* got "):
            read_idx(content, "some-file")


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08\x00", b"<htm", b"\0\0\x07\x01", b"\0\0\x08"])
def test_another_format_is_not_taken_for_idx(start):
    with pytest.raises(ValueError, match="must start as an IDX file does"):
        read_idx(start + bytes(100) * (len(start) > 3), "some-file")


def test_idx_files_are_images_then_labels():
    names = ("train-images", "train-labels")
    images, labels = decode_idx([(name, tiny.CONTENT[name]) for name in names])
    np.testing.assert_array_equal(images, tiny.TRAIN[0])
    np.testing.assert_array_equal(labels, tiny.TRAIN[1])
    assert labels.dtype == np.int64


def test_records_are_a_label_and_three_planes():
    images, labels = read_records(tiny.RECORDS["data_batch_3.bin"], "data_batch_3.bin")
    np.testing.assert_array_equal(images, tiny.COLOURS[2])
    np.testing.assert_array_equal(labels, tiny.COLOUR_LABELS[2])
    assert images.flags.c_contiguous


@pytest.mark.parametrize("cut", [0, 1, 3072, 3074, 6145])
def test_a_cut_record_is_refused(cut):
    with pytest.raises(ValueError, match=rf"^batch: must .* 3073 bytes, got {cut} bytes"):
        read_records(tiny.RECORDS["test_batch.bin"][:cut], "batch")


def test_the_png_package_becomes_the_binary_version(tmp_path):
    archive = tmp_path / "package.tgz"
    archive.write_bytes(tiny.tarball(tiny.png_package()))
    assert dict(records_of_png_package(archive)) == tiny.RECORDS


@pytest.mark.parametrize("member", sorted(tiny.png_package()))
def test_a_package_that_lacks_a_file_is_refused(tmp_path, member):
    members = tiny.png_package()
    del members[member]
    archive = tmp_path / "package.tgz"
    archive.write_bytes(tiny.tarball(members))
    with pytest.raises(ValueError, match=f"must hold {member.removeprefix('package/')}, got none"):
        dict(records_of_png_package(archive))


def test_rows_of_another_number_than_labels_are_refused():
    rows = tiny.COLOURS[0].reshape(2, 1024, 3)
    for wrong in (rows[:1], rows[:, 1:], rows[..., :2]):
        with pytest.raises(ValueError, match=r"^batch: must hold 2 rows of 1024 pixels"):
            write_records(wrong, np.array([1, 2]), "batch")


@pytest.mark.parametrize("cut", [0, 7, 40, -2000])
def test_a_cut_png_is_refused(cut):
    whole = tiny.png(tiny.COLOURS[0].reshape(2, 1024, 3))
    with pytest.raises(ValueError, match=r"^rows\.png: must be a whole PNG"):
        read_png_rows(whole[:cut], "rows.png")


def test_grey_is_not_taken_for_colour():
    with pytest.raises(ValueError, match=r"^rows\.png: must have 8-bit colours \(RGB\), got L"):
        read_png_rows(tiny.png(tiny.COLOURS[0, 0, :, :, 0]), "rows.png")


@pytest.mark.parametrize("text", [b"[1, 2", b"{}", b"[10]", b"[-1]", b"[1.0]", b"[true]", b'["1"]'])
def test_other_json_is_not_taken_for_labels(text):
    with pytest.raises(ValueError, match=r"^labels: must be a JSON list of labels"):
        read_labels(text, "labels")
