"""Reading and writing of the tool's own files: bounded, as data, and where they belong; and which
file a person names by a target."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from errno import EINVAL, EISDIR
from pathlib import Path
from typing import Any

from aggverify.errors import InputError


def contents(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file, at most one more than ``most``; raises OSError for all else.

    Opening a pipe waits for its other side, and reading a device may never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # no name that a file can have
        raise OSError(EINVAL, str(error), str(path)) from None
    with open(descriptor, "rb") as file:  # noqa: PTH123
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            code = EISDIR if kind == stat.S_IFDIR else EINVAL
            what = os.strerror(code) if code == EISDIR else _KINDS.get(kind, "Not a regular file")
            raise OSError(code, what, str(path))
        return file.read() if most is None else file.read(most + 1)


_KINDS = {
    stat.S_IFIFO: "Is a pipe, not a file",
    stat.S_IFCHR: "Is a device, not a file",
    stat.S_IFBLK: "Is a device, not a file",
    stat.S_IFSOCK: "Is a socket, not a file",
}


def resolved(path: Path) -> Path:
    """Where it leads to; the root of all files where that cannot be said, as of links in a circle
    or what is no name of a file."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return Path("/")


def read_json(path: Path, what: str, most: int) -> Any:
    """The data of a JSON file of at most ``most`` bytes; raises InputError, or FileNotFoundError.

    ``what``: the noun for messages, as in "a case".
    """
    try:
        raw = contents(path, most)
        if len(raw) > most:
            raise InputError(f"{path} is larger than {what} can be ({most} bytes)")
        return json.loads(raw.decode())
    except (FileNotFoundError, InputError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {what} from {path}: {error}") from None


def write_inside(directory: Path, name: str, text: str) -> Path:
    """Write ``DIRECTORY/NAME`` and nothing outside, whatever links lie there; return the path.

    Raises OSError naming the path; what was half written is gone then.
    """
    path = directory / name
    if directory.is_symlink():
        raise InputError(
            f"{directory} is a link, to {directory.resolve()}: name that folder itself"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{path.parent} leads out of {directory}, to {path.parent.resolve()}")
    # Written beside it and renamed: a link of that name is replaced instead of followed, and
    # nobody ever reads half a file.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        return beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a write to a full disk does not say where
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def put(path: Path, text: str) -> None:
    """Write the file that a person names; raises InputError where that cannot be done."""
    try:
        write_inside(path.parent, path.name, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def told(error: OSError) -> str:
    """What the machine refused, as a sentence."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"the machine refuses: {reason}"


def append(path: Path, text: str) -> None:
    """Add to a file that is there for it, such as a CI service's summary; raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def split(text: str) -> tuple[str, str | None]:
    """File or module of a target, and the function's name if it has one."""
    head, colon, name = text.rpartition(":")
    if not colon or name.endswith(".py"):
        return text, None
    return head, name or None


def is_path(head: str) -> bool:
    """Whether that is a file rather than a module."""
    return head.endswith(".py") or "/" in head
