"""A request and what ranks describe of the file, resolved to the subjects under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aggverify.conventions.run_against import newer
from aggverify.execution.subject import Subject
from aggverify.model import Lines, Ranks
from aggverify.run.planning.claims import completed, settings_note, subjects
from aggverify.run.planning.enclosed import SEEN
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target
from aggverify.trainer.conditions import Condition

WithOtherPath = Callable[[Subject, str], Subject]
"""The subject with another path to agree with, called as the second argument names."""


def resolved_subjects(
    request: Request,
    target: Target,
    description: Mapping[str, Any],
    carried: str,
    with_other_path: WithOtherPath | None = None,
) -> tuple[Subject, ...]:
    """Return the subjects, one a mode, with all that is known of them before anything is run.

    ``carried``: what carries the ranks' collectives apart from the backend. Raises InputError where
    the request and the file do not fit.
    """
    request = completed(request, description)
    found = [_described(s, description, carried) for s in subjects(request, target, description)]
    if with_other_path is not None:
        found = [with_other_path(s, request.called) for s in found]
    if request.sandbox:
        found = [s.knowing(sandbox=SEEN) for s in found]
    notes, known = settings_note(request), description["versions"]
    return tuple(s.noting(*notes, *newer(s.convention, known)) for s in found)


def _described(subject: Subject, description: Mapping[str, Any], carried: str) -> Subject:
    """Return the subject with what its source holds: constants, dtypes, functions, conditions."""
    name, ranks = subject.function, description["environment"]
    functions = tuple(
        Lines(function, tuple(lines), first, tuple(text))
        for (function, lines), (first, text) in zip(
            description["functions"], description["texts"], strict=True
        )
    )
    conditions = tuple(Condition(*each) for each in description["conditions"])
    return subject.knowing(
        constants=tuple(description["constants"].get(name, ())),
        dtypes=tuple(description["dtypes"].get(name, ())),
        surroundings=tuple(description["surroundings"].get(name, ())),
        functions=functions,
        conditions=conditions,
        ranks=Ranks(ranks["processor"], ranks["threads"]),
        carried=carried,
    )
