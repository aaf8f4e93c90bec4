"""Every way out of a command ends in one of the four exit codes, and one sentence reports why."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from aggverify import __version__
from aggverify.errors import AggverifyError, NoReducer
from aggverify.escape import clean, indented
from aggverify.files import os_error_text, write_inside
from aggverify.plugins import PluginWarning
from aggverify.shadowed import shadowed

CONFORMS, NO_JUDGEMENT, INTERRUPTED = 0, 2, 130
"""As in ``run.outcome.verdict.Exit``, whose import is too heavy for every command."""


def ended(command: Callable[[], object]) -> int:
    """Run the command; return its exit code, whatever happens in it."""
    try:
        code = command()
    except BaseException as error:
        return explained(error)
    return code if isinstance(code, int) else CONFORMS


def explained(error: BaseException, directory: Path | None = None) -> int:
    """Report why a command was ended early; return its exit code.

    ``directory``: where the report of an internal error goes, if it can be written there.
    """
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else NO_JUDGEMENT
        case KeyboardInterrupt() | click.exceptions.Abort():
            complain("interrupted")
            return INTERRUPTED
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            error.show()
        case NoReducer():
            complain(f"error: {error}")
            if error.adapter:  # alone on standard output, so that it can be sent to a file
                click.echo(clean(error.adapter), nl=False)
        case AggverifyError():
            complain(f"error: {error}")
        case OSError():
            complain(f"error: {os_error_text(error)}")
        case MemoryError():
            complain("error: the machine has no memory left for this")
        case _ if (why := shadowed(error)) is not None:
            complain(f"error: {why}")
        case _:
            _internal(error, directory)
    return NO_JUDGEMENT


def unwritten(what: str, error: Exception, directory: Path) -> None:
    """Report that a part of the results could not be written."""
    if isinstance(error, OSError | AggverifyError):
        why = os_error_text(error) if isinstance(error, OSError) else str(error)
        complain(f"error: cannot write the {what}: {why}")
    else:
        explained(error, directory)


@contextlib.contextmanager
def ended_gently() -> Iterator[None]:
    """SIGTERM, SIGHUP and SIGQUIT end a command as Ctrl-C does: with a verdict of what is known."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in taken:  # a second one must not interrupt the report
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    wanted = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    main = threading.current_thread() is threading.main_thread()
    # What nohup ignores stays ignored.
    taken = [n for n in wanted if main and signal.getsignal(n) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Print warnings about plugins as all other messages are, in one line."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def shown(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, PluginWarning):
                complain(f"warning: {message}")
            else:
                usual(message, category, *where)

        warnings.showwarning = shown  # type: ignore[assignment]
        yield


def complain(message: str) -> None:
    """One message to a person, on standard error."""
    click.echo(f"aggverify: {indented(message)}", err=True)


def _internal(error: BaseException, directory: Path | None) -> None:
    """Report an internal error, and where its report is: in ``directory`` if it takes one."""
    text = _report(error)
    kept = _kept(text, directory)
    where = f"the report is in {kept}" if kept else f"no report could be written:\n{text}"
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    complain(
        f"internal error in aggverify {__version__}, no fault of the reducer ({what}); {where}"
    )


def _report(error: BaseException) -> str:
    lines = [
        f"aggverify {__version__} stopped at an internal error.",
        f"python {sys.version.split()[0]} on {sys.platform}",
        f"command: {' '.join(sys.argv)}",
        "",
        *traceback.format_exception(error),
    ]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def _kept(text: str, directory: Path | None) -> Path | None:
    """Write the report to ``directory``, else to a temporary file; None where neither takes it."""
    if directory is not None:
        with contextlib.suppress(OSError, AggverifyError):
            return write_inside(directory, "internal-error.txt", text)
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(".txt", "aggverify-internal-error-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return Path(name)
    return None
