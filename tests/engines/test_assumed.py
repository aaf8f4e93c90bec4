"""Where nobody has said the engine, the one a reducer is right under is found, and asked for."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from aggverify.checks import check
from aggverify.engines import ENGINES, Sizes
from aggverify.engines.emulated import EmulatedEngine, over, times
from aggverify.engines.ratio import ratio
from aggverify.execution.budget import Budget
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.model import Power
from aggverify.report import view_model
from aggverify.report.document import document
from aggverify.run.opening import opened
from aggverify.run.outcome.verdict import Exit, RunVerdict
from aggverify.run.planning.discovery import identified
from aggverify.run.planning.engine import engine_settled, trial_cases
from aggverify.run.session import examine
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli

FEW = tuple(map(check, ("weights_are_the_modes", "independent_of_data_parallel_size")))
FILE = Path(__file__).with_name("undeclared.py")


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Executor(template)


def undeclared(
    function: str,
    mode: str | None = None,
    *,
    said: bool = False,
    world: int = 4,
    engine: str = "sum",
) -> Subject:
    claim = Claim(
        str(FILE), function, "native", engine, mode, max_world=world,
        budget=Budget("quick", max_examples=2),
    )  # fmt: skip
    return Subject.of(claim).knowing(engine_declared=said)


@pytest.mark.parametrize(
    ("function", "mode", "engine"),
    [
        ("summed", None, "sum"),
        ("averaged", None, "mean"),
        ("averaged", "token_mean", "mean"),
        ("accumulated", None, "accumulated-mean"),
        ("plain_sums", "token_mean", "megatron-token"),
        ("plain_sums", "sequence_sum", "megatron-sample"),
        # what is wrong besides stays wrong, and is not blamed on a factor that the trainer needs
        ("averaged", "sample_mean", "mean"),
        ("averaged_without_context_parallelism", "token_mean", "mean"),
        ("averaged_float32", "token_mean", "mean"),
        ("averaged_and_refusing", "token_mean", "mean"),
        ("no_known_mode", None, "mean"),
        ("not_linear", NONLINEAR, "mean"),
        # right nowhere: where one would have begun
        ("local_means", "token_mean", "sum"),
        ("local_counts_of_samples", "constant", "sum"),
    ],
)
def test_the_engine_that_fits(
    executor: Executor, function: str, mode: str | None, engine: str
) -> None:
    subject = undeclared(function, mode)
    if mode == "constant":
        subject = subject.claiming(divisor=16.0)
    found = engine_settled(identified(subject, executor), executor)
    assert found.engine.name == engine
    assert found.engine_in_question == (engine != "sum")


def test_what_fits_without_context_parallelism_only_is_asked_so(executor: Executor) -> None:
    ddp = undeclared("averaged_without_context_parallelism", "token_mean")
    verdict = examine(ddp, executor, checks=FEW)
    assert told(verdict) == (
        Exit.NO_JUDGEMENT,
        "Which engine? assumed --engine mean --without context-parallel: your trainer averages "
        "gradients over ranks, as DDP and FSDP do. If it sums gradients over ranks (--engine sum), "
        "updates are dp_size times too large. Which does your trainer do? --engine mean --without "
        "context-parallel or --engine sum",
    )
    assert "which no option names" in verdict.subject.not_claimed["context-parallel"]
    # Claimed, it is judged; and so is a slice that is wrong under every engine.
    claimed = ddp.claiming(claimed=frozenset({"context-parallel"}))
    assert engine_settled(claimed, executor).without == frozenset()
    mistaken = engine_settled(undeclared("averaged_over_shards", "token_mean"), executor)
    assert (mistaken.engine.name, mistaken.without) == ("mean", frozenset())


def test_an_engine_that_was_said_is_not_doubted(executor: Executor) -> None:
    subject = undeclared("averaged", "token_mean", said=True)
    assert engine_settled(subject, executor) is subject
    before = executor.executed
    hook = undeclared("averaged", "token_mean").claiming(
        convention="slime", engine="megatron-token"
    )
    assert engine_settled(hook, executor) is hook
    assert executor.executed == before


def test_the_trial_has_every_dimension_above_one() -> None:
    layouts = [case.layout for case in trial_cases(undeclared("summed", "token_mean"))]
    sizes = {(lay.dp_size > 1, lay.cp_size > 1, lay.num_microbatches > 1) for lay in layouts}
    alone = {(True, False, False), (False, True, False), (False, False, True)}
    assert sizes >= {*alone, (True, True, True)}
    one_rank = trial_cases(undeclared("summed", "token_mean", world=1))
    assert {case.layout.world_size for case in one_rank} == {1}


def test_the_path_beside_it_moves_along_unless_it_names_its_own(executor: Executor) -> None:
    subject = undeclared("averaged", "token_mean")
    follows = engine_settled(subject.compared_with(undeclared("averaged", "token_mean")), executor)
    assert follows.against is not None
    assert follows.against.engine.name == follows.engine.name == "mean"
    own = undeclared("summed", "token_mean", said=True)
    stays = engine_settled(subject.compared_with(own), executor)
    assert stays.against is not None
    assert (stays.engine.name, stays.against.engine.name) == ("mean", "sum")


def told(verdict: RunVerdict) -> tuple[Exit, str]:
    return verdict.exit, view_model.headline(document([verdict]))


def test_right_elsewhere_is_a_question(executor: Executor) -> None:
    verdict = examine(undeclared("averaged"), executor, checks=FEW)
    assert not verdict.reports
    assert told(verdict) == (
        Exit.NO_JUDGEMENT,
        "Which engine? assumed --engine mean: your trainer averages gradients over ranks, as DDP "
        "and FSDP do. If it sums gradients over ranks (--engine sum), updates are dp_size x "
        "cp_size times too large. Which does your trainer do? --engine mean or --engine sum",
    )


def test_right_where_one_begins_is_assumed(executor: Executor) -> None:
    assert told(examine(undeclared("summed"), executor, checks=FEW)) == (
        Exit.CONFORMS,
        "Conforms: token_mean, 2 checks passed, 1 warning; assumed --engine sum: your trainer "
        "sums gradients over ranks. If it averages gradients over ranks, as DDP and FSDP do "
        "(--engine mean), updates are dp_size x cp_size times too small",
    )
    # On one rank there are no ranks to average over.
    _, alone = told(examine(undeclared("summed", world=1), executor, checks=FEW))
    assert "(--engine accumulated-mean), updates are num_microbatches times too small" in alone


def test_what_fails_is_judged_where_it_fits_best(executor: Executor) -> None:
    verdict = examine(undeclared("averaged", "sample_mean"), executor, checks=FEW)
    assert verdict.exit is Exit.FINDINGS
    assert [report.finding.code for report in verdict.reports] == ["AGV101"]
    assert verdict.reports[0].stored.claim.engine == "mean"
    lines = view_model.assumption(document([verdict]).verdicts[0])
    assert lines is not None
    assert lines.startswith("assumed --engine mean: your trainer averages gradients over ranks")


@pytest.mark.exhaustive
def test_said_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    lines = [s for s in path.read_text().splitlines() if not s.startswith("AGGVERIFY")]
    (tmp_path / "r.py").write_text("\n".join(lines))
    little = ("--profile", "quick", "--world", "2", "--max-examples", "2")
    asked = cli("check", "r.py", *little, "--report", "junit,md,html")
    assert asked.code == 2, asked
    assert "Which does your trainer do? --engine mean or --engine sum" in asked.flat
    assert "fix" not in asked.out
    folder = tmp_path / ".aggverify"
    assert not (folder / "cases").exists()
    assert 'errors="1"' in (folder / "junit.xml").read_text()
    for name in ("junit.xml", "summary.md", "report.html"):
        assert "Which does your trainer do" in (folder / name).read_text(), name
    said = cli("check", "r.py", *little, "--engine", "mean")
    assert said.code == 0, said
    assert "assumed" not in said.out
    wrong = cli("check", "r.py", *little, "--engine", "sum")
    assert wrong.code == 1, wrong
    assert "assumed" not in wrong.out


def test_ratios_are_read_off_the_engines_own_scalars() -> None:
    found = {name: ratio(spec, ENGINES["sum"]) for name, spec in ENGINES.items()}
    assert found.pop("train-step") == ()  # what a step leaves has no factor of ours
    assert found.pop("ddp") == found.pop("fsdp2") == found.pop("fsdp1") == found["mean"]
    assert found.pop("fsdp2-sum") == found["sum"]
    assert found.pop("accelerate") == found["accumulated-mean"]
    assert found.pop("deepspeed-2") == found["deepspeed"]
    assert found.pop("deepspeed-zero-3") == found["deepspeed-3"]
    for path in ("sample", "token"):
        assert found.pop(f"megatron-core-{path}") == found[f"megatron-{path}"]
    per_rank = (Power("dp_size", -1), Power("cp_size", -1))
    per_group = (Power("dp_size", -1), Power("num_microbatches", -1))
    per_step = (*per_rank, Power("num_microbatches", -1))
    assert found == {
        "sum": (),
        "mean": per_rank,
        "accumulated-mean": (*per_rank, Power("num_microbatches", -1)),
        "megatron-sample": (Power("num_rollouts", -1),),
        "megatron-token": (Power("tokens", -1),),
        "megatron-token-raw": (Power("cp_size", -1), Power("tokens", -1)),
        "megatron-sample-raw": per_step,
        "megatron-two-output": per_group,
        # of gathered losses, of which one copy counts
        "skyrl-fsdp": (),
        "skyrl-megatron": (),
        "skyrl-megatron-0.2": (Power("cp_size", 1),),
        "skyrl-megatron-raw": per_group,
        "verl-megatron": (Power("dp_size", -1),),
        "areal": (Power("dp_size", -1), Power("num_microbatches", -1)),
        "megatron-three-output": (Power("cp_size", -1), Power("tokens", -1)),
        "megatron-three-output-cp": (Power("tokens", -1),),
        "megatron-token-phantom": (Power("tokens", -1),),
        "miles-fsdp": (Power("dp_size", -1),),
        "deepspeed": per_group,
        "deepspeed-3": per_step,
    }
    own = EmulatedEngine(
        "own", "", "", "", "", 0, scale=(times("dp_size"), times("dp_size"), over("num_rollouts"))
    )
    assert ratio(own, ENGINES["mean"]) == (
        Power("dp_size", 3), Power("cp_size", 1), Power("num_rollouts", -1)
    )  # fmt: skip


def test_what_is_no_product_of_sizes_has_no_ratio() -> None:
    class Odd(EmulatedEngine):
        def value(self, losses: object, num_tokens: object, sizes: Sizes) -> Fraction:
            return Fraction(1, sizes.dp_size + 1)

    assert ratio(Odd("odd", "", "", "", "", 0), ENGINES["sum"]) is None
