"""``aggverify new``: what is written runs at once, and passes and fails rightly."""

from __future__ import annotations

import importlib
import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.adapted import FRAMEWORKS, METHOD, NO_RATIO, VERL, Signature
from tests.choosing import LATER, thorough_at_times
from tests.conftest import EXAMPLES, ROOT, Cli

BRIEF = ["--profile", "quick", "--max-examples", "3", "--world", "2"]
ODD = "def f(a, b, n):\n    return (a * b).sum() / max(n, 1)\n"


def verdicts(cli: Cli, folder: Path, command: str) -> tuple[int, Mapping[str, list[str]]]:
    """Exit code, and the codes that fail by mode, of the command that ``new`` prints."""
    program, *arguments = shlex.split(command)
    assert program == "aggverify"
    ran = cli(*arguments, *BRIEF, "--report", "json")
    document = json.loads((folder / ".aggverify" / "verdict.json").read_text())
    return ran.code, {
        v["mode"]: [f["code"] for f in v["findings"] if f["effect"] == "fails"]
        for v in document["verdicts"]
    }


def begun(cli: Cli, folder: Path, source: str, *options: str) -> tuple[int, str, str]:
    """Exit code of ``new``, what it tells, and the command it names."""
    (folder / "theirs.py").write_text(source)
    shutil.copy(EXAMPLES / "slime" / "zigzag.py", folder)
    ran = cli("new", "theirs.py", *options)
    assert ran.code in (0, 2), ran
    [command] = [line[6:] for line in ran.out.splitlines() if line.startswith("next: ")] or [""]
    return ran.code, ran.out + ran.err, command


RUNS = [s for s in FRAMEWORKS if not s.left]


def test_most_of_what_frameworks_have_runs_without_an_edit() -> None:
    """The figure of the README; that each of them does is tested below."""
    assert (len(RUNS), len(FRAMEWORKS)) == (16, 21)


@pytest.mark.parametrize("signature", thorough_at_times([*RUNS, METHOD], 17, ids=lambda s: s.name))
def test_a_right_function_passes_and_a_wrong_one_fails(
    cli: Cli, tmp_path: Path, signature: Signature
) -> None:
    code, told, command = begun(cli, tmp_path, signature.source)
    assert code == 0, told
    code, failed = verdicts(cli, tmp_path, command)
    assert failed[signature.mode] == [*signature.fails]
    assert code == (1 if any(failed.values()) else 0)
    right, wrong = signature.wrong
    assert right in signature.source
    (tmp_path / "theirs.py").write_text(signature.source.replace(right, wrong))
    code, failed = verdicts(cli, tmp_path, command)
    assert (code, bool(failed[signature.mode])) == (1, True)


@pytest.mark.parametrize(
    "signature", thorough_at_times([s for s in FRAMEWORKS if s.left], 9, ids=lambda s: s.name)
)
def test_what_is_left_to_say_fails_in_one_line(
    cli: Cli, tmp_path: Path, signature: Signature
) -> None:
    code, told, command = begun(cli, tmp_path, signature.source)
    assert code == 2
    left = [line[13:] for line in told.splitlines() if line.startswith("left to you: ")]
    assert tuple(left) == signature.left
    assert f"  marked in {command.split()[-1]}, which fails until then\n" in told
    checked = cli(*shlex.split(command)[1:])
    assert checked.code == 2
    said = "say below what " + left[0].upper()
    said = "the call below" if "the call" in left else said
    said = f"say below {left[0]}" if left[0].startswith("how ") else said
    assert f"NotImplementedError: {said}" in checked.err


def test_what_cannot_be_called_is_told_and_nothing_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("class GRPO:\n    def __init__(self, args): ...\n")
    ran = cli("new", "theirs.py")
    assert (ran.code, ran.out) == (2, "")
    assert "GRPO(args): is a class whose objects cannot be called" in ran.err
    # Python's own cache is no file of ours.
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"theirs.py"}


NEEDY = METHOD.source.replace("scale=1", "scale")


