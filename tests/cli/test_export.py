"""``replay --export``: a case as data and one fixed runner, which needs torch alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggverify.checks import check
from aggverify.checks.counts import BEYOND
from aggverify.conventions import ADAPTED
from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.report import case_export
from aggverify.run.export import Export, export
from aggverify.run.outcome import store
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.store import StoredCase
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from tests.choosing import LATER, thorough_but
from tests.conftest import EXAMPLES as FILES
from tests.conftest import ROOT, Cli
from tests.explained import EXAMPLES, IDS, case_of, subject_of

RUNNER = ROOT / "aggverify" / "report" / "templates" / "run.py"
WRITTEN = {"case.json", "reducer.py", "run.py", "megatron_mpu.py", "padded_rows.py"}
STEP = "2/111 1/1; 3/1101 1/11"
NATIVE = """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    kept = torch.where(mask, losses, torch.zeros_like(losses))
    rows, _ = batch.rows(kept, width="step")
    return rows.sum() / batch.num_tokens
"""
SKYRL = """
import torch

def apply_loss_reduction_to_advantages_minibatch(
    advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len, prompt_boundaries=None
):
    return advantages / loss_mask.sum()

def reduce_loss(loss, loss_mask):
    return torch.where(loss_mask.bool(), loss, 0.0).sum()
"""
POLICY = """
import torch

def loss(log_probs, advantages, batch):
    ratio = torch.exp(log_probs - batch.old_log_probs)
    kept = torch.where(batch.mask.bool(), -ratio * advantages, torch.zeros_like(advantages))
    return kept.sum() / batch.num_tokens
"""
VERL = """
def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None,
             global_batch_size=None, loss_scale_factor=None):
    return (loss_mat * loss_mask).sum() / max(batch_num_tokens, 1) * dp_size
"""
OURS = """
ADAPTER = {"engine": "mean", "terms": []}

def call(mean, losses, batch):
    share = mean(losses, mask=batch.mask, batch=batch)
    return share * batch.dp_size * batch.cp_size, int(batch.mask.sum())
"""
MEAN = """
import torch

def mean(x, *, mask, batch):
    return torch.where(mask.bool(), x, torch.zeros_like(x)).sum() / batch.num_tokens
"""
METHOD = NATIVE.replace("def reduce(", "class Own:\n  def reduce(self, ").replace("    ", "     ")


@dataclass(frozen=True)
class Reducer:
    """A right one, and what makes it wrong."""

    text: str
    function: str
    wrong: tuple[str, str]
    convention: str = "native"
    engine: str = "sum"
    mode: str = "token_mean"
    adapter: str = ""
    cells: str = "0 1 | 2 3"
    cp: int = 1
    kind: CpKind = "zigzag"
    found: tuple[str, str] = ("independent_of_data_parallel_size", "AGV203")

    def stored(self, folder: Path, name: str = "r.py", step: str = STEP) -> StoredCase:
        """Its case, as a check stores one; the wrong reducer is what the file has."""
        right = self.text
        assert self.wrong[0] in right
        (folder / name).write_text(right.replace(*self.wrong))
        how = self.convention
        if self.adapter:
            (folder / "ours.py").write_text(self.adapter)
            how = ADAPTED
        known = parse_step(step)
        layout = Layout(parse_micro_batches(self.cells), self.cp, self.kind)
        given = {"adapter": "ours.py"} if self.adapter else {}
        target = f"{name}:{self.function}"
        with contextlib.chdir(folder):
            claim = Claim(target, self.function, how, self.engine, self.mode, **given)
            case = Case(known, layout, plain_losses(known))
            found = StoredCase(case, claim, *self.found)
            store.write(found, folder / ".aggverify")
        return found


_HOOK = (FILES / "broken" / "cp_shard_sample_mean.py").read_text()
_OWN = "sum(p.sum() / mask.sum().clamp(min=1) for p, mask in zip(pieces, local, strict=True))"
SLIME = _HOOK.replace(_OWN, _OWN.replace("local", "loss_masks"))
MILES = _HOOK.replace(_OWN, "sum(p.sum() for p in pieces)")
OF_A_RANK = ("batch.num_tokens", "batch.rank_tokens")
BY_CP = ("for p in pieces)", "for p in pieces) / size")
NAMED = ("/ loss_mask.sum()", "/ loss_mask.sum() * 2")
HOOK = "get_pg_loss_reducer"
_DRIVER = "apply_loss_reduction_to_advantages_minibatch"
ON_RANKS = "independent_of_context_parallel_size", "AGV201"
FORMULA = "weights_are_the_modes", "AGV101"
REDUCERS = {
    "native": Reducer(NATIVE, "reduce", OF_A_RANK),
    "method": Reducer(METHOD, "Own.reduce", OF_A_RANK),
    "gathered": Reducer(
        NATIVE, "reduce", ("num_tokens", "num_tokens / batch.cp_size"), cells="0,1 2,3", cp=2,
        kind="gathered", found=ON_RANKS,
    ),
    "slime": Reducer(
        SLIME, HOOK, ("pieces, loss_masks, ", "pieces, local, "), "slime", "megatron-sample",
        "sample_mean", cells="0,1 2,3", cp=2, found=ON_RANKS,
    ),
    "miles": Reducer(
        MILES, HOOK, BY_CP, "slime", "megatron-token", cells="0,1 2,3", cp=2, found=ON_RANKS
    ),
    "skyrl": Reducer(
        SKYRL, _DRIVER, NAMED, "skyrl", "skyrl-fsdp", cells="0,1,2,3", found=FORMULA
    ),
    "policy loss": Reducer(POLICY, "loss", OF_A_RANK, "policy-loss"),
    "verl": Reducer(VERL, "agg_loss", (" * dp_size", ""), "verl", "mean"),
    "adapter": Reducer(MEAN, "mean", OF_A_RANK, engine="mean", adapter=OURS),
}  # fmt: skip


def run(folder: Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """``python run.py``."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, folder / "run.py"],
        cwd=cwd,
        env=kept | {"OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        timeout=300,
    )


