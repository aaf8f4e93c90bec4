"""The known bugs are data: what each is recognised by is something that is shown."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import aggverify
from aggverify import codec
from aggverify.checks import clipping, logged_keys, logs, ratios, terms, windows
from aggverify.conventions.log_forms import FORMS
from aggverify.diagnosis import nonlinear
from aggverify.diagnosis.broadcasts import SAMPLES_AT_TOKENS
from aggverify.diagnosis.bugs import BUGS
from aggverify.diagnosis.bugs.base import Bugs
from aggverify.errors import InputError
from aggverify.oracles.policy import READINGS

SHOWN = (
    *(clipping.EACH_MICRO_BATCH, clipping.EACH_RANK, clipping.EACH_SHARD),
    *(clipping.NO_EFFECT, clipping.SCALED),
    *(logged_keys.MEAN_OF_MEANS, logged_keys.WHOLE_COUNTS),
    *(logs.OTHER_COUNT, logs.PART_SILENT, logs.RESCALED, logs.RUNNING_TOTAL),
    *(terms.DETACHED, terms.LEFT_OUT, terms.OTHER_COUNT, terms.SHARED_OUT),
    *(windows.EARLIER_STEP, windows.LAST_WINDOW),
    *(nonlinear.COUNT, nonlinear.OF_THE_ROWS, nonlinear.OF_THE_MASKED),
    *(ratios.AT_HAND, SAMPLES_AT_TOKENS),
    *(f"accepts {name}: {text}" for name, form in FORMS.items() for text in form.spoils),
    *(f"accepts {name}" for name in ("denominators", "short-lengths", "short-masks")),
    *(f"accepts {name}" for name in ("rollout-tokens", "group-tokens")),
)
"""What checks and diagnosis show, which some bug is known by."""
ENTRY = {"name": "x", "sentence": "is wrong", "seen": "here", "fix": "mend it"}


@pytest.mark.parametrize("sign", SHOWN)
def test_what_is_shown_is_what_a_bug_is_known_by(sign: str) -> None:
    assert any(re.fullmatch(name, sign) for bug in BUGS for name in bug.signs)


def texts() -> set[str]:
    """Every text in the package's code, and signs that are put together of two."""
    trees = (ast.parse(file.read_text()) for file in Path(aggverify.__file__).parent.rglob("*.py"))
    found = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    made = {f"{a} {text}" for a in ("accepts", "weights of", "wrong label:") for text in found}
    return found | made | {f"{q}={r}" for q, readings in READINGS.items() for r in readings}


def test_no_bug_is_known_by_what_nothing_shows() -> None:
    known = texts() | set(SHOWN)
    for bug in BUGS:
        for name in bug.signs:
            assert any(re.fullmatch(name, text) for text in known), (bug.name, name)


def test_every_bug_is_known_by_something_and_told_in_full() -> None:
    for bug in BUGS:
        assert [*bug.clues], bug.name
        assert bug.name and bug.sentence and bug.seen and bug.fix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fixx": "y"}, r"unknown key of 9.toml.bugs\[0\] 'fixx'; did you mean 'fix'"),
        ({"seen": 1}, r"9.toml.bugs\[0\].seen must be text, got 1"),
        ({"shape": {"inner": {"wat": "tokens"}}}, r"bugs\[0\].shape.inner 'wat'"),
        ({"leaks": {"by": ["nan"]}}, r"leaks.by\[0\] must be 'NaN' or .*, got 'nan'"),
        ({"broken": {}}, r"9.toml.bugs\[0\].broken lacks forward"),
    ],
)
def test_what_is_wrong_in_an_entry_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        codec.read(Bugs, {"bugs": [ENTRY | changes]}, "9.toml")
