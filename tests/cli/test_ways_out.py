"""Whatever goes wrong, a command ends in one of the four exit codes with a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggverify import __version__
from aggverify.cli import main, ways_out
from aggverify.report import junit, markdown
from aggverify.run import session
from aggverify.run.planning import resolution
from tests.conftest import EXAMPLES, ROOT, Cli

RIGHT = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"
WRONG = EXAMPLES / "broken" / "micro_batch_token_mean.py"
LITTLE = ("--profile", "quick", "--world", "1", "--max-examples", "1")
EVERY = ("--report", "json,junit,md,html,text")


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*arguments: object, **named: object) -> Any:
        raise error

    return function


def test_reports_that_cannot_be_written_cost_no_verdict(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ran = cli("check", RIGHT, *LITTLE, *EVERY, "--report-dir", "taken")
    assert ran.code == 2, ran
    assert "its token_mean weight" in ran.out
    for what in ("verdict document", "JUnit XML", "Markdown", "HTML", "text"):
        assert f"aggverify: error: cannot write the {what}: taken: " in ran.err
    assert "Traceback" not in ran.err and "internal" not in ran.err


@pytest.mark.exhaustive
def test_findings_stay_findings_where_nothing_can_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ran = cli("check", WRONG, "--profile", "quick", "--max-examples", "1", "--report-dir", "taken")
    assert ran.code == 1, ran
    assert "aggverify: error: cannot write the cases: taken" in ran.err
    assert "AGV202" in ran.out


@pytest.mark.thorough
def test_a_writer_that_fails_costs_no_other(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markdown, "render", raising(KeyError("a mistake of ours")))
    monkeypatch.setattr(junit, "render", raising(OSError(28, "No space left on device")))
    ran = cli("check", RIGHT, *LITTLE, *EVERY, "--report-dir", "o")
    assert ran.code == 2, ran
    left = sorted(path.name for path in (tmp_path / "o").iterdir())
    assert left == ["internal-error.txt", "report.html", "report.txt", "verdict.json"]
    assert "cannot write the JUnit XML: the machine refuses: No space left on device" in ran.err
    assert f"internal error in aggverify {__version__}" in ran.err
    assert "Traceback" not in ran.err
    told = (tmp_path / "o" / "internal-error.txt").read_text()
    assert f"aggverify {__version__}" in told and "KeyError: 'a mistake of ours'" in told
    assert "Traceback (most recent call last)" in told


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        pytest.param(
            OSError(24, "Too many open files", "/x"),
            2,
            "error: /x: Too many open files",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            MemoryError(),
            2,
            "error: the machine has no memory left",
            marks=pytest.mark.thorough,
        ),
        (ZeroDivisionError("ours"), 2, f"internal error in aggverify {__version__}"),
        pytest.param(KeyboardInterrupt(), 130, "interrupted", marks=pytest.mark.thorough),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_stops_a_check_is_told_after_what_is_known(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    """The second of two verdicts is never reached; the first is printed and delivered."""
    examined, first = session.examine, []

    def once(*arguments: Any, **named: Any) -> Any:
        if first:
            raise error
        first.append(examined(*arguments, **named))
        return first[0]

    monkeypatch.setattr(session, "examine", once)
    monkeypatch.setattr(resolution, "subjects", lambda *a: 2 * _subjects(*a))
    ran = cli("check", RIGHT, *LITTLE, "--report", "json,text", "--report-dir", "o")
    assert ran.code == code, ran
    assert f"aggverify: {sentence}" in ran.err
    assert "Traceback" not in ran.err
    assert "its token_mean weight" in ran.out
    assert "its token_mean weight" in (tmp_path / "o" / "report.txt").read_text()
    assert f'"exit": {code}' in (tmp_path / "o" / "verdict.json").read_text()


_subjects = resolution.subjects


@pytest.mark.parametrize(("how", "code"), [(">/dev/full", 2), (">&-", 2), ("", 0)])
def test_output_that_goes_nowhere_exits_2(how: str, code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # "": to a reader that has ended, as `head` does: no error
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m aggverify explain AGV202 {how}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert ran.returncode == code, ran
    error = "aggverify: error: cannot write to standard output: "
    assert ran.stderr.startswith(error) if code else ran.stderr == "", ran
    assert ran.stderr.count("\n") == bool(code)


def test_a_full_output_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["aggverify", "check", str(RIGHT), *LITTLE, "--report", "text", "--report-dir", "o"]
    monkeypatch.setattr(sys, "argv", command)
    with (
        open("/dev/full", "w") as full,  # noqa: PTH123
        open("said", "w") as said,  # noqa: PTH123
        monkeypatch.context() as patch,
        pytest.raises(SystemExit) as left,
    ):
        patch.setattr(sys, "stdout", full)
        patch.setattr(sys, "stderr", said)
        main()
    assert left.value.code == 2
    assert "its token_mean weight" in (tmp_path / "o" / "report.txt").read_text()
    told = (tmp_path / "said").read_text()
    assert "cannot write to standard output: No space left on device" in told
    assert "Conforms: token_mean" in told, "the verdict reached is still told"


DECLARED = {
    "10**400": "AGGVERIFY: divisor must be a finite number, got 1000",
    "10**5000": "AGGVERIFY must be a table of plain values",
    "float('nan')": "AGGVERIFY: divisor must be a finite number, got nan",
    "-1": "divisor",
    "1j": "AGGVERIFY must be a table of plain values",
}


@pytest.mark.parametrize("number", DECLARED)
def test_absurd_numbers_of_a_file_end_in_a_sentence(cli: Cli, tmp_path: Path, number: str) -> None:
    declared = f"AGGVERIFY = {{'mode': 'constant', 'divisor': {number}}}\n"
    (tmp_path / "r.py").write_text(
        f"{declared}def reduce(losses, batch):\n    return losses.sum()\n"
    )
    ran = cli("check", "r.py")
    assert ran.code == 2, ran
    assert DECLARED[number] in ran.err
    assert "internal error" not in ran.err and "Traceback" not in ran.err


def test_huge_lists_of_a_file_end_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    declared = "AGGVERIFY = {'mode': ['token_mean'] * COUNT}\n"
    for count, words in (("1000", "mode must be at most 100, got 1000"), ("10**6", "plain values")):
        source = f"{declared.replace('COUNT', count)}def reduce(losses, batch):\n    return 1\n"
        (tmp_path / "r.py").write_text(source)
        ran = cli("check", "r.py")
        assert (ran.code, words in ran.err) == (2, True), ran


@pytest.mark.parametrize(
    "options",
    [
        *(["check", RIGHT, "--seed", "9" * n] for n in (400, 5000)),
        *(["check", RIGHT, "--max-examples", "9" * n] for n in (30, 5000)),
        *(
            ["check", RIGHT, "--max-time", n]
            for n in ("nan", "inf", "-1", "1e400", "1e-400", "1e300")
        ),
        *(
            ["check", RIGHT, "--mode", "constant", "--divisor", n]
            for n in ("nan", "1e400", "-1", "0")
        ),
        ["check", RIGHT, "--mode", f"vl_norm({'9' * 400})"],
        ["check", RIGHT, "--world", "9" * 400],
        ["oracle", "1/1", "--digits", "9" * 30],
        ["oracle", "1/1", "--divisor", "nan"],
        ["oracle", "1/1", "--divisor", "1e400"],
        ["oracle", f"{'9' * 400}/1"],
        ["oracle", f"{'9' * 5000}/1"],
        ["oracle", "1/1", "--losses", "1e400,2"],
        ["oracle", "1/1", "--mode", f"length_weighted({'9' * 5000})"],
    ],
    ids=lambda options: " ".join(o[-12:] for o in map(str, options)),
)
def test_absurd_numbers_of_the_command_line_end_in_a_sentence(cli: Cli, options: list[str]) -> None:
    ran = cli(*options)
    assert ran.code == 2, ran
    assert "internal error" not in ran.err and "Traceback" not in ran.err
    assert ran.err.count("\n") <= 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_that_end_a_command_are_taken_as_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # a shell's background job ignores SIGQUIT
    try:
        with pytest.raises(KeyboardInterrupt), ways_out.ended_gently():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("name", "text"), [("queue", "x = 1"), ("gettext", "x = 1"), ("json", "raise ImportError")]
)
def test_a_file_in_place_of_pythons_own_module_is_named(
    tmp_path: Path, name: str, text: str
) -> None:
    """Also where it raises, and no such module is there afterwards."""
    (tmp_path / f"{name}.py").write_text(f"{text}\n")
    ran = subprocess.run(
        [sys.executable, "-m", "aggverify", "check", str(RIGHT)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2, ran
    assert ran.stderr == (
        f"aggverify: error: {tmp_path}/{name}.py is imported in place of Python's own module "
        f"{name}: rename it, or take its folder out of PYTHONPATH\n"
    )
