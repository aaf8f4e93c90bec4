"""aggverify in a person's own suite: what pytest collects, reports and sums up."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from aggverify.checks import CHECKS
from aggverify.errors import InputError
from aggverify.model import load
from aggverify.report.formats import OWN
from aggverify.testing.parametrization import cells, conformance, parametrize_with_checks
from aggverify.testing.plugin import OPTIONS
from tests.testing.conftest import WITHIN, Suite


def test_outcomes_are_those_of_the_checks(suite: Suite) -> None:
    made = suite(
        "test_right = aggverify.conformance('right.py', modes=['token_mean'], max_examples=2,"
        " world=1, checks=['weights_are_the_modes', 'logs_say_the_objective',"
        " 'calls_are_answered_rightly'])",
        "test_wrong = aggverify.conformance('wrong.py', max_examples=2, world=2,"
        " checks=['independent_of_micro_batches', 'independent_of_data_parallel_size'])",
    )
    ran = made.runpytest_inprocess(*WITHIN, "-rs", "--junitxml=j.xml", "--aggverify-report=json")
    ran.assert_outcomes(passed=1, skipped=2, failed=2)
    ran.stdout.fnmatch_lines(
        [
            "*_ test_wrong[[]independent_of_micro_batches[]] _*",
            "AGV202 Result depends on the split into micro-batches",
            "FAIL  AGV202  Result depends on the split into micro-batches",
            "  sample 0's token weighs 1/2 instead of 1/3: 3/2 times too much",
            "  reproduce    aggverify replay * wrong.py",
            "*= aggverify =*",
            "right.py · token_mean · engine sum",
            "  PASS  every token has its token_mean weight in every layout tried",
            "*broke *test_wrong[[]independent_of_micro_batches[]] (case *)",
            "*broke *test_wrong[[]independent_of_data_parallel_size[]] (case *)",
            "  FAIL  1 finding",
            "verdict document: *verdict.json",
            "SKIPPED*not applicable: returns no log",
            "SKIPPED*not applicable: the function reduces losses",
        ]
    )
    assert "Traceback" not in ran.stdout.str()
    document = load(made.path / ".aggverify" / "verdict.json")
    assert [len(v.checks) for v in document.verdicts] == [2, 2]
    assert [len(v.causes) for v in document.verdicts] == [0, 1]
    said = {
        p.get("name"): p.get("value")
        for p in ElementTree.parse(made.path / "j.xml").iter("property")
    }
    assert said["aggverify_code"] == "AGV203"
    assert (made.path / ".aggverify" / "cases" / f"{said['aggverify_case']}.json").exists()


def test_what_cannot_be_judged_is_an_error(suite: Suite) -> None:
    made = suite("test_gone = aggverify.conformance('gone.py', checks=['weights_are_the_modes'])")
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["gone.py: no such file: *gone.py"])


def test_an_engine_that_nobody_said_is_asked_for(suite: Suite) -> None:
    made = suite(
        "test_ddp = aggverify.conformance('ddp.py', modes=['token_mean'], max_examples=2, world=2,"
        " checks=['independent_of_data_parallel_size', 'logs_say_the_objective'])",
        "test_said = aggverify.conformance('ddp.py', modes=['token_mean'], engine='mean',"
        " checks=['independent_of_data_parallel_size'], max_examples=2, world=2)",
    )
    (made.path / "ddp.py").write_text(
        "def reduce(losses, batch):\n"
        "    return losses.sum() * batch.dp_size * batch.cp_size / batch.num_tokens\n"
    )
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(errors=1, skipped=1, passed=1)
    ran.stdout.fnmatch_lines(["ddp.py: assumed --engine mean: your trainer averages*"])


def test_a_check_in_a_test_of_ones_own(suite: Suite) -> None:
    made = suite(
        "@aggverify.parametrize_with_checks(['right.py', 'wrong.py'], modes=['token_mean'],",
        "    checks=['independent_of_micro_batches'], max_examples=2, world=1)",
        "def test_mine(aggverify_check):",
        "    assert aggverify_check.state == 'ok', aggverify_check.verdict.findings[0].code",
    )
    ran = made.runpytest_inprocess(*WITHIN, "-v")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(
        [
            "*test_mine[[]right.py-token_mean-independent_of_micro_batches[]] PASSED*",
            "*AssertionError: AGV202*",
        ]
    )


def test_a_suite_without_reducers_sees_nothing_of_it(suite: Suite) -> None:
    heavy = "{'torch', 'numpy', 'hypothesis', 'click', 'rich', 'jinja2'}"
    made = suite("import sys", "def test_it():", f"    assert not {heavy} & set(sys.modules)")
    ran = made.runpytest_subprocess("-p", "no:hypothesispytest")
    ran.assert_outcomes(passed=1)
    assert "= aggverify =" not in ran.stdout.str()


def test_every_check_is_a_test_for_every_mode_and_engine() -> None:
    found = list(cells("r.py", ["token_mean", "sample_mean"], ["sum", "mean"]))
    assert found[0].id == f"token_mean-sum-{CHECKS[0].name}"
    assert len({cell.id for cell in found}) == len(found)
    assert [c.id for c in cells("r.py", checks=["linear_in_the_losses"])] == [
        "linear_in_the_losses"
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"checks": ["linear"]}, "unknown check 'linear'"),
        ({"max_example": 3}, "unknown option 'max_example'"),
        ({"profile": "fast"}, "unknown profile 'fast'"),
        ({"mode": "token_mean"}, r"say modes=\['token_mean'\]: each mode has its own tests"),
        ({"xfail": [("AGV206", "why")]}, r"xfail takes \('CODE:CASE', 'reason'\), got"),
        ({"xfail": [("AGV206:k3f9a1", " ")]}, r"xfail takes \('CODE:CASE', 'reason'\), got"),
        ({"xfail": [("AGV999999:k3f9a1", "why")]}, "unknown code"),
    ],
)
def test_what_cannot_be_is_an_error_of_collection(arguments: dict[str, object], words: str) -> None:
    for make in (conformance, lambda r, **kw: parametrize_with_checks([r], **kw)):
        with pytest.raises(InputError, match=words):
            make("r.py", **arguments)


@pytest.mark.thorough
def test_what_a_suite_says_for_all_is_heeded(suite: Suite) -> None:
    made = suite(
        "test_bare = aggverify.conformance('bare.py', checks=['weights_are_the_modes'])",
        "test_several = aggverify.conformance('right.py', modes=['token_mean', 'sample_mean'],"
        " checks=['weights_are_the_modes'], max_examples=1)",
    )
    (made.path / "bare.py").write_text(
        "def reduce(losses, batch):\n    return losses.sum() / max(batch.num_tokens, 1)\n"
    )
    # The mode of the suite is not the reducer's, and that finding is accepted.
    settings = "[tool.aggverify]\nmode = 'sample_mean'\nmax_examples = 1\nworld = 1\n"
    settings += "engine = 'sum'\n"
    (made.path / "pyproject.toml").write_text(settings)
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines(["bare.py · sample_mean · engine sum"])
    (made.path / "pyproject.toml").write_text(settings + "accept = ['AGV101=known']\n")
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(passed=1, skipped=2)


def test_forked_is_refused(suite: Suite) -> None:
    made = suite(
        "test_right = aggverify.conformance('right.py', checks=['weights_are_the_modes'])",
    )
    made.makeconftest(
        "def pytest_addoption(parser): parser.addoption('--forked', action='store_true')"
    )
    ran = made.runpytest_inprocess(*WITHIN, "--forked")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*ranks belong to one process: run its tests without --forked"])


@pytest.mark.thorough
def test_started_elsewhere_and_told_by_settings(suite: Suite) -> None:
    made = suite(
        "test_right = aggverify.conformance('right.py', checks=['weights_are_the_modes'])",
    )
    settings = "[tool.aggverify]\nmode = 'token_mean'\nprofile = 'quick'\nmax_examples = 3\n"
    (made.path / "pyproject.toml").write_text(settings)
    elsewhere = made.mkdir("elsewhere")
    command = [sys.executable, "-m", "pytest", "-c", "../pytest.ini", "--rootdir", "..", ".."]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout
    assert "· token_mean · engine sum" in done.stdout


def test_checks_of_tests_that_are_skipped_are_not_run(suite: Suite) -> None:
    how = "modes=['token_mean'], max_examples=1, world=1"
    made = suite(
        f"test_it = aggverify.conformance('right.py', checks=['weights_are_the_modes'], {how})",
        "test_other = pytest.mark.skip(reason='not now')(aggverify.conformance("
        f"'right.py', checks=['padding_changes_nothing'], {how}))",
    )
    made.runpytest_inprocess(*WITHIN, "--aggverify-report=json").assert_outcomes(
        passed=1, skipped=1
    )
    [verdict] = load(made.path / ".aggverify" / "verdict.json").verdicts
    assert [check.name for check in verdict.checks] == ["weights_are_the_modes"]


def test_a_format_that_is_none_ends_the_session_before_it_begins(suite: Suite) -> None:
    made = suite("def test_it():", "    raise AssertionError")
    ran = made.runpytest_subprocess("--aggverify-report=jsn")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["ERROR: --aggverify-report: *jsn*"])


def test_help_has_every_format() -> None:
    assert dict(OPTIONS)["report"].endswith(f": {', '.join(OWN)}")
