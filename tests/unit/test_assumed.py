"""What an adapter takes for granted is printed with its line; where that is much, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.model import Assumption, Verdict
from aggverify.report import view_model
from aggverify.run.planning.assumed import assumptions
from aggverify.run.planning.claims import declaration
from tests import verdicts

FILE = """
AGGVERIFY = {
    "mode": "token_mean",
    "assumed": {
        "num_seqs": "rollouts of the step",
        "dp_size": "ranks",
    },
}
"""


@pytest.fixture
def verdict() -> Verdict:
    [made] = verdicts.written(verdicts.verdict(reports=0)).verdicts
    return made


def test_each_has_the_line_of_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(FILE)
    declared = {"assumed": {"num_seqs": "rollouts of the step", "other": "?"}}
    assert assumptions(declaration({"declared": declared}), path) == (
        Assumption("num_seqs", "rollouts of the step", 5),
        Assumption("other", "?", None),
    )
    assert assumptions(declared, None)[0].line is None
    assert assumptions({"mode": "token_mean"}, path) == ()
    path.write_text("def")
    assert assumptions(declared, path)[0].line is None


@pytest.mark.parametrize("wrong", ["num_seqs", ["num_seqs"], {"num_seqs": None}])
def test_what_is_no_table_of_texts_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="AGGVERIFY: assumed must be a table"):
        declaration({"declared": {"assumed": wrong}})


def test_two_have_a_line_each_and_more_are_named(verdict: Verdict) -> None:
    two = (Assumption("n", "tokens of the step", 7), Assumption("mode", "token_mean", None))
    file = Path(verdict.target.partition(":")[0]).name
    few = replace(verdict, assumed=two)
    assert view_model.assumptions(few) == [
        f"assumed n = tokens of the step ({file} line 7)",
        f"assumed mode = token_mean ({file})",
    ]
    many = replace(verdict, assumed=(*two, Assumption("k", "?", 9)))
    assert view_model.assumptions(many) == [f"assumed 3 arguments of {file}: n, mode, k (-v)"]
    listed = [what for label, what in view_model.header(many) if label == "assumed"]
    assert listed[-3:] == [
        *(line.removeprefix("assumed ") for line in view_model.assumptions(few)),
        f"k = ? ({file} line 9)",
    ]
    assert view_model.assumptions(verdict) == []
