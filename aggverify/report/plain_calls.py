"""A finding of a function that is only called, as a script: the calls that it answered wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aggverify.checks import Finding
from aggverify.conventions.calls import Call
from aggverify.conventions.plain_adapter import code_of
from aggverify.conventions.plain_text import named, number
from aggverify.conventions.validation import Validation
from aggverify.execution.subject import Subject
from aggverify.files import is_path, split
from aggverify.report.escape import line

MOST = 6
"""Calls in a script."""


def called(subject: Subject, finding: Finding) -> str | None:
    """The script of a validator's finding; None where none of its calls is all data."""
    how = subject.convention
    if not isinstance(how, Validation):
        return None
    calls = [call for call in how.calls if call.name in finding.calls and call.arguments]
    if not calls:
        return None
    target, _ = split(subject.target)
    loader = PackageLoader("aggverify.report", "templates")
    made = Environment(
        loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    shown = [_call(call) for call in calls[:MOST]]
    return made.get_template("plain_calls.py.j2").render(
        title=line(f"{finding.code} {finding.traits.title}: {subject.target}"),
        calls=shown,
        adapter=code_of(how.path).source if how.path else "",
        target=target,
        is_file=is_path(target),
        function=subject.function,
    )


def _call(call: Call) -> str:
    """One entry of the list."""
    given = ", ".join(_arguments(arguments) for arguments in call.arguments)
    return f"    ({call.sentence!r}, {call.refused},\n     [{given}]),"


def _arguments(arguments: Mapping[str, Any]) -> str:
    literals = {name: _literal(value) for name, value in arguments.items()}
    return named(literals, 6)


def _literal(value: Any) -> str:
    return number(value) if isinstance(value, float) else repr(value)
