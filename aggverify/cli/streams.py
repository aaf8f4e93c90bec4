"""Standard output and error whose loss, as by a closed pipe, does not end the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Stream:
    """A text stream that drops what is written after its first error, and keeps that error."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.lost: str | None = None if stream is not None else "it is closed"
        """Why not everything was written."""
        self.unread = False
        """Whether that is because the reader has ended, as `head` does: no error."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write as far as that is possible."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes text, got {type(text).__name__}")
        if self.lost is None and self._stream is not None:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written so far."""
        if self.lost is None and self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def isatty(self) -> bool:
        """Whether a person sees it."""
        return self._stream is not None and self.lost is None and self._stream.isatty()

    def _lose(self, error: Exception) -> None:
        self.unread = isinstance(error, BrokenPipeError)
        self.lost = getattr(error, "strerror", None) or str(error)
        # What is in the stream's buffer would be tried once more when the interpreter ends, which
        # would then choose its own exit code.
        with suppress(OSError, ValueError, AttributeError):
            assert self._stream is not None
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def guarded() -> Iterator[Stream]:
    """Make both streams a ``Stream`` while the block runs; gives that of standard output."""
    _open_closed_descriptors()
    out, err = sys.stdout, sys.stderr
    mine = Stream(out)
    sys.stdout, sys.stderr = mine, Stream(err)  # type: ignore[assignment]
    try:
        yield mine
    finally:
        mine.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = out, err


def lost() -> str | None:
    """Why standard output did not take everything, if it did not."""
    stream = sys.stdout
    stream.flush()
    return stream.lost if isinstance(stream, Stream) and not stream.unread else None


def _open_closed_descriptors() -> None:
    """Open the null device for each closed standard stream, so that no file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