def test_a_line_that_builds_the_object_of_a_method_is_left_to_the_person(
    cli: Cli, tmp_path: Path
) -> None:
    code, told, command = begun(cli, tmp_path, NEEDY)
    assert code == 2 and "left to you: how GRPO is built\n" in told
    assert told.count("left to you") == 1
    checked = cli(*shlex.split(command)[1:])
    assert "NotImplementedError: say below how GRPO is built, then delete" in checked.err
    path = tmp_path / "aggverify_GRPO_grpo_loss.py"
    lines = path.read_text().splitlines()
    assert lines[6].startswith("raise ") and lines[7] == "_object = GRPO(scale=None)"
    lines[6:8] = ["_object = GRPO(scale=1)"]
    path.write_text("\n".join(lines))
    ran = cli(*shlex.split(command)[1:], *BRIEF, "--only", "weights_are_the_modes")
    assert ran.code == 0 and "token_mean (identified)" in ran.out, ran


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("returned", "written"), [(', {"kl": 0.0}', "loss[0]"), LATER("", "_object")]
)
def test_a_loss_without_ratios_is_called_as_its_result_is(
    cli: Cli, tmp_path: Path, returned: str, written: str
) -> None:
    source = NO_RATIO.source.replace(', {"kl": 0.0}', returned)
    code, told, command = begun(cli, tmp_path, source)
    assert code == 0 and "mode: token_mean\n" in told
    assert "return " + written in (tmp_path / "aggverify_GRPO_grpo_loss.py").read_text()
    ran = cli(*shlex.split(command)[1:], *BRIEF)
    assert ran.code == 0 and "AGVW17" not in ran.out, ran
    (tmp_path / "theirs.py").write_text(source.replace(*NO_RATIO.wrong))
    assert cli(*shlex.split(command)[1:], *BRIEF).code == 1


RATIO = """
import torch

def grpo_loss(logps, old_logps, advantages, mask, num_tokens):
    ratios = torch.exp(logps - old_logps) * advantages
    return torch.where(mask.bool(), -ratios, 0.0).sum() / max(num_tokens, 1)
"""
ONE_A_ROW = RATIO.replace("* advantages", "* advantages.unsqueeze(1)")
ON_POLICY = RATIO.replace("old_logps)", "logps.detach())").replace(" old_logps,", "")


@pytest.mark.thorough
@pytest.mark.parametrize("broken", [False, True], ids=["right", "wrong"])
def test_advantages_of_whole_rows_are_no_losses_of_tokens(
    broken: bool, cli: Cli, tmp_path: Path
) -> None:
    """Given one a token they are broadcast, and right weights would come out as wrong ones."""
    source = ONE_A_ROW.replace("max(num_tokens, 1)", "mask.numel()") if broken else ONE_A_ROW
    code, told, _ = begun(cli, tmp_path, source, "--mode", "token_mean", "--engine", "sum")
    assert code == 2 and "left to you: the call" in told
    assert "advantages are one a sample here" in told and '"gradient_of"' in told
    assert "one a sample" in (tmp_path / "aggverify_grpo_loss.py").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("either", [False, True], ids=["of tokens", "of either"])
def test_a_wrong_one_that_takes_advantages_of_tokens_is_given_losses(
    either: bool, cli: Cli, tmp_path: Path
) -> None:
    """No mode shows which form is right: with one a row it fails, or has the same weights."""
    source = RATIO.replace("max(num_tokens, 1)", "mask.numel()")
    if either:
        rows = "    advantages = advantages.view(len(mask), -1)\n"
        source = source.replace("    ratios", f"{rows}    ratios", 1)
    code, told, _ = begun(cli, tmp_path, source, "--mode", "token_mean", "--engine", "sum")
    assert code == 0 and "one a sample" not in told


@pytest.mark.thorough
def test_a_ratio_to_the_same_policy_has_the_losses_as_advantages(cli: Cli, tmp_path: Path) -> None:
    code, told, command = begun(cli, tmp_path, ON_POLICY, "--engine", "sum")
    assert code == 0 and "mode: token_mean\n" in told
    assert "advantages = -rows (found by calling it)" in told
    assert verdicts(cli, tmp_path, command) == (0, {"token_mean": []})


