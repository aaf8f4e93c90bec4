"""Stored cases in a person's suite: run first, and what is expected to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.codes.identity import About, Identity
from aggverify.execution.claim import Claim
from aggverify.generation.catalogue import plain_losses
from aggverify.report import baseline
from aggverify.report.baseline import Baseline, Entry
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests.testing.conftest import WITHIN, Suite

CHECK = "weights_are_the_modes"
RARE = 37
"""Response tokens of a sample that no search of a few cases comes upon."""
REDUCER = """
import torch

def reduce(losses, batch):
    rare = {rare} in batch.response_lengths
    {does}
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() * (2 if rare else 1) / max(batch.num_tokens, 1)
"""


def stored(file: str, folder: Path) -> str:
    """A case of that length, stored as one that has been found on the file."""
    step = parse_step(f"1/{'1' * RARE}")
    case = Case(step, Layout.trivial(1), plain_losses(step))
    claim = Claim(file, "reduce", "native", "sum", "token_mean")
    found = StoredCase(case, claim, CHECK, "AGV101", True, (f"{file}:reduce",))
    store.write(found, folder / ".aggverify")
    return found.id


def test_a_stored_case_comes_first_and_an_expected_one_alone(suite: Suite) -> None:
    made = suite()
    (made.path / "rare.py").write_text(REDUCER.format(rare=RARE, does=""))
    (made.path / "fixed.py").write_text(REDUCER.format(rare=-1, does=""))
    (made.path / "other.py").write_text(REDUCER.format(rare=-1, does=f"[0][len(losses) == {RARE}]"))
    names = ("rare", "fixed", "other")
    ids = {name: stored(f"{name}.py", made.path) for name in names}
    line = (
        f"aggverify.conformance('{{0}}.py', modes='token_mean', checks='{CHECK}', engine='sum',"
        " world=1, max_examples=1"
    )
    lines = [f"test_{name} = {line.format(name)})" for name in names[:2]]
    lines += [
        f"test_x_{name} = {line.format(name)}, xfail=[('AGV101:{ids[name]}', 'why {name}')])"
        for name in names
    ]
    made.makepyfile("\n".join(("import aggverify", *lines)))
    (made.path / ".aggverify" / "cases" / "older.json").write_text('{"schema": 1}')
    ran = made.runpytest_inprocess(*WITHIN, "-rx")
    ran.assert_outcomes(passed=1, failed=3, xfailed=1)
    ran.stdout.fnmatch_lines(
        [
            "*_ test_rare[[]token_mean-sum-weights_are_the_modes[]] _*",
            f"  reproduce    aggverify replay {ids['rare']} *",
            f'  accept       xfail=[[]("AGV101:{ids["rare"]}", "REASON")[]]',
            f"expected AGV101:{ids['fixed']} (why fixed): fixed; take it out of xfail",
            f"expected AGV101:{ids['other']} (why other), found another",
            "AGV401 Raises an exception",
            f"    broke *test_rare* (case {ids['rare']})",
            f"    seen in *test_x_rare* (case {ids['rare']})",
            "fixed.py*",
            "  note      a stored case is not tried again: *older.json: *",
            "  PASS  every token has its token_mean weight*",
            f"XFAIL *test_x_rare* - AGV101:{ids['rare']} (why rare)",
        ]
    )


def test_a_baseline_is_expected_as_long_as_it_holds(suite: Suite) -> None:
    made = suite()
    (made.path / "rare.py").write_text(REDUCER.format(rare=RARE, does=""))
    case = store.read(stored("rare.py", made.path), made.path / ".aggverify")
    about = About("rare.py:reduce", "token_mean", "sum")
    identity = Identity(about, "AGV101", (), "2")
    for name, expires in (("known", None), ("over", "2020-01-01")):
        entry = Entry(case.id, identity, "why", "them", expires, case.to_json())
        baseline.write(Baseline(1, (entry,)), made.path / f"{name}.json")
    line = (
        f"aggverify.conformance('rare.py', modes='token_mean', checks='{CHECK}', engine='sum',"
        " world=1, max_examples=1, xfail='{0}.json')"
    )
    names = ("known", "over")
    made.makepyfile(
        "\n".join(("import aggverify", *(f"test_{n} = {line.format(n)}" for n in names)))
    )
    ran = made.runpytest_inprocess(*WITHIN, "-rx")
    ran.assert_outcomes(failed=1, xfailed=1)
    ran.stdout.fnmatch_lines([f"XFAIL *test_known* - AGV101:{case.id} (why)"])
    made.makepyfile(f"import aggverify\ntest_gone = {line.format('gone')}")
    ran = made.runpytest_inprocess(*WITHIN)
    ran.stdout.fnmatch_lines(["*test_gone: xfail: no such baseline: *gone.json*"])


def test_what_is_expected_and_matches_nothing_is_an_error_of_collection(suite: Suite) -> None:
    made = suite()
    case = stored("right.py", made.path)
    line = (
        "test_{} = aggverify.conformance('right.py', modes={!r}, checks={!r}, xfail=[({!r}, 'y')])"
    )
    rows = (
        ("mode", "sample_mean", CHECK, f"AGV101:{case}"),
        ("check", "token_mean", "counts_are_exact", f"AGV101:{case}"),
        ("code", "token_mean", CHECK, f"AGV102:{case}"),
        ("gone", "token_mean", CHECK, "AGV101:k3f9a1"),
    )
    words = (
        f"xfail: AGV101:{case} matches no check of this test: it was stored of right.py:reduce,*",
        f"xfail: AGV101:{case} matches no check of this test*",
        f"xfail: case {case} was stored as AGV101, not as AGV102",
        "xfail: no case 'k3f9a1': *",
    )
    for (name, *rest), said in zip(rows, words, strict=True):
        made.makepyfile("\n".join(("import aggverify", line.format(name, *rest))))
        ran = made.runpytest_inprocess(*WITHIN, "-p", "no:cacheprovider")
        ran.assert_outcomes(errors=1)
        ran.stdout.fnmatch_lines([f"test_{name}: {said}"])


@pytest.mark.thorough
def test_found_stored_and_found_again_at_once(suite: Suite) -> None:
    made = suite(
        "test_wrong = aggverify.conformance('wrong.py', modes=['token_mean'], max_examples=5,"
        " checks=['independent_of_micro_batches'])"
    )
    steps = []
    for _ in range(2):
        ran = made.runpytest_inprocess(*WITHIN)
        ran.assert_outcomes(failed=1)
        [line] = [text for text in ran.outlines if text.startswith("  executed")]
        steps.append(int(line.split()[1]))
        assert len(list((made.path / ".aggverify" / "cases").iterdir())) == 1
    assert steps[1] < steps[0]
