"""The script of a finding shows it with nothing but torch, and that a right reducer is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.checks import check, terms
from aggverify.checks.counts import BEYOND
from aggverify.checks.layout import COMBINED
from aggverify.codes import Example
from aggverify.conventions import CONVENTIONS, PlainlyCalled
from aggverify.engines import engine
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.report import model, plain_torch
from aggverify.report.formats import FORMATS
from aggverify.report.plain_torch import Script, script
from aggverify.run.opening import loaded
from aggverify.run.outcome.tally import Tally
from aggverify.run.planning.request import Request
from aggverify.run.search.check_run import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests import verdicts
from tests.choosing import LATER, thorough_at_times
from tests.conftest import EXAMPLES as FILES
from tests.conftest import ROOT, Cli
from tests.explained import EXAMPLES, IDS, case_of, subject_of
from tests.scripts import ranks

SHOWN = [(n, e) for n, (_, e) in zip(IDS, EXAMPLES, strict=True) if e.ones < BEYOND]
"""By name; 2^24 tokens are in no script."""
TWO_BY_TWO = Case(
    parse_step("2/111 1/1; 3/1101 1/11"),
    Layout(parse_micro_batches("0 1 | 2 3")),
    (0.0,) * 10,
)
"""Steps of two ranks and two micro-batches."""
RAGGED = Case(parse_step("1/1; 1/11"), Layout(parse_micro_batches("0 1")), (1.0, 2.0, 3.0))
NOT_SHOWN = {
    "AGV209": "rounding in a script may be as large as what is wrong",
    "AGV214": "it takes gradients larger than the clip",
    "AGV215": "it takes log-probabilities at other ratios",
    "AGV216": "it takes log-probabilities at other ratios",
    "AGV413": "it takes the engine's own hooks",
}
RIGHT = {
    ("token_mean", "sum"): "selected_on_both_sides",
    ("token_mean", "mean"): "average_undone",
    ("token_mean", "megatron-token"): "count_in_three_parts",
    ("sample_mean", "sum"): "token_by_token",
    ("sample_mean", "megatron-sample"): "scatter_added",
    ("prompt_mean", "sum"): "double_precision",
    ("prompt_mean", "accumulated-mean"): "accumulation_undone",
    ("constant", "sum"): "compressed",
    ("token_mean", "skyrl-fsdp"): "refuses_unknown_modes",
}
"""Of the corpus, by mode and engine."""
HANGS = ("AGV402", "AGV404")
"""Codes of which some rank does not come back; all others have the time that a busy machine
takes."""
MOST = 30
"""Lines of code beside imports, the step's data and what imports the reducer."""
WIDTH = 100
IMPORTING = ("path = ", "sys.path.insert(", "module = ", "reduce = ", "train_step = ")
IMPORTING += ("make_engine = ",)


def written(example: Example, laboratory: Laboratory) -> tuple[Subject, Script]:
    """The script of the example's finding; its reducer is found in the corpus."""
    subject = subject_of(example)
    judged = CheckRun(check(example.check), subject, Space(), laboratory, Tally(), lambda: None)
    finding = judged.judge(case_of(example))
    assert finding is not None
    family = example.mutant.partition(".")[0] if example.convention == "trainer" else "all_shown"
    found = subject.claiming(target=f"tests.corpus.{family}:{subject.function}")
    return found, script(found, finding)