@pytest.mark.thorough
def test_a_call_that_never_ends_is_left_to_the_person_in_time(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends within 60 s, ten of which are not for calls."""
    command = importlib.import_module("aggverify.cli.new")
    assert command.SECONDS <= 50
    monkeypatch.setattr(command, "SECONDS", 15.0)
    (tmp_path / "spins.py").write_text("def f(losses, mask):\n    while True: pass\n")
    began = time.monotonic()
    ran = cli("new", "spins.py")
    assert time.monotonic() - began < 25
    assert ran.code == 2 and "calls of it were not over when the time was" in ran.out, ran
    assert "left to you: mode" in ran.out and "mode: " not in ran.out


def test_nothing_is_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "test_aggverify_f.py").write_text("mine")
    code, told, _ = begun(cli, tmp_path, ODD, "--set", "a=rows", "--set", "b=mask", "--set", "n=1")
    assert code == 2
    assert "nothing was written; delete or rename first: " in told and "test_aggverify_f.py" in told
    assert (tmp_path / "test_aggverify_f.py").read_text() == "mine"
    assert not (tmp_path / "aggverify_f.py").exists()
    assert not (tmp_path / ".github").exists()


def test_what_a_call_shows_is_said_to_be_so(cli: Cli, tmp_path: Path) -> None:
    options = ["--set", "b=mask", "--set", "n=batch.num_tokens"]
    code, told, command = begun(cli, tmp_path, ODD, *options)
    assert code == 0
    assert "a = rows (found by calling it)" in told and "mode: token_mean" in told
    text = (tmp_path / "aggverify_f.py").read_text()
    assert "rows,  # found by calling it: is it that?" in text
    assert '"mode": "token_mean",  # found by calling it: is it that?' in text
    assert command == "aggverify check aggverify_f.py"


ONE = ("--only", "weights_are_the_modes")
SEQS = """
import torch

def seq_loss(values, mask, num_seqs):
    rows = torch.where(mask, values, 0).sum(-1) / mask.sum(-1).clamp(min=1)
    return rows.sum() / max(num_seqs, 1)
"""


def test_a_guess_with_another_plausible_reading_is_asked_and_printed(
    cli: Cli, tmp_path: Path
) -> None:
    code, told, command = begun(cli, tmp_path, SEQS)
    assert code == 0
    assert (
        "to confirm: num_seqs: rollouts of the step (sample_mean, right under sum), or rows of the "
        "micro-batch (sample_mean, wrong in some layouts)? The latter: --set "
        "'num_seqs=len(batch.loss_masks)'\n"
    ) in told
    path = tmp_path / "aggverify_seq_loss.py"
    confirm = '        "num_seqs": "rollouts of the step, not rows of the micro-batch",'
    lines = path.read_text().splitlines()
    line = lines.index(confirm) + 1
    checked = cli(*shlex.split(command)[1:], *BRIEF, *ONE, "--report", "json")
    said = "rollouts of the step, not rows of the micro-batch"
    printed = f"! assumed num_seqs = {said} (aggverify_seq_loss.py line {line}) "
    assert checked.code == 0 and printed in " ".join(checked.out.split())
    [verdict] = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"]
    assert {"name": "num_seqs", "reading": said, "line": line} in verdict["assumed"]
    path.write_text("\n".join(line for line in lines if line != confirm))
    assert "num_seqs" not in cli(*shlex.split(command)[1:], "--list").out


@pytest.mark.thorough
def test_the_other_reading_is_another_verdict(cli: Cli, tmp_path: Path) -> None:
    code, told, command = begun(cli, tmp_path, SEQS, "--set", "num_seqs=len(batch.loss_masks)")
    assert code == 0 and "to confirm" not in told
    assert "num_seqs" not in (tmp_path / "aggverify_seq_loss.py").read_text().partition("def")[0]
    assert verdicts(cli, tmp_path, command)[0] == 1


@pytest.mark.exhaustive
def test_where_several_modes_are_possible_the_person_says_which(cli: Cli, tmp_path: Path) -> None:
    code, told, _ = begun(cli, tmp_path, ODD)
    assert code == 2
    assert "--mode token_mean means n = batch.num_tokens" in told
    assert "--mode sequence_sum means n = batch.num_rollouts" in told
    for path in (tmp_path / "aggverify_f.py", tmp_path / "test_aggverify_f.py"):
        path.unlink()
    shutil.rmtree(tmp_path / ".github")
    code, told, command = begun(cli, tmp_path, ODD, "--mode", "token_mean")
    assert code == 0
    assert verdicts(cli, tmp_path, command) == (0, {"token_mean": []})
    (tmp_path / "theirs.py").write_text(ODD.replace("max(n, 1)", "max(len(b), 1)"))
    assert verdicts(cli, tmp_path, command)[0] == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "name", "answer", "asked", "written"),
    [
        (ODD, "mode", "sequence_sum", "which mode does f implement?", "batch.num_rollouts,"),
        (SEQS, "num_seqs", "micro-batch", "or rows of the micro-batch (", "len(batch.loss_masks),"),
    ],
)
def test_on_a_terminal_it_is_asked(
    tmp_path: Path, source: str, name: str, answer: str, asked: str, written: str
) -> None:
    (tmp_path / "theirs.py").write_text(source)
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "aggverify", "new", "theirs.py"])
    told = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # its end
            break
        told += read
        if told.endswith(f"{name}: ".encode()):
            os.write(terminal, f"{answer}\n".encode())
    assert os.waitpid(child, 0)[1] == 0, told
    assert asked.encode() in told
    [path] = tmp_path.glob("aggverify_*.py")
    assert f"        {written}" in path.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "n"], "--set takes PARAMETER=EXPRESSION, got 'n'"),
        (["--set", "n=1 +"], "n=1 +: not a Python expression"),
        (["--set", "n=1\nimport os"], "not a Python expression in one line"),
        (["--set", "m=1"], "f(a, b, n) has no parameter 'm'"),
        (["--engine", "maen"], "unknown engine 'maen'"),
        (["--mode", "token_maen"], "unknown mode 'token_maen'"),
        (["--mode", "prompt_mean"], "takes its mode from loss_agg_mode, which can be token_mean, "),
    ],
)
def test_what_is_said_wrongly_is_named(
    cli: Cli, tmp_path: Path, options: list[str], words: str
) -> None:
    source = VERL.source if "prompt_mean" in options else ODD
    code, told, _ = begun(cli, tmp_path, source, *options)
    assert code == 2 and words in told
    assert not list(tmp_path.glob("aggverify_*"))


def test_what_needs_no_choice_or_adapter_says_so(cli: Cli, tmp_path: Path) -> None:
    two = "def reduce_a(losses, batch): ...\ndef reduce_b(losses, batch): ...\n"
    code, told, _ = begun(cli, tmp_path, two)
    assert code == 2 and "offers several reducers; name the one to check" in told
    (tmp_path / "theirs.py").write_text(two)
    ran = cli("new", "theirs.py:reduce_a", "--set", "losses=1")
    assert ran.code == 2 and "needs no adapter, so --set has no use" in ran.err
    missing = cli("new", "theirs.py:reduce_c")
    assert missing.code == 2 and "did you mean 'reduce_" in missing.err
    assert not list(tmp_path.glob("*aggverify_*"))


@pytest.mark.thorough
def test_the_written_test_and_the_workflow_s_command_run(cli: Cli, tmp_path: Path) -> None:
    begun(cli, tmp_path, VERL.source)
    workflow = (tmp_path / ".github" / "workflows" / "aggverify_agg_loss.yml").read_text()
    [check] = [x for x in workflow.splitlines() if "run: aggverify" in x]
    command = check.partition("run: ")[2]
    assert command == "aggverify check aggverify_agg_loss.py --github --report json,md,html"
    summary = tmp_path / "summary.md"
    ran = cli(*shlex.split(command)[1:], *BRIEF, env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert ran.code == 0 and summary.read_text()
    test = tmp_path / "test_aggverify_agg_loss.py"
    arguments = [*map(str, (test, "-q", "-p", "no:cacheprovider"))]
    few = ["--aggverify-profile", "quick", "-k", "weights_are or linear"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *few],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    source = VERL.source.replace(*VERL.wrong)
    (tmp_path / "theirs.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *few],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "AGV101" in done.stdout and "1 failed" in done.stdout


FORMS = {
    "numbers": ("(loss * (1 - (1 - mask))).sum() / max(num_tokens, 1)", ".to(losses.dtype)"),
    "flat": ("(loss * mask).sum() / (num_tokens if loss.dim() == 1 else None)", "torch.cat("),
    "lists": (
        "sum((a * b).sum() for a, b in zip(loss, mask)) / (num_tokens if type(loss) is tuple "
        "else None)",
        "rows = losses.split(lengths)",
    ),
    "several": (
        "((loss * mask).sum() / max(num_tokens, 1), loss.detach(), 'note', 3)",
        "return loss[0]\n",
    ),
}
"""What a function makes of losses and masks, and what its adapter then has."""


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_losses_and_results_is_found_by_calling(
    cli: Cli, tmp_path: Path, form: str
) -> None:
    body, text = FORMS[form]
    code, told, _ = begun(
        cli, tmp_path, f"def reduce_loss(loss, mask, num_tokens):\n    return {body}\n"
    )
    assert code == 0, told
    assert "mode: token_mean" in told
    assert text in (tmp_path / "aggverify_reduce_loss.py").read_text()
