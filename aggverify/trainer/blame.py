"""Whose fault an exception is: the candidate's, or a convention's that does not know its version.

It is the convention's where its own code raised it, or where the candidate reads what is not in a
stand-in that the convention made, or calls a function of the convention's with other parameters.
A documented signature of aggverify's has no versions: a wrong call of it is the candidate's.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from pathlib import Path
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from aggverify.conventions import Bound, Convention, Site, WholeStep
from aggverify.conventions.adapter_functions import PREFIX
from aggverify.conventions.calls import PerCallConvention
from aggverify.conventions.native import Native
from aggverify.conventions.policy_loss import PolicyLoss
from aggverify.conventions.run_against import framework
from aggverify.conventions.stand_ins import MissingKey, StandIn, StandInDict
from aggverify.conventions.trainer import TrainStepFunction
from aggverify.world.candidate_errors import Breach
from aggverify.world.frames import owner

P = ParamSpec("P")
T = TypeVar("T")
_PASSED = re.compile(r"got an unexpected keyword argument '(\w+)'")
_REQUIRED = re.compile(r"missing \d+ required [\w -]*arguments?: (.+)")
_CALLED = re.compile(r"([\w.<>]+)\(\) (?:got|takes|missing)")
_DOCUMENTED = (Native, PolicyLoss, TrainStepFunction)
"""Whose signatures are aggverify's own, the same in every version of a candidate."""
_STAND_INS = re.compile(rf"'({StandIn.__name__}|{StandInDict.__name__})'")


class NotKnown(Breach):
    """The convention does not know this version of the candidate."""

    name = "not known"


def bound(how: Convention, function: Callable[..., Any], module: Any, site: Site) -> Bound:
    """Return the convention's calls of one case, which raise NotKnown for what is its own fault."""
    call = _guarded(how, how.bind)(function, module, site)
    if isinstance(call, WholeStep):
        return WholeStep(_guarded(how, call.train))
    return _guarded(how, call)


def _guarded(how: Convention, function: Callable[P, T]) -> Callable[P, T]:
    @wraps(function, updated=())
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            blame(how, error)
            raise

    return call


def blame(how: Convention | PerCallConvention, error: BaseException) -> None:
    """Raise NotKnown if the exception is the convention's fault."""
    if (what := _unknown(how, error)) is not None:
        raise NotKnown(
            f"this version of {framework(how)} is not known to the convention {how.name}: {what}"
        ) from error


def _unknown(how: Convention | PerCallConvention, error: BaseException) -> str | None:
    """Return what the convention does not know, None where it is not to blame."""
    if isinstance(error, Breach):
        return None
    if isinstance(error, MissingKey):
        return f"it reads `{error.args[0]}`"
    if isinstance(error, AttributeError) and _stands_in(error.obj):
        unread = getattr(how, "unread", "")
        hint = f" ({unread})" if unread else ""
        return f"it reads `{error.name}`{hint}"
    path = _path(how)
    raised_by = _raised_by(path, error)
    text = str(error)
    if isinstance(error, TypeError):
        if isinstance(how, _DOCUMENTED):
            return None
        called = _CALLED.search(text)
        if not raised_by and not _STAND_INS.search(text):
            if called is None or called[1] not in _functions(path):
                return None
            passed = _PASSED.search(text)
            return f"it passes `{passed[1]}`" if passed else f"it calls {text}"
        if raised_by and called is not None:
            passed, required = _PASSED.search(text), _REQUIRED.search(text)
            if passed:
                return f"it does not take `{passed[1]}`"
            return "it requires " + required[1].replace("'", "`") if required else text
        return text
    return f"{type(error).__name__}: {text} ({raised_by})" if raised_by else None


def _path(how: Convention | PerCallConvention) -> str:
    """Return the file of an adapter, or of the convention's own class."""
    return str(getattr(how, "path", None) or inspect.getfile(type(how)))


def _stands_in(thing: Any) -> bool:
    """Whether it is in the place of an object of a framework's, and is none of aggverify's own."""
    return isinstance(thing, StandIn | StandInDict) or type(thing).__module__.startswith(PREFIX)


def _raised_by(path: str, error: BaseException) -> str:
    """Return the line of the convention that raised it, "" where the candidate's code did.

    What code of ours raises is the candidate's, too, where the candidate has called it.
    """
    every = [
        (frame.filename, frame.lineno, owner(frame.filename))
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    frames = [frame for frame in every if frame[2] in ("candidate", "ours")]
    if not frames:
        return ""
    file, line, whose = frames[-1]
    # The file of a person's adapter is the convention, though it counts as the candidate's code.
    in_candidate = any(w == "candidate" and f != path for f, _, w in frames)
    by_convention = file == path or (whose == "ours" and not in_candidate)
    return f"{Path(file).name}, line {line}" if by_convention else ""


@lru_cache(maxsize=16)
def _functions(path: str) -> frozenset[str]:
    """Qualified names of all functions in a file."""

    def names(code: CodeType) -> Iterator[str]:
        yield code.co_qualname
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield from names(each)

    return frozenset(names(compile(Path(path).read_text(), path, "exec"))) - {"<module>"}