def executed(folder: Path) -> dict[str, tuple[int, str]]:
    """What becomes of all scripts of the folder."""
    command = [sys.executable, "-m", "tests.scripts", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    found: dict[str, tuple[int, str]] = json.loads((folder / "results.json").read_text())
    return found


def test_every_convention_that_reduces_is_called_with_torch_alone() -> None:
    not_so = [name for name, how in CONVENTIONS.items() if not isinstance(how, PlainlyCalled)]
    assert not_so == ["validation", "log-reducer", "dealer"]


@pytest.mark.parametrize(
    "each",
    [pytest.param(12, marks=pytest.mark.thorough), LATER(1)],
)
def test_every_code_is_shown_and_a_right_reducer_is_right(
    each: int, laboratory: Laboratory, tmp_path: Path
) -> None:
    not_shown, right = {}, set()
    for name, example in SHOWN[::each]:
        if example.convention in CALLED:
            continue
        subject, made = written(example, laboratory)
        if made.text is None:
            not_shown[name.split("-")[0]] = made.why_not
            continue
        hangs = name.startswith(HANGS)
        text = made.text.replace("later(30,", f"later({10 if hangs else 300},")
        assert "aggverify" not in text.replace("engine", "") and len(code(text)) <= MOST, name
        assert max(len(line) for line in code(text)) <= WIDTH, name
        (tmp_path / f"{name}.wrong.py").write_text(text)
        other = RIGHT.get((example.mode, example.engine))
        if other and subject.convention.name in ("native", "skyrl") and not subject.terms:
            right.add(name)
            mended = made.text.replace(f"({subject.function!r})", f"({other!r})")
            mended = mended.replace("later(30,", "later(300,")
            (tmp_path / f"{name}.right.py").write_text(mended)
    assert not_shown.items() <= NOT_SHOWN.items()
    found = executed(tmp_path)
    assert {name: told for name, told in found.items() if not is_as_it_must_be(name, told)} == {}
    assert len(right) > 35 // each


CALLED = ("validation", "log-reducer", "dealer")
"""They reduce nothing: a script makes their calls."""


def refusing_adapter(folder: Path) -> str:
    """An adapter that calls a validator in a way of its own."""
    path = folder / "ours.py"
    path.write_text(
        "ADAPTER = {'validates': {}}\n\n\n"
        "def call(validate, args):\n    validate(args)\n    vars(args).update(seen=True)\n"
    )
    return str(path)


@pytest.mark.thorough
@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("wrong", ["falsy_divisor", "refuses_all"])
def test_calls_of_a_validator_are_shown(
    wrong: str, adapted: bool, cli: Cli, tmp_path: Path
) -> None:
    target = FILES / "validation" / "broken" / f"{wrong}.py"
    if wrong == "refuses_all":
        target = tmp_path / "refuses_all.py"
        target.write_text("def validate_args(args):\n    raise ValueError(args.loss_aggregation)\n")
    how = ("--adapter", refusing_adapter(tmp_path)) if adapted else ("--convention", "validation")
    assert cli("check", target, *how, "--report", "json").code == 1
    document = model.load(tmp_path / ".aggverify" / "verdict.json")
    [finding] = document.verdicts[0].findings
    assert finding.script is not None
    (tmp_path / "script.py").write_text(finding.script)
    (tmp_path / "aggverify.py").write_text("raise ImportError('not without this package')\n")
    done = launched(tmp_path, finding.script)
    told = "accepted   <- wrong" if wrong == "falsy_divisor" else "refused with ValueError"
    assert done.returncode == 1 and told in done.stdout, done
    mended = launched(tmp_path, finding.script, FILES / "validation" / "aggregation.py")
    assert mended.returncode == 0 and "wrong" not in mended.stdout, mended


BY_LAUNCH = "AGV412"
"""It shows in interpreters with hash seeds of their own: those of torchrun, not forks of one."""


def is_as_it_must_be(name: str, ran: tuple[int, str]) -> bool:
    """Ended by what is wrong, and by no mistake of the script's own."""
    ended, told = ran
    broken = "SyntaxError" in told or "NameError" in told
    fails = name.endswith(".wrong") and not name.startswith(BY_LAUNCH)
    return bool(ended) == fails and not broken


def code(text: str) -> list[str]:
    """Lines beside comments, imports, the step's data and what imports the candidate."""
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("dist.init_process_group"))
    helper = [n for n, line in enumerate(lines[:at]) if line.startswith("class ")]
    guard = [line for line in lines[:at] if line.startswith("faulthandler.")]
    code = lines[helper[0] : at] if helper else guard
    code += [line for line in lines[at:] if not line.startswith(IMPORTING)]
    return [line for line in code if line.strip()]


def test_the_report_has_it_or_says_why_not() -> None:
    document = verdicts.written(verdicts.verdict(reports=1))
    [finding] = document.verdicts[0].findings
    assert finding.script is not None and finding.no_script is None
    compile(finding.script, "script.py", "exec")
    assert len(code(finding.script)) <= MOST
    assert "Without aggverify" in FORMATS["html"].render(document)
    bare = replace(finding, script=None, no_script="it takes more")
    verdict = replace(document.verdicts[0], findings=(bare,))
    page = FORMATS["html"].render(replace(document, verdicts=(verdict,)))
    assert "No script with torch alone shows it: it takes more." in page


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("broken/cp_shard_sample_mean.py", "slime/sample_mean.py"),
        LATER("broken/micro_batch_token_mean.py", "native/accumulated_mean/token_mean.py"),
    ],
)
def test_a_file_is_shown_where_this_package_cannot_be_imported(
    wrong: str, right: str, cli: Cli, tmp_path: Path
) -> None:
    brief = ("--profile", "quick", "--world", "4", "--max-examples", "5")
    assert cli("check", FILES / wrong, *brief, "--report", "json").code == 1
    document = model.load(tmp_path / ".aggverify" / "verdict.json")
    [verdict] = document.verdicts
    finding = next(f for f in verdict.findings if f.script is not None)
    assert finding.script is not None and finding.weights is not None
    assert len(code(finding.script)) <= MOST
    (tmp_path / "script.py").write_text(finding.script)
    (tmp_path / "aggverify.py").write_text("raise ImportError('not without this package')\n")
    done = launched(tmp_path, finding.script)
    assert done.returncode == 1, done.stderr
    actual = [line.split("actual ")[1].split()[0] for line in done.stdout.splitlines()]
    assert [float(a) for a in actual] == pytest.approx([b for _, b in finding.weights])
    assert "<- wrong" in done.stdout
    fixed = launched(tmp_path, finding.script, FILES / right)
    assert fixed.returncode == 0, (fixed.stdout, fixed.stderr)


