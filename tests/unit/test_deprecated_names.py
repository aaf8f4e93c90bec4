"""Names of the version before still work, with a warning that names the new one."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable

import pytest

from aggverify.checks import Check
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case


@pytest.mark.parametrize(
    ("module", "old", "where", "new"),
    [
        ("aggverify.execution.kinds", "Kind", "aggverify.execution.option_types", "OptionType"),
        ("aggverify.report.model", "Document", "aggverify.model", "Document"),
        ("aggverify.engines", "Arrived", "aggverify.engines", "CompletedReduction"),
    ],
)
def test_a_renamed_class_is_found_with_a_warning(
    module: str, old: str, where: str, new: str
) -> None:
    wanted = rf"^{module}\.{old} was renamed, .*: write {where}\.{new}$"
    with pytest.warns(DeprecationWarning, match=wanted) as warned:
        found = getattr(importlib.import_module(module), old)
    assert found is getattr(importlib.import_module(where), new)
    assert warned[0].filename == __file__


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'aggverify.engines' has no attribute 'Nope'"):
        importlib.import_module("aggverify.engines").Nope  # noqa: B018


def _cases(subject: Subject) -> Iterable[Case]:
    return ()


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("nothing_to_say", "not_applicable", "no --against TARGET"),
        ("telling", "distinguishing_cases", _cases),
    ],
)
def test_a_renamed_field_of_a_check_is_taken_with_a_warning(
    old: str, new: str, value: object
) -> None:
    minimal = {"name": "mine", "title": "", "space": lambda _: None, "judge": lambda *_: None}
    wanted = rf"^Check\({old}=\.\.\.\) was renamed, .*: write Check\({new}=\.\.\.\)$"
    with pytest.warns(DeprecationWarning, match=wanted) as warned:
        check = Check(**minimal, **{old: value})
    assert getattr(check, new) == value
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Check(**minimal, **{new: value}) == check
