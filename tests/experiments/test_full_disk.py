"""On a disk that is full, results are right, the message is clear, and nothing is lost."""

import io
import subprocess

import pytest

from flowbias.experiments import Preset, run
from flowbias.experiments.progress import Lines, Silence
from flowbias.experiments.publish import PublishError, publish
from flowbias.experiments.record import RunStart
from flowbias.experiments.runner import Options, run_many
from tests.experiments.toy import COUNT, toy

TOTAL = COUNT + 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 KiB: room for a few results, not for all."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs more rights than this test has")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def whole(tmp_path):
    return run(toy(), preset="smoke", cache=tmp_path / "whole", jobs=1, progress=Silence())


def test_a_full_cache_loses_no_result(small_disk, whole):
    told = io.StringIO()
    record = run(toy(), preset="smoke", cache=small_disk, jobs=1, progress=Lines(told))
    assert record.holds
    assert record.table.digest == whole.table.digest
    assert told.getvalue().count("No space left on device") == 1
    assert list(small_disk.rglob("*.tmp")) == []
    again = run(toy(), preset="smoke", cache=small_disk, jobs=1, progress=Silence())
    assert 0 < again.counts.cached < TOTAL
    assert again.table.digest == whole.table.digest


def test_a_page_that_does_not_fit_keeps_the_old_one(small_disk, tmp_path):
    options = Options(Preset.SMOKE, jobs=1, cache=tmp_path / "cache")
    records = run_many([toy()], options, Silence())
    (small_disk / "index.html").write_text("the old page")
    about = {"command": "flowbias run toy", "start": RunStart.now()}
    with pytest.raises(PublishError, match=r"cannot write .*No space left on device.*cache"):
        publish(records, small_disk, options, **about)
    assert (small_disk / "index.html").read_text() == "the old page"
    assert list(small_disk.rglob(".*")) == []
    page, *_ = publish(records, tmp_path / "out", options, **about)
    assert page.is_file()
