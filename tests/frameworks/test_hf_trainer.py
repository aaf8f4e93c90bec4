"""Hugging Face's Trainer: which losses are found, what each weighs, and that the released Trainer's
own training gives the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from aggverify.checks.comparison import worst_weight
from aggverify.conventions import convention
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import Step
from aggverify.run.opening import opened
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.target import parse_target
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool
from tests.choosing import LATER
from tests.conftest import ROOT, Cli
from tests.frameworks import wheels

MODULE = "tests.frameworks.hf_trainers"
STEP = parse_step("1/1; 1/11; 1/1011; 1/11111")
Cells = tuple[tuple[tuple[int, ...], ...], ...]
CELLS: Cells = (((2,), (0,)), ((3,), (1,)))
"""As two ranks and two accumulation steps of the released Trainer have it."""


def token_mean(step: Step, cells: Cells) -> list[Fraction]:
    return [Fraction(1, sum(s.num_unmasked for s in step.samples))] * len(step.samples)


def means(step: Step, cells: Cells) -> list[Fraction]:
    """Of each row by itself, added up over accumulation steps."""
    return [Fraction(1, len(cells) * s.num_unmasked) for s in step.samples]


TRAINED = {
    "Inherits": (token_mean, 1),
    "AsksAbove": (token_mean, 1),
    "OwnLoss": (token_mean, 1),
    "WithoutProcesses": (token_mean, Fraction(1, 2)),
    "SumOfMeans": (means, 1),
    "MeanOfMeans": (means, Fraction(1, 2)),
    "hf_loss_func": (token_mean, 1),
    "made": (token_mean, 3),
}
"""What an unmasked token of each row weighs: a formula, and what it is multiplied by."""


def exact(name: str, cells: Cells) -> list[Fraction]:
    formula, factor = TRAINED[name]
    each = formula(STEP, cells)
    masks = [s.loss_mask for s in STEP.samples]
    return [w * factor * bit for w, mask in zip(each, masks, strict=True) for bit in mask]


def subject(name: str) -> Subject:
    how = "hf-loss-func" if name == "hf_loss_func" else "hf-trainer"
    return Subject.of(Claim(f"{MODULE}:{name}", name, how, "mean", "token_mean"))


@pytest.fixture(scope="module")
def ranks(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": MODULE}) as template:
        yield Executor(template)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_what_every_loss_weighs(dtype: str, ranks: Executor) -> None:
    case = Case(STEP, Layout(CELLS), plain_losses(STEP), dtype)
    for name in TRAINED:
        [ran] = ranks.run(under := subject(name), [case])
        assert ran.failure is None and ran.weights is not None, (name, ran.failure)
        off = worst_weight(ran.weights, exact(name, CELLS), under.roundings_on(), dtype)
        assert off is None, (name, ran.weights)


@pytest.mark.parametrize(
    "name",
    *[("OwnLoss", "OwnLoss.compute_loss", "Inherits", "hf_loss_func", "made", "made.compute_loss")],
)
def test_a_class_is_found_by_its_loss(name: str, shared_pool: Pool) -> None:
    with opened(shared_pool, {"module": MODULE, "name": name}) as template:
        found = choose(parse_target(f"{MODULE}:{name}"), template.description, "auto")
    assert found.function == name.partition(".")[0]
    assert found.convention.name == ("hf-loss-func" if name == "hf_loss_func" else "hf-trainer")


def test_a_file_needs_no_name(shared_pool: Pool, tmp_path: Path) -> None:
    text = "class Mine:\n    def __init__(self, alpha): ...\n"
    text += "    def compute_loss(self, model, inputs, return_outputs=False, **kwargs): ...\n"
    (path := tmp_path / "mine.py").write_text(text)
    with opened(shared_pool, {"path": str(path)}) as template:
        found = choose(parse_target(str(path)), template.description, "auto")
    assert (found.function, found.convention.name) == ("Mine", "hf-trainer")


def test_what_is_only_inherited_is_named(cli: Cli, tmp_path: Path) -> None:
    text = "class Base:\n    def compute_loss(self, model, inputs, return_outputs): ...\n"
    (tmp_path / "base.py").write_text(text)
    (tmp_path / "mine.py").write_text("import base\nclass Mine(base.Base): ...\n")
    ran = cli("check", "mine.py")
    assert ran.code == 2
    assert "is a trainer: name Mine to check its compute_loss" in ran.err
    assert "GRPOTrainer" not in ran.err


def test_what_a_stand_in_lacks_is_no_finding(cli: Cli) -> None:
    ran = cli("check", f"{MODULE}:ReadsItsOwn")
    assert ran.code == 2, ran
    sentence = "not known to the convention hf-trainer: it reads `alpha` (what __init__ sets: "
    assert sentence in ran.flat


RIGHT = ("Inherits", 0, "its token_mean weight in every layout")
WRONG = ("MeanOfMeans", 1, "(its token_mean_legacy), transformers #34191")
CHECKED = [
    WRONG,
    ("GivesItsOwn", 0, "its token_mean weight in every layout"),
    LATER("hf_loss_func", 0, "its token_mean weight in every layout"),
    LATER("SumOfMeans", 1, "nothing divides by the accumulation steps"),
    LATER("WithoutProcesses", 1, "the engine's mean over data-parallel ranks is not undone"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "code", "text"), CHECKED)
def test_the_whole_check(name: str, code: int, text: str, cli: Cli) -> None:
    ran = cli("check", f"{MODULE}:{name}", "--profile", "quick", "--world", "2")
    assert ran.code == code, ran
    assert text in ran.flat


@pytest.fixture(scope="module")
def released(pytestconfig: pytest.Config) -> dict[str, str]:
    """An environment with the released transformers."""
    [ran] = (one for one in convention("hf-trainer").run_against)  # type: ignore[attr-defined]
    needs = (f"{ran.name}=={ran.version}", *NEEDS)
    where = wheels.installed(Path(pytestconfig.cache.mkdir("wheels")), *needs)
    return {"AGGVERIFY_TRANSFORMERS": str(where), "PYTHONPATH": f"{where}:{ROOT}"}


NEEDS = (
    *("accelerate==1.15.0", "huggingface_hub==2.4.0", "safetensors==0.8.0", "tokenizers==0.23.3"),
    *("regex", "tqdm", "httpx2", "httpcore2", "truststore", "h11", "pyyaml", "psutil"),
)
"""Of what transformers takes, all but torch, numpy and what those take."""


@pytest.mark.network
def test_the_released_trainer_trains_so(released: dict[str, str]) -> None:
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tests.frameworks.hf_training", *(n for n in TRAINED if n != "made")]
    ran = subprocess.run(
        [sys.executable, *command],
        env=os.environ | released,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    [line] = (x for x in ran.stdout.splitlines() if x.startswith("TRAINED "))
    done: dict[str, Any] = json.loads(line.partition(" ")[2])
    assert len(done) == len(TRAINED) - 1
    for name, found in done.items():
        cells = tuple(tuple(map(tuple, rank)) for rank in found["ranks"])
        assert sorted(n for rank in cells for cell in rank for n in cell) == [0, 1, 2, 3]
        weights = [
            w
            for row, sample in zip(found["weights"], STEP.samples, strict=True)
            for w in row[: sample.response_length]
        ]
        roundings = subject(name).roundings_on()
        assert worst_weight(weights, exact(name, cells), roundings, "float64") is None, found


@pytest.mark.network
@pytest.mark.parametrize(("name", "code", "text"), [RIGHT, WRONG])
def test_a_subclass_of_the_released_trainer(
    name: str, code: int, text: str, released: dict[str, str], shell: Cli
) -> None:
    ran = shell(*("check", f"{MODULE}:{name}", "--profile", "quick", "--world", "2"), env=released)
    assert ran.code == code, ran
    assert text in ran.flat
