"""The command line end to end: exit codes, messages, replay, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggverify.codes import CODES
from tests.conftest import EXAMPLES, ROOT, Cli
from tests.waiting import wait_until

BROKEN = EXAMPLES / "broken" / "micro_batch_token_mean.py"
LITTLE = ("--profile", "quick", "--world", "2", "--max-examples", "2")
REPORT = ("--report", "json")
FIXED = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *(
            [c, "--help"]
            for c in ("check", "replay", "new", "oracle", "modes", "engines", "explain")
        ),
        ["explain"],
        ["explain", "agv202"],
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom aggverify.cli import main\n"
        f"sys.argv = ['aggverify', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'hypothesis', 'numpy', 'mpmath', 'rich', 'jinja2', 'junitparser'}\n"
        "heavy |= {'importlib.metadata'} if '--help' in sys.argv else set()\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file: "),
        ("def reduce(losses, batch)\n    return 1\n", "line 1: expected ':'"),
        ("import no_such_package\n", "No module named 'no_such_package'"),
        ("import os\nos._exit(3)\n", "status 3"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("def loss(x):\n    return x\n", "loss(x)"),
        ("", "defines no public function"),
    ],
    ids=["missing", "syntax", "import", "exit", "sys-exit", "no-reducer", "empty"],
)
def test_what_cannot_be_judged_exits_2(
    cli: Cli, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "r.py").write_text(content)
    ran = cli("check", "r.py")
    assert ran.code == 2, ran
    assert message in ran.err
    assert "aggverify/" not in ran.err, "a traceback of ours"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "token_men"], "did you mean 'token_mean'"),
        (["--mode", "constant"], "needs --divisor"),
        (["--profile", "fats"], "did you mean 'fast'|unknown profile 'fats'"),
        (["--world", "9"], "between 1 and 8, got 9"),
        (["--report", "pdf"], "unknown report format 'pdf'"),
        (["--report", "json,mkd"], "unknown report format 'mkd'; did you mean 'md'"),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_options_exit_2(cli: Cli, options: list[str], message: str) -> None:
    import re

    ran = cli("check", FIXED, *options)
    assert ran.code == 2, ran
    assert re.search(message, ran.err)


@pytest.mark.thorough
def test_identifies_the_mode(cli: Cli, tmp_path: Path) -> None:
    source = (EXAMPLES / "slime" / "sample_mean.py").read_text()
    (tmp_path / "zigzag.py").write_text((EXAMPLES / "slime" / "zigzag.py").read_text())
    lines = [line for line in source.splitlines() if not line.startswith("AGGVERIFY")]
    (tmp_path / "hook.py").write_text("\n".join(lines))
    ran = cli("check", "hook.py", *LITTLE)
    assert ran.code == 0, ran
    assert "sample_mean (identified)" in ran.out
    assert "engine megatron-sample (slime's default)" in ran.flat


@pytest.mark.thorough
def test_one_reducer_may_be_two_modes_under_two_engines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import torch\n\n\ndef get_pg_loss_reducer(total_lengths, response_lengths, loss_masks, "
        "calculate_per_token_loss=False):\n"
        "    mask = torch.cat(loss_masks).bool()\n"
        "    return lambda losses: torch.where(mask, losses, 0.0).sum()\n"
    )
    ran = cli("check", "r.py", "--profile", "quick", "--world", "1")
    assert ran.code == 0, ran
    assert "sequence_sum (identified)" in ran.out
    assert "with --engine megatron-token it implements token_mean" in ran.flat
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}  # Python's own
    assert left == {"r.py"}, "something was left behind"


@pytest.mark.thorough
def test_no_known_mode_still_checks_invariance(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import torch\n\n\ndef reduce(losses, batch):\n"
        "    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)\n"
        "    return kept.sum() / max(batch.num_tokens, 1) ** 2\n"
    )
    ran = cli("check", "r.py", *LITTLE)
    assert ran.code == 0, ran
    assert " · no known mode · " in ran.out
    assert "PASS  the step scalar is the same in every layout tried (no known mode)" in ran.out


@pytest.mark.thorough
def test_replay_tells_failed_and_fixed(cli: Cli, tmp_path: Path) -> None:
    checked = cli("check", BROKEN, *LITTLE)
    assert checked.code == 1
    assert "AGV301" not in checked.out, "what is wrong for a few tokens is not the count's size"
    lines = [line.partition("] ")[2] for line in checked.out.splitlines() if line.startswith("[")]
    told = [line for line in lines if not line.startswith("check ")]
    assert told[0] == "AGV202 Result depends on the split into micro-batches"
    assert len(set(told)) == len(told), "one line for a finding"
    case = min((tmp_path / ".aggverify" / "cases").glob("*.json"))
    again = cli("replay", case.stem, BROKEN)
    assert again.code == 1, again
    assert again.out.startswith(f"FAILED  case {case.stem}: AGV20")
    fixed = cli("replay", case, FIXED)
    assert fixed.code == 0, fixed
    assert fixed.out.startswith(f"FIXED   case {case.stem}: AGV20")
    exact = cli("oracle", case)
    assert exact.code == 0, exact
    assert "token_mean" in exact.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "none is stored here"),
        (["case.json"], "the stored case must be an object, got"),
        (["broken.json"], "cannot read a case"),
    ],
)
def test_replay_of_nothing_is_an_error(
    cli: Cli, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "case.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    ran = cli("replay", *arguments)
    assert ran.code == 2, ran
    assert ran.err.startswith("ERROR   case ")
    assert message in ran.err


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A long check whose ranks are up; killed at the end whatever the test did."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aggverify", "check", str(FIXED), "--profile", "thorough", *REPORT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(_descendants(process.pid)) >= 4 or process.poll() is not None)
        assert process.poll() is None, "ended before its ranks were up"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None and process.stdout is not None
        process.stderr.close()
        process.stdout.close()


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found, frontier = set(), {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def _gone(pids: set[int]) -> bool:
    """Whether none of these runs any more (zombies of a lost parent do not count)."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            alive.add(pid)
    return not alive


