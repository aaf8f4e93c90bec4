"""What most reducers are given first, drawn while ranks import torch and nothing else can be done.

What is drawn is kept for who asks for the same. Nothing depends on it: a subject of which more or
less is claimed has other spaces, and is drawn for when its checks have their turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from aggverify.checks import Check
from aggverify.conventions.native import Native
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.files import is_path, split
from aggverify.oracles import MODES
from aggverify.run.planning.first_cases import first_cases
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.drawing import stream_of


def draw_ahead(request: Request, checks: Iterable[Check], is_enough: Callable[[], bool]) -> None:
    """List and draw the cases of these checks on the usual subject, until it ``is_enough``.

    Not those of checks that draw nothing: such lists may be of millions of tokens.
    """
    how = Native()
    if is_enough() or not _may_be(how, request):
        return
    # Spaces are the same in each of the usual modes.
    claim = Claim(
        target=request.target,
        function=how.usual_name,
        convention=how.name,
        engine=how.default_engine(None),
        mode=next(iter(MODES)),
        max_world=request.max_world,
        seed=request.seed,
        budget=request.budget,
    )
    for entry in plan(Subject.of(claim), checks).entries:
        if is_enough():
            return
        check, most = entry.check, entry.examples
        if check.only is None and entry.instead is None and entry.space is not None:
            first_cases(check, entry.subject, entry.space)
            drawn = stream_of(entry.subject).cases(check.draws(entry.space), most)
            for _ in islice(drawn, most):
                if is_enough():
                    return


def _may_be(how: Native, request: Request) -> bool:
    """Whether the target may have that signature: a file shows it, a module may have it."""
    if request.adapter is not None or request.convention not in (None, how.name):
        return False
    path, _ = split(request.target)
    if not is_path(path):
        return True
    first, second = how.parameters
    taken = re.compile(rf"def \w+\(\s*{first}\b[^)]*,\s*{second}\b")
    with suppress(OSError, ValueError):
        return taken.search(Path(path).read_text("utf-8")) is not None
    return False  # it cannot be read, which is reported next
