"""Messages of ranks, and of the process that they are forked from: checked where they are read.

Other people's code runs in them and can reach their connections. Anything that they would not send
by themselves raises WireError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec import json

from aggverify.errors import InputError, shown
from aggverify.world.candidate_errors import Raised
from aggverify.world.threads import Threads
from aggverify.world.trace import KEPT
from aggverify.world.wire import WireError

SMALL = 1 << 22
"""Bytes of an answer in addition to what its job asks for: the largest exception, traces, state."""
MOST_CHANGES = 256
_LONGEST = 1 << 14
"""Most characters of a line of a trace, or of a name."""


def rank(header: Mapping[str, Any], *, started: bool) -> None:
    """Check a message of a rank: ready, at its own work, failed, or once ``started`` a reply."""
    if "preparing" in header:
        _need(isinstance(header["preparing"], bool), "preparing", header["preparing"])
    elif "ready" in header:
        pid = header["ready"]
        _need(_is_whole(pid) and pid > 0, "ready", pid)
    elif started:
        _outcome(header)
    else:
        _error(header.get("error"))


def _outcome(header: Mapping[str, Any]) -> None:
    if "error" in header:
        _error(header["error"])
    else:
        _need(isinstance(header.get("data"), dict), "data", header.get("data"))
    trace, sequences = header.get("trace"), header.get("sequences")
    _need(_are_texts(trace, KEPT), "trace", trace)
    _need(_are_lists_of_counts(sequences), "sequences", sequences)
    if "checksums" in header:
        _need(_are_counts(header["checksums"]), "checksums", header["checksums"])
    if "changes" in header:
        _need(_are_texts(header["changes"], MOST_CHANGES), "changes", header["changes"])
    if "replace" in header:
        _need(isinstance(header["replace"], bool), "replace", header["replace"])


def _error(data: Any) -> None:
    try:
        whole = json.encode(Raised.from_json(data)) == json.encode(data)
    except (InputError, RecursionError) as error:
        raise WireError(f"{error!s:.200}") from None
    except (ValueError, OverflowError):  # a text that is no UTF-8, a number that has no end
        whole = False
    _need(whole, "error", data)  # what it lacks has been made up


def ending(header: Mapping[str, Any], size: int) -> tuple[int, int | None, str]:
    """Read which rank of a world of ``size`` has ended, with its exit status.

    Or with the reason why it was not started. The process that ranks are forked from reports it.
    """
    number: Any = header.get("rank")
    status: Any = header.get("exit")
    refused: Any = header.get("refused", "")
    _need(_is_whole(number) and 0 <= number < size, "rank", number)
    _need(isinstance(refused, str) and len(refused) < _LONGEST, "refused", refused)
    _need(bool(refused) or (_is_whole(status) and abs(status) < 1 << 16), "exit", status)
    return number, status, refused


def constructed(header: Mapping[str, Any]) -> None:
    """Check what the process that ranks are forked from reports of its handler.

    That is either that it is constructed, or what was raised and how many processes were below it
    then.
    """
    if "error" in header:
        _error(header["error"])
        _need(_is_whole(header.get("below")), "below", header.get("below"))
        return
    description, threads, cuda = (header.get(name) for name in ("description", "threads", "cuda"))
    _need(isinstance(description, dict), "description", description)
    _need(threads in get_args(Threads), "threads", threads)
    _need(isinstance(cuda, bool), "cuda", cuda)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any, most: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= most
        and set(map(type, value)) <= {str}
        and max(map(len, value), default=0) <= _LONGEST
    )


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and set(map(type, value.values())) <= {int}


def _are_lists_of_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(each) is list and set(map(type, each)) <= {int} for each in value.values()
    )


def _need(right: bool, what: str, value: Any) -> None:
    if not right:
        raise WireError(f"{what} cannot be {shown(value, 80)}")