def test_ctrl_c_tells_what_is_known_exits_130_and_leaves_no_process(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    children = _descendants(running.pid)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130
    assert b"INCOMPLETE  interrupted: no finding so far, " in out
    assert b"conform" not in out and b"PASS" not in out
    written = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    assert (written["exit"], written["incomplete"]) == (130, "interrupted")
    assert [verdict["incomplete"] for verdict in written["verdicts"]] == ["interrupted"]
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert wait_until(lambda: _gone(children))


@pytest.mark.thorough
def test_sigkill_of_the_parent_leaves_no_process(running: subprocess.Popen[bytes]) -> None:
    children = _descendants(running.pid)
    running.kill()
    running.communicate()
    assert wait_until(lambda: _gone(children))


def test_oracle_prints_fractions_and_digits(cli: Cli) -> None:
    typed = cli("oracle", "2/110 3/1; 1/11+4/1", "--losses", "1,2,nan,4,5,6.5,7", "--digits", "30")
    assert typed.code == 0, typed
    assert "0       0             0        ##.   1/6" in typed.out
    assert "sample_mean   35/9    3.88888888888888888888888888889" in typed.out


@pytest.mark.parametrize("step", ["2/12", "", "nope.json"])
def test_oracle_refuses_what_is_no_step(cli: Cli, step: str) -> None:
    ran = cli("oracle", step)
    assert ran.code == 2, ran


def test_modes_lists_every_mode_and_name(cli: Cli) -> None:
    ran = cli("modes")
    assert ran.code == 0, ran
    for text in ("prompt_mean", "verl: seq-mean-token-sum-norm", "2503.20783", "A ragged example"):
        assert text in ran.out


def test_oracle_takes_modes_families_and_policy(cli: Cli) -> None:
    chosen = ("--mode", "vl_norm(2)", "--mode", "sequence_sum", "--divisor", "2")
    ran = cli("oracle", "2/110 3/1; 1/00", *chosen, "--policy", "empty_units=exclude")
    assert ran.code == 0, ran
    header, first, *_ = ran.out.splitlines()[3:]
    assert header.split()[-2:] == ["vl_norm(2)", "sequence_sum"]
    # (1/4) / (2 * (1/4 + 1)) and 1 / 2, the empty rollout left out.
    assert first.split()[-2:] == ["1/10", "1/2"]
    assert "policy    empty_units: exclude" in ran.out
    bad = cli("oracle", "1/1", "--policy", "empty=exclude")
    assert (bad.code, "did you mean 'empty_units'" in bad.err) == (2, True)


def test_modes_lists_families_and_policies(cli: Cli) -> None:
    ran = cli("modes")
    assert ran.code == 0, ran
    assert "vl_norm(a)" in ran.out
    assert "length_weighted(p)" in ran.out
    assert "several_samples  rollout, sample, samples_over_rollouts, mean_within_rollout" in ran.out


def test_the_divisor_of_a_family_is_asked_for(cli: Cli) -> None:
    ran = cli("check", FIXED, "--mode", "vl_norm(1/2)")
    assert ran.code == 2, ran
    assert "--mode vl_norm(1/2) needs --divisor" in ran.err


def test_explain_tells_all_of_a_code(cli: Cli) -> None:
    ran = cli("explain", "agv202")
    assert ran.code == 0, ran
    for expected in (
        "AGV202  Result depends",
        "def micro_batch_means",
        "1/3",
        "verl #5625",
        "Usual",
    ):
        assert expected in ran.out
    everything = cli("explain")
    assert "AGV101" in everything.out and "AGVW01" in everything.out


def test_explain_of_an_unknown_code_names_the_nearest(cli: Cli) -> None:
    ran = cli("explain", "AVG202")
    assert ran.code == 2, ran
    assert f"did you mean 'AGV202'? (all {len(CODES)}: aggverify explain)" in ran.err


@pytest.mark.thorough
def test_a_healthy_run_warns_of_nothing_but_what_it_lacks(cli: Cli, tmp_path: Path) -> None:
    few = ("--world", "2", "--max-examples", "4", "--max-time", "600", "--report", "json")
    ran = cli("check", FIXED, *few)
    assert ran.code == 0, ran
    verdict = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"][0]
    warned = {warning["code"]: warning["quiet"] for warning in verdict["warnings"]}
    assert warned.pop("AGVW04") is True, "NCCL was not used"
    assert all(warned.values()), warned
    assert "!" not in ran.out, ran


@pytest.mark.thorough
def test_a_finding_says_what_matters_in_every_report(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "summary").write_text("before\n")
    (tmp_path / "r.py").write_text(BROKEN.read_text())
    where = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_WORKSPACE": str(tmp_path)}
    asked = ["--report", "json,junit,md,html", "--report-dir", "out", "--github"]
    ran = cli("check", "r.py", *LITTLE, *asked, env=where)
    assert ran.code == 1, ran
    markdown = (tmp_path / "out" / "summary.md").read_text()
    assert (tmp_path / "summary").read_text() == f"before\n{markdown}\n"
    assert "- **You compute**: the mean over micro-batches of each" in markdown
    assert "This reducer makes some gradients" in (tmp_path / "out" / "report.html").read_text()
    assert '<failure message="AGV202 ' in (tmp_path / "out" / "junit.xml").read_text()
    assert "\n::error file=r.py,line=11,title=AGV202 Result depends on the split" in ran.out
    matters = "micro-batches (not dtype, loss values, prompt lengths, prompt groups)"
    assert f"  matters      {matters}\n" in ran.out


def test_reports_also_tell_that_nothing_could_be_judged(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("\n\ndef reduce(losses, batch)\n    return 1\n")
    ran = cli("check", "r.py", "--report", "junit,json,html,md", "--report-dir", "o", "--github")
    assert ran.code == 2, ran
    assert "::error file=r.py,line=3,title=Could not judge::syntax error in r.py" in ran.out
    assert 'errors="1"' in (tmp_path / "o" / "junit.xml").read_text()
    assert '"exit": 2' in (tmp_path / "o" / "verdict.json").read_text()
    missing = cli("check", "r.py", "--github", env={"GITHUB_STEP_SUMMARY": str(tmp_path / "n/s")})
    assert (missing.code, "no step summary" in missing.err) == (2, True), missing


def test_render_writes_a_stored_verdict_in_any_format(cli: Cli, tmp_path: Path) -> None:
    assert cli("check", "nosuch.py", "--report", "json,md", "--report-dir", "o").code == 2
    ran = cli("render", "o/verdict.json", "--format", "md")
    assert ran.code == 0, ran
    assert ran.out.rstrip("\n") == (tmp_path / "o" / "summary.md").read_text().rstrip("\n")


@pytest.mark.thorough
def test_project_settings_are_used_said_and_overridden(cli: Cli, tmp_path: Path) -> None:
    settings = '[tool.aggverify]\nmode = "sample_mean"\nprofile = "quick"\nworld = 1\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    source = (EXAMPLES / "native" / "sum" / "token_mean.py").read_text()
    lines = [line for line in source.splitlines() if not line.startswith("AGGVERIFY")]
    (tmp_path / "r.py").write_text("\n".join(lines))
    ran = cli("check", "r.py", "--max-examples", "5")
    assert ran.code == 1, ran  # the project says sample_mean, the reducer is a token mean
    assert f"[tool.aggverify] in {tmp_path}/pyproject.toml says mode, profile, world" in ran.flat
    other = cli("check", "r.py", "--max-examples", "5", "--mode", "token_mean")
    assert other.code == 0, other
    (tmp_path / "pyproject.toml").write_text("[tool.aggverify]\nprofil = 'quick'\n")
    bad = cli("check", "r.py")
    assert bad.code == 2, bad
    assert "[tool.aggverify] in" in bad.err
    assert "did you mean 'profile'" in bad.err
    named = cli("check", "r.py", "--config", "nosuch.toml")
    assert (named.code, "cannot read nosuch.toml" in named.err) == (2, True), named
