"""Files that are there whole or not at all, however the writing process ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(file: Path, data: bytes) -> None:
    """Write beside `file`, then rename: a reader sees the old bytes or the new ones, never half.

    Raises OSError, and leaves what was there, where the folder cannot be written or is full.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # Through a link, to the file that it names.
    target = file.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        # mkstemp makes private files; these are as readable as any other output.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
