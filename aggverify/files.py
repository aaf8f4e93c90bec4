"""Bounded reads of regular files, writes that stay where they belong, and the file of a target."""

from __future__ import annotations

import ast
import json
import os
import stat
import time
from contextlib import suppress
from errno import EACCES, EBUSY, EINVAL, EISDIR, ENXIO, EPERM, EROFS
from pathlib import Path
from typing import Any

from aggverify.errors import InputError


def contents(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a regular file, at most one more than ``most``.

    Raises OSError for all else: opening a pipe waits for its other side, and reading a device may
    never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte in the name
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


def parsed(source: str | bytes) -> ast.Module:
    """Python source as a tree; raises SyntaxError, also for what nests too deeply to be parsed."""
    try:
        return ast.parse(source)
    except (MemoryError, RecursionError):  # CPython's parser raises MemoryError for a full stack
        raise SyntaxError("an expression nests too deeply to be parsed") from None
    except ValueError as error:  # null bytes
        raise SyntaxError(str(error)) from None


def resolved(path: Path) -> Path:
    """Return the path with all links followed, or ``/`` where they lead in a circle.

    Also for what no file can be called: callers ask in which folder it lies, and ``/`` is in none.
    """
    try:
        return Path(os.path.realpath(path, strict=True))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return Path("/")


def read_json(path: Path, what: str, most: int) -> Any:
    """Return the data of a JSON file of at most ``most`` bytes.

    Raises InputError, or FileNotFoundError.

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


def write_inside(directory: Path, name: str, text: str, mode: int | None = None) -> Path:
    """Write ``DIRECTORY/NAME`` and nothing outside, whatever links lie there; return the path.

    ``mode``: permission bits, by default those of a new file. Raises OSError naming the path; what
    was half written is gone then.
    """
    path = directory / name
    if directory.is_symlink():
        raise InputError(
            f"{directory} is a link, to {directory.resolve()}: name that folder itself"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{path.parent} leads out of {directory}, to {path.parent.resolve()}")
    # Written to a temporary file and renamed: a link of that name is replaced instead of followed,
    # and no reader ever sees half a file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(text)
        return temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a write to a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def put(path: Path, text: str) -> None:
    """Write the file that a person names; raises InputError where that cannot be done.

    Links are followed. A regular file is replaced whole and keeps its mode; a device, a pipe or
    this process's own output is written into.
    """
    try:
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if (own := _own_output(found)) is not None:
            _write_all(own, text)
        elif found is None or stat.S_ISREG(found.st_mode):
            _replace(Path(os.path.realpath(path)), text, found)
        else:
            _write_into(path, text)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {reason_of(error)}") from None


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be used; a ValueError is of a name that no file can have."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _own_output(found: os.stat_result | None) -> int | None:
    """Return the descriptor of standard output or error that this file is (/dev/stdout)."""
    if found is None or stat.S_ISCHR(found.st_mode):
        return None
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(descriptor)):
                return descriptor
    return None


def _replace(path: Path, text: str, found: os.stat_result | None) -> None:
    try:
        write_inside(path.parent, path.name, text, found and stat.S_IMODE(found.st_mode))
    except OSError as error:
        # Its folder may be closed to us, or the file be a mount point: neither can be renamed over.
        if found is None or error.errno not in (EACCES, EPERM, EBUSY, EROFS):
            raise
        path.write_text(text, encoding="utf-8")


def _write_into(path: Path, text: str) -> None:
    ends = time.monotonic() + _READER_WAIT
    while True:
        try:
            # Non-blocking: opening a pipe that no process reads would wait for ever.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            break
        except OSError as error:
            if error.errno != ENXIO:
                raise
            if time.monotonic() > ends:
                raise OSError(ENXIO, "no process reads this pipe") from None
            time.sleep(0.01)
    try:
        os.set_blocking(descriptor, True)
        _write_all(descriptor, text)
    finally:
        os.close(descriptor)


_READER_WAIT = 5.0
"""Seconds in which a pipe must find its reader."""


def _write_all(descriptor: int, text: str) -> None:
    rest = memoryview(text.encode())
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def os_error_text(error: OSError) -> str:
    """Return the error as words for a message: its file, if it names one, and the reason."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"the machine refuses: {reason}"


def append(path: Path, text: str) -> None:
    """Append to a regular file, such as a CI service's summary; raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    with open(descriptor, "a", encoding="utf-8") as file:  # noqa: PTH123
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            raise OSError(EINVAL, _KINDS.get(kind, "Not a regular file"), str(path))
        file.write(text)


def split(text: str) -> tuple[str, str | None]:
    """Split a target into its file or module and the function's name, None if it has none."""
    head, colon, name = text.rpartition(":")
    if not colon or name.endswith(".py"):
        return text, None
    return head, name or None


def is_path(head: str) -> bool:
    """Whether that is a file rather than a module."""
    return head.endswith(".py") or "/" in head
