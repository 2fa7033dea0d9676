"""Writing a file so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; it is replaced only when the block ends without an exception.

    The bytes go to a temporary file in the same folder, which is flushed to the disk and renamed. A symbolic link is
    followed: the file that it points to is replaced, the link stays. The permissions of an existing file are kept.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full. The old file is then untouched.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.part")
    # O_EXCL: never write through a file or link that somebody put there; 0o666 is cut down by the user's umask.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            os.chmod(temporary, os.stat(target).st_mode & 0o777)
        os.replace(temporary, target)
    except OSError as fault:
        if fault.filename == os.fspath(temporary):  # nobody knows of that one
            raise OSError(fault.errno, fault.strerror, os.fspath(path)) from fault
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