def launched(folder: Path) -> subprocess.CompletedProcess[str]:
    """The same where this package cannot be imported."""
    (folder / "aggverify.py").write_text("raise ImportError('not without this package')\n")
    return run(folder, folder.parent)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", thorough_but(REDUCERS, lambda name: name == "native", ids=str, each=2)
)  # fmt: skip
def test_a_wrong_reducer_is_shown_and_a_right_one_is_right(
    name: str, cli: Cli, tmp_path: Path
) -> None:
    reducer = REDUCERS[name]
    case = reducer.stored(tmp_path)
    asked = ("--adapter", "ours.py") if reducer.adapter else ()
    seen = {}
    for code, text in ((1, reducer.text.replace(*reducer.wrong)), (0, reducer.text)):
        (tmp_path / "r.py").write_text(text)
        folder = tmp_path / f"out{code}"
        ran = cli("replay", case.id, "--export", f"out{code}", *asked)
        assert (ran.code, ran.err) == (code, ""), ran
        assert f"exported to out{code}: python out{code}/run.py needs torch alone" in ran.out
        more = {"adapter.py"} if reducer.convention == "verl" or reducer.adapter else set()
        assert names(folder) == WRITTEN | more
        assert (folder / "run.py").read_bytes() == RUNNER.read_bytes()
        done = launched(folder)
        seen[code] = done.stdout
        assert done.returncode == code, (done.stdout, done.stderr)
        assert ("<- wrong" in done.stdout) == code
    tokens = len(case.case.losses)
    assert [text.count("\nsample ") for text in seen.values()] == [tokens, tokens]