VERL = """
def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None,
             global_batch_size=None, loss_scale_factor=None):
    count = {count}
    return (loss_mat * loss_mask).sum() / max(count, 1) * dp_size
"""


@pytest.mark.thorough
def test_an_adapters_call_is_a_part_of_the_script(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(VERL.format(count="int(loss_mask.sum())"))
    (tmp_path / "right.py").write_text(VERL.format(count="batch_num_tokens"))
    brief = ("--convention", "verl", "--mode", "token_mean", "--profile", "quick")
    assert cli("check", "r.py", *brief, "--world", "2", "--report", "json").code == 1
    [verdict] = model.load(tmp_path / ".aggverify" / "verdict.json").verdicts
    text = next(f.script for f in verdict.findings if f.script is not None)
    assert "def call(agg_loss" in text and "ADAPTER" not in text
    (tmp_path / "script.py").write_text(text)
    assert "<- wrong" in launched(tmp_path, text).stdout
    fixed = launched(tmp_path, text, tmp_path / "right.py")
    assert fixed.returncode == 0, (fixed.stdout, fixed.stderr)


TERMS = {
    "terms.py": """
ADAPTER = {"engine": "sum", "terms": ["kl"]}

def call(mean, losses, batch, kl):
    mask = batch.mask.bool()
    return mean(losses, mask, batch.num_tokens) + 0.5 * mean(kl, mask, batch)
""",
    "r.py": """
def mean(x, mask, count):
    count = int(mask.sum()) if hasattr(count, "mask") else count
    return x[mask].sum() / max(count, 1)
""",
    "right.py": """
def mean(x, mask, count):
    return x[mask].sum() / max(getattr(count, "num_tokens", count), 1)
""",
}


@pytest.mark.thorough
def test_a_term_that_an_adapter_hands_over_is_shown_alone(
    shared_pool: Pool, tmp_path: Path
) -> None:
    for name, text in TERMS.items():
        (tmp_path / name).write_text(text)
    wanted = Request(
        f"{tmp_path / 'r.py'}:mean", modes=("token_mean",), adapter=str(tmp_path / "terms.py")
    )
    with loaded(wanted, shared_pool) as (found, laboratory):
        [subject] = found
        laboratory.begin()
        finding = terms.CHECK.judge(subject, laboratory.run(subject, terms.CHECK.variants(RAGGED)))
    assert finding is not None
    assert (finding.code, finding.message) == (
        "AGV207",
        "the weights of kl, with everything else 0",
    )
    made = script(subject, finding)
    assert made.text is not None
    (tmp_path / "script.py").write_text(made.text)
    assert "<- wrong" in launched(tmp_path, made.text).stdout
    assert launched(tmp_path, made.text, tmp_path / "right.py").returncode == 0


TRAINED = {"ddp": "token_mean", "fsdp2": "sample_mean", "sgd": "prompt_mean"}
TRAINED |= {"engine": "token_mean"}


@pytest.mark.parametrize("name", thorough_at_times(TRAINED, 4, ids=str))
def test_a_whole_training_step_is_shown(name: str, shared_pool: Pool, tmp_path: Path) -> None:
    if name == "fsdp2" and (why := engine("fsdp2").available()) is not None:
        pytest.skip(why)
    target = FILES / "trainer" / "broken" / f"{name}.py"
    with loaded(Request(str(target), modes=(TRAINED[name],)), shared_pool) as (found, laboratory):
        [subject] = found
        laboratory.begin()
        case = replace(TWO_BY_TWO, layout=replace(TWO_BY_TWO.layout, cp_size=1 + (name == "fsdp2")))
        finding = COMBINED.judge(subject, laboratory.run(subject, [case]))
    assert finding is not None
    made = script(subject, finding)
    assert made.text is not None and len(code(made.text)) <= MOST
    assert max(len(line) for line in code(made.text)) <= WIDTH
    (tmp_path / "script.py").write_text(made.text)
    done = launched(tmp_path, made.text)
    assert done.returncode == 1 and "<- wrong" in done.stdout, done
    assert "Error" not in done.stderr.replace("ChildFailedError", "").replace("error_file", "")
    fixed = launched(tmp_path, made.text, FILES / "trainer" / f"{name}.py")
    assert fixed.returncode == 0, (fixed.stdout, fixed.stderr)


def test_no_script_is_longer_than_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_torch, "MOST_LINES", 20)
    document = verdicts.written(verdicts.verdict(reports=1))
    [finding] = document.verdicts[0].findings
    assert finding.script is None and "more than one reads" in (finding.no_script or "")


def launched(folder: Path, text: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """As its second line says: by torchrun where it has several ranks."""
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks(text))]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *(many if ranks(text) > 1 else []), "script.py", *map(str, arguments)],
        cwd=folder,
        env=environment | {"PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
