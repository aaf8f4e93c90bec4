"""Whole training steps: what DDP, FSDP2 and an optimizer leave in the model is what is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks.layout import COMBINED
from aggverify.engines import engine, formulas
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.choosing import LATER, thorough_at_times
from tests.conftest import EXAMPLES, Cli

TRAINER = EXAMPLES / "trainer"
MODES = {"ddp": "token_mean", "fsdp2": "sample_mean", "sgd": "prompt_mean", "engine": "token_mean"}
EVERY = [
    pytest.param("ddp", marks=pytest.mark.covers(convention="trainer", engine="train-step")),
    pytest.param("engine", marks=pytest.mark.covers(convention="trainer-engine")),
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ("fsdp2", "sgd")),
]
NATIVE = EXAMPLES / "native" / "sum" / "token_mean.py"
BRIEF = ("--profile", "quick", "--max-examples", "4", "--world", "2")
THOROUGH = pytest.mark.thorough


def ran(path: Path, pool: Pool, ranks: int = 2) -> tuple[Subject, list[Execution]]:
    """The stored cases of two ranks and more, sliced as the usual trainers slice them."""
    if path.stem == "fsdp2" and (why := engine("fsdp2").available()) is not None:
        pytest.skip(why)
    request = Request(str(path), modes=(MODES[path.stem],))
    stored = [*hard_cases(), *grid(ranks, ("zigzag",))]
    cases = [c for c in stored if c.layout.world_size in range(2, ranks + 1)]
    cases = [c for c in cases if c.layout.cp_kind == "zigzag"]
    assert {len(c.layout.micro_batches[0]) for c in cases} > {1}
    with loaded(request, pool) as (found, executor):
        [subject] = found
        executor.begin()
        return subject, executor.run(subject, cases)


@pytest.mark.parametrize("name", EVERY)
def test_a_right_one_gives_the_modes_weights(name: str, shared_pool: Pool) -> None:
    subject, done = ran(TRAINER / f"{name}.py", shared_pool)
    how = "trainer-engine" if name == "engine" else "trainer"
    assert (subject.convention.name, subject.engine.name) == (how, "train-step")
    assert [execution.failure for execution in done] == [None] * len(done)
    assert [COMBINED.judge(subject, [one]) for one in done] == [None] * len(done)


@pytest.mark.parametrize("name", EVERY)
def test_a_broken_one_does_not(name: str, shared_pool: Pool) -> None:
    subject, done = ran(TRAINER / "broken" / f"{name}.py", shared_pool)
    found = [COMBINED.judge(subject, [one]) for one in done]
    assert any(one is not None and one.code == "AGV204" for one in found)


@pytest.mark.parametrize("name", thorough_at_times(MODES, 3, ids=str))
def test_a_right_one_on_eight_ranks(name: str, shared_pool: Pool) -> None:
    subject, done = ran(TRAINER / f"{name}.py", shared_pool, 8)
    assert [execution.failure for execution in done] == [None] * len(done)
    assert [COMBINED.judge(subject, [one]) for one in done] == [None] * len(done)


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        pytest.param("ddp", "AGV202", "verl #5625 and Megatron-LM #7513 in one", marks=THOROUGH),
        LATER("fsdp2", "AGV101", "response lengths for token counts"),
        LATER("sgd", "AGV202", "gradients are zeroed between accumulation calls"),
        LATER("engine", "AGV202", "the number of micro-batches is divided out once too often"),
    ],
)
def test_a_broken_one_is_explained(cli: Cli, name: str, code: str, told: str) -> None:
    said = ("--mode", MODES[name], "--exit-first", *BRIEF)
    found = cli("check", TRAINER / "broken" / f"{name}.py", *said)
    assert found.code == 1, found
    assert f"  {code}  " in found.out, found
    assert told in found.flat


@THOROUGH
def test_what_is_not_seen_is_said(cli: Cli) -> None:
    found = cli("check", TRAINER / "ddp.py", "--mode", "token_mean", "-v", *BRIEF)
    assert found.code == 0, found
    assert "ddp.py:train_step trainer · token_mean" in found.flat
    assert "the loss that it computes is not seen: its gradient is judged" in found.out
    assert "loss-function: the step computes its loss and goes backward itself" in found.out


@THOROUGH
def test_a_step_that_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "forgets.py"
    path.write_text("def train_step(model, micro_batches, ctx):\n    model(micro_batches[0])\n")
    found = cli("check", path, "--mode", "token_mean", "--exit-first", *BRIEF)
    assert found.code == 1, found
    assert "it left no gradient in the model's parameter, and did not change that" in found.out


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("SGD(model.parameters(), lr=0.5)", "SGD(lr=0.5) does not step by the gradient"),
        pytest.param(
            "SGD(model.parameters(), lr=1, momentum=0.9)",
            "SGD(momentum=0.9) does not step by the gradient",
            marks=THOROUGH,
        ),
        pytest.param("Adam(model.parameters())", "Adam.step() is not the gradient", marks=THOROUGH),
    ],
)
def test_an_optimizer_that_steps_by_something_else(
    made: str, told: str, shared_pool: Pool, tmp_path: Path
) -> None:
    text = (TRAINER / "sgd.py").read_text()
    plain = "SGD(model.parameters(), lr=1.0)"
    assert plain in text
    (tmp_path / "sgd.py").write_text(text.replace(plain, made))
    _, done = ran(tmp_path / "sgd.py", shared_pool)
    assert all(one.failure is not None and told in str(one.failure) for one in done)


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        (NATIVE, ("--mode", "token_mean", "--engine", "train-step"), "only a whole training step"),
        (TRAINER / "ddp.py", ("--mode", "token_mean", "--engine", "mean"), "has its own engine"),
        *(
            pytest.param(TRAINER / "ddp.py", options, told, marks=THOROUGH)
            for options, told in (
                (("--mode", "nonlinear"), "a whole training step's is not seen"),
                (("--mode", "token_mean", "--claim", "gathered"), "cannot be claimed"),
            )
        ),
    ],
)
def test_cells_that_cannot_be(cli: Cli, path: Path, options: tuple[str, ...], told: str) -> None:
    refused = cli("check", path, *options)
    assert refused.code == 2, refused
    assert told in refused.err, refused


def test_it_is_no_answer_to_what_a_trainer_does() -> None:
    assert "train-step" not in {spec.name for spec in formulas()}
