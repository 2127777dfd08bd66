"""Files that are there whole or not at all, however the writing process ends."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(file: Path, data: bytes) -> None:
    """Write beside `file`, then rename: a reader sees the old bytes or the new ones, never half.

    Raises OSError, and leaves what was there, where the folder cannot be written or is full.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # Through a link, to the file that it names. One that leads back to itself names none: there
    # realpath stops, where Path.resolve may raise, and the link gives way to the file.
    target = Path(os.path.realpath(file))
    beside = target.with_name(f".{secrets.token_hex(8)}.tmp")
    # With the rights of any new file, which the system takes from the umask: reading that would
    # mean to set it, for all threads, and `tempfile` makes files for their owner alone.
    stream = beside.open("xb")
    try:
        with stream:
            stream.write(data)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