@pytest.mark.thorough
def test_the_files_that_a_reducer_takes_are_named(cli: Cli, tmp_path: Path) -> None:
    for name in ("token_mean.py", "zigzag.py"):
        shutil.copy(FILES / "slime" / name, tmp_path)
    text = (tmp_path / "token_mean.py").read_text()
    hook = Reducer(text, "get_pg_loss_reducer", ("", ""), "slime", "megatron-token")
    case = hook.stored(tmp_path, "token_mean.py", step="1/1 1/1 1/1 1/1")
    ran = cli("replay", case.id, "--export", "a folder; echo $HOME")
    assert ran.code == 0, ran
    assert "reducer.py imports zigzag from " in ran.out
    assert f"run PYTHONPATH={tmp_path} python 'a folder; echo $HOME/run.py'\n" in ran.out
    folder = tmp_path / "a folder; echo $HOME"
    assert "No module named 'zigzag'" in run(folder, ROOT).stderr, "not from elsewhere"
    done = run(folder, ROOT, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done


HOSTILE = ("run.py", "torch.py", "some 'name'.py", "-c.py", "\x1b[31m.py")


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_file_leads_elsewhere(name: str, cli: Cli, tmp_path: Path) -> None:
    reducer = REDUCERS["native"]
    case = reducer.stored(tmp_path, name, step="1/1 1/1 1/1 1/1")
    ran = cli("replay", case.id, "--export", "out")
    assert ran.code == 1 and "\x1b" not in ran.out, ran
    assert names(tmp_path / "out") == WRITTEN
    assert (tmp_path / "out" / "run.py").read_bytes() == RUNNER.read_bytes()
    done = launched(tmp_path / "out")
    assert done.returncode == 1 and "\x1b" not in done.stdout, done
    (tmp_path / "out" / "reducer.py").write_text(reducer.text)
    assert launched(tmp_path / "out").returncode == 0


@pytest.mark.parametrize("there", ["a file", "a file in it", "a link", "below a file"])
def test_only_an_empty_folder_is_written_into(there: str, cli: Cli, tmp_path: Path) -> None:
    case = REDUCERS["native"].stored(tmp_path)
    out, kept = tmp_path / "out", tmp_path / "kept"
    kept.mkdir()
    if there == "a file":
        out.write_text("mine")
    elif there == "a file in it":
        out.mkdir()
        (out / "mine").touch()
    elif there == "a link":
        out.symlink_to(kept)
    asked = "out" if there != "below a file" else "r.py/out"
    ran = cli("replay", case.id, "--export", asked)
    assert ran.code == 2 and ran.err.count(f"--export {asked}") == 1, ran
    assert ran.out == "" or there == "below a file", "said before anything is run"
    assert "internal error" not in ran.err and not any(kept.iterdir())
    assert there != "a file in it" or names(out) == {"mine"}


def found(name: str, executor: Executor) -> Export:
    """What the example of a code is exported as; raises InputError where it cannot be."""
    example = dict(zip(IDS, EXAMPLES, strict=True))[name][1]
    subject = subject_of(example)
    how = check(example.check)
    run = CheckRun(how, subject, Space(), executor, RunStatistics(), lambda: None)
    finding = run.judge(case_of(example))
    assert finding is not None
    subject = subject.claiming(target=f"tests.corpus.all_shown:{subject.function}")
    return export(subject, executor, how, finding.case, finding, name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("AGV105-weights_are_the_modes", "given a model, which is no data"),
        ("AGV102-reported_loss_is_the_scalar", "does not show in the weights of this step"),
    ],
)
def test_what_is_no_data_is_refused_in_a_sentence(name: str, why: str, executor: Executor) -> None:
    with pytest.raises(InputError, match=why):
        found(name, executor)


WHY_NOT = (
    "what is wrong does not show in the weights of this step by itself",
    "no formula gives the weights that are right on this step",
    "reduces no losses: its calls are judged",
    "a whole training step is given a model, which is no data",
    "does more than scale losses and add them up",
)
SMALL = [name for name, (_, e) in zip(IDS, EXAMPLES, strict=True) if e.ones < BEYOND]
"""2^24 tokens are in no file."""


@pytest.mark.parametrize("each", [pytest.param(12, marks=pytest.mark.thorough), LATER(1)])
def test_what_is_exported_of_every_code_shows_it(
    each: int, executor: Executor, tmp_path: Path
) -> None:
    for name in SMALL[::each]:
        executor.begin()
        try:
            made = found(name, executor)
        except InputError as error:
            assert str(error).endswith(WHY_NOT), (name, error)
            continue
        case_export.write(made, tmp_path / name)
        done = run(tmp_path / name, ROOT, PYTHONPATH=str(ROOT))
        assert done.returncode == 1, (name, done)
        assert ("<- wrong" in done.stdout) or re.search("Error|ExitedException", done.stderr), (
            name,
            done,
        )
