"""Every convention that ships as an adapter: a right function is right in every mode and layout its
trainer has, and the mistake it once had is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from aggverify import conventions
from aggverify.checks import arguments, formula, logs, terms
from aggverify.checks.base import Check
from aggverify.checks.comparison import worst_weight
from aggverify.checks.layout import MICRO_BATCHES
from aggverify.conventions import CONVENTIONS, Convention, Offer, convention
from aggverify.conventions.adapter_convention import AdapterConvention
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import LEGACY
from aggverify.run.opening import opened
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.choosing import LATER
from tests.conftest import Cli

SYSTEMS = {
    "verl": "agg_loss",
    "verl-policy-loss": "compute_policy_loss_vanilla",
    "roll": "roll_agg_loss",
    "openrlhf": "aggregate_loss",
    "oat": "PPOLearner.learning_step",
    "nemo-rl": "masked_mean",
    "areal": "ppo_actor_loss_fn",
    "areal-reduction": "PolicyGradientReduction",
    "megatron-lm": "loss_func",
    "slime-core": "get_sum_of_sample_mean",
    "miles-core": "miles_get_sum_of_sample_mean",
    "slime-aggregation": "get_pg_loss_reducer",
    "miles-aggregation": "miles_get_pg_loss_reducer",
    "tinker": "loss_fn",
    "trl": "GRPOTrainer._compute_loss",
    "skyrl-worker": "PolicyWorkerBase._forward_backward_micro",
    "skyrl-megatron-wrapper": "MegatronModelWrapper.forward_backward_mini_batch",
    "prime-rl": "compute_loss",
    "skyrl-reduce-loss": "old_reduce_loss",
    "slime-trainer": "slime_loss_function",
    "miles-trainer": "miles_loss_function",
    "miles-fsdp": "miles_loss_function",
    "miles-tinker": "miles_tinker_loss_function",
    "skyrl-tinker": "PolicyWorkerBase.forward_backward",
    "megatron-lm-two-output": "two_output_loss_func",
    "hf-trainer": "hf_compute_loss",
    "hf-loss-func": "hf_loss_func",
}
ONE_MODE = {"tinker": "token_sum", "hf-trainer": "token_mean", "hf-loss-func": "token_mean"}
"""Of functions that are given no mode, what ours implement."""
CHECKED = SYSTEMS | {"skyrl": "apply_loss_reduction_to_advantages_minibatch"}
MODULE = "tests.frameworks.systems"
SHARED = (
    *("slime-core", "miles-core", "slime-aggregation", "slime-trainer", "miles-trainer"),
    "miles-tinker",
)
"""Those that see rollouts of several samples."""


@pytest.fixture(scope="module")
def ranks(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": MODULE}) as template:
        yield Executor(template)


def cases(name: str, mode: str) -> list[Case]:
    """Ragged masks over ranks and micro-batches; of as many rows each, in order where the mode
    is one of micro-batches."""
    if mode.startswith(LEGACY.name):
        step = parse_step("2/1 3/101; 5/11 1/1011")
        cp = 2 if name == "megatron-lm-two-output" else 1
        layouts = (Layout(parse_micro_batches(cells), cp) for cells in ("0,1 2,3", "0,1 | 2,3"))
        return [Case(step, layout, plain_losses(step)) for layout in layouts]
    sliced = "context-parallel" not in convention(name).not_claimed
    cp, several = 2 if sliced else 1, "+1/011" if name in SHARED else ""
    step = parse_step(f"2/1 3/101{several}; 5/11 1/1011" if several else "2/1 3/101; 5/11 1/1011")
    cells = (
        ("0,1,2,3,4", "0,4 1,2,3", "0,1 | 3,4,2")
        if several
        else ("0,1,2,3", "0,1 3,2", "0 1 | 3 2")
    )
    if (name, mode) == ("areal-reduction", "prompt_mean"):  # whole groups
        cells = ("0,1,2,3", "0,1 2,3", "0,1 | 2,3")
    gathers = convention(name).default_engine(mode) == "skyrl-megatron-raw"
    kinds = ("gathered",) if gathers else ("zigzag", *getattr(convention(name), "unusual", ()))
    layouts = [Layout(parse_micro_batches(c), cp, kind) for c in cells for kind in kinds]
    return [Case(step, layout, plain_losses(step)) for layout in layouts]


def test_each_is_short_and_has_a_function_here() -> None:
    found = {n: how for n, how in CONVENTIONS.items() if isinstance(how, AdapterConvention)}
    assert set(found) == set(SYSTEMS)
    assert all(how.recognised_by and how.usual_name for how in found.values())
    files = [*Path(conventions.__file__).parent.rglob("*.py")]
    assert len(files) > len(found)
    for file in files:
        assert len(file.read_text().splitlines()) <= 200, file


def judged(name: str, function: str, mode: str, engine: str, ranks: Executor) -> list[bool]:
    """Of each case, whether its weights are the mode's."""
    divisor = 7.0 if mode == "constant" else None
    claim = Claim(f"{MODULE}:{function}", function, name, engine, mode, divisor)
    claim = replace(claim, terms=getattr(convention(name), "terms", ()))
    subject, found = Subject.of(claim), []
    for done in ranks.run(subject, cases(name, mode)):
        assert done.failure is None and done.weights is not None, (mode, done.failure)
        expected = subject.expected(done.case.step)
        assert expected is not None
        off = worst_weight(done.weights, expected, subject.roundings_on(), "float32")
        found.append(off is None)
    return found


def possible(how: Convention) -> Iterator[tuple[str, str]]:
    """Modes with their engines."""
    every = how.modes(Offer("f", ("prompt_boundaries",)))
    for mode in (ONE_MODE[how.name],) if how.name in ONE_MODE else every:
        for engine in getattr(how, "engines", ()) or (how.default_engine(mode),):
            possible = how.why_not(mode, engine, frozenset({"whole-groups"})) is None
            if possible and mode not in getattr(how, "always_wrong", {}):
                yield f"{mode}(2)" if mode == LEGACY.name else mode, engine


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.covers(convention=n)) for n in CHECKED]
)
@pytest.mark.covers(engine="verl-megatron")
@pytest.mark.covers(engine="areal")
def test_right_in_every_mode_and_engine_and_what_was_wrong_is_found(
    name: str, ranks: Executor
) -> None:
    cells = list(possible(convention(name)))
    assert cells
    found = {cell: judged(name, CHECKED[name], *cell, ranks) for cell in cells}
    assert all(all(right) for right in found.values()), found
    twin = f"wrong_{name.replace('-', '_')}"
    found = {cell: judged(name, twin, *cell, ranks) for cell in cells}
    assert not all(all(right) for right in found.values()), found


def test_the_divisor_of_miles_by_its_own_keyword(ranks: Executor) -> None:
    cell = "constant", "megatron-sample"
    assert all(judged("miles-core", "miles_by_divisor", *cell, ranks))
    assert not any(judged("miles-core", "wrong_miles_by_divisor", *cell, ranks))


def test_what_contradicts_itself_must_be_refused_by_the_reducer_where_that_is_claimed(
    ranks: Executor,
) -> None:
    """Arguments inside of ``args`` and ``batch``: those of a good call stay as they are."""
    case = Case(step := parse_step("2/11 2/1; 3/111 3/1"), Layout.trivial(4), plain_losses(step))
    missed = {
        "prompt_mean": {"calculate_per_token_loss", "unknown loss_aggregation"},
        "constant": {"calculate_per_token_loss", "loss_aggregation_divisor"},
    }
    functions = {
        "get_pg_loss_reducer": "slime-aggregation",
        "miles_get_pg_loss_reducer": "miles-aggregation",
        "unvalidated_slime_aggregation": "slime-aggregation",
    }
    for function, name in functions.items():
        for mode, names in missed.items():
            divisor = 4.0 if mode == "constant" else None
            said = (f"{MODULE}:{function}", function, name, "megatron-sample")
            claim = Claim(*said, mode, divisor, claimed=frozenset({"validates-arguments"}))
            subject = Subject.of(claim)
            done = ranks.run(subject, list(arguments.REFUSES.variants(case)))
            finding = arguments.REFUSES.judge(subject, done)
            if not function.startswith("un"):
                assert finding is None, finding
            else:
                assert finding is not None and finding.code == "AGV504"
                assert all(name in finding.message for name in names), finding.message


def test_a_factor_that_a_trainer_part_leaves_out_is_seen_on_both_paths(ranks: Executor) -> None:
    for mode, engine in possible(convention("slime-trainer")):
        assert not all(judged("slime-trainer", "wrong_slime_trainer", mode, engine, ranks)), mode


def test_a_mode_that_is_never_right_is_found_wrong_with_the_function_that_is_right_in_others(
    ranks: Executor,
) -> None:
    found = {name: [*getattr(how, "always_wrong", {})] for name, how in CONVENTIONS.items()}
    assert any(found.values())
    for name, mode in ((name, mode) for name, modes in found.items() for mode in modes):
        engine = convention(name).default_engine(mode)
        assert not all(judged(name, CHECKED[name], mode, engine, ranks)), name


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        ("PolicyWorkerBase._forward_backward_micro", set()),
        ("MegatronModelWrapper.forward_backward_mini_batch", set()),
        ("wrong_skyrl_worker_entropy", {"entropy"}),
        ("wrong_skyrl_worker_weight", {"kl", "entropy"}),
    ],
)
def test_terms_of_an_adapter_are_looked_at_alone(
    ranks: Executor, function: str, wrong: set[str]
) -> None:
    """SkyRL's KL and entropy: the second in its releases a mean over each micro-batch's tokens; a
    micro-batch that weighs 1 instead of its share."""
    how = convention("skyrl-megatron-wrapper" if "Megatron" in function else "skyrl-worker")
    assert isinstance(how, AdapterConvention) and how.terms == ("kl", "entropy")
    said = (how.name, how.default_engine("token_mean"), "token_mean")
    claim = Claim(f"{MODULE}:{function}", function, *said, terms=how.terms)
    subject, found = Subject.of(claim), set()
    for text in ("2/1 3/101; 5/11 1/1011", "2/1 3/101; 5/11 1/10111"):
        step = parse_step(text)
        for cells in ("0,1 2,3", "0 1 | 2 3"):
            case = Case(step, Layout(parse_micro_batches(cells)), plain_losses(step))
            finding = terms.CHECK.judge(subject, ranks.run(subject, terms.CHECK.variants(case)))
            if finding is not None:
                assert finding.code == "AGV207"
                found.add(finding.term)
    assert found == wrong


@pytest.mark.parametrize(
    ("function", "mode", "check", "code"),
    [
        ("loss_fn", "token_sum", logs.CHECK, None),
        ("tinker_sample_means", "sample_mean", logs.CHECK, None),
        ("tinker_sample_means", "sample_mean", formula.CHECK, None),
        ("tinker_sample_means", "token_mean", formula.CHECK, "AGV101"),
        ("tinker_logs_its_mean", "token_sum", logs.CHECK, "AGV511"),
    ],
)
def test_tinker_calls_a_custom_loss_once_and_returns_what_it_logs(
    ranks: Executor, function: str, mode: str, check: Check, code: str | None
) -> None:
    claim = Claim(f"{MODULE}:{function}", function, "tinker", "sum", mode)
    subject, case = Subject.of(claim), cases("tinker", mode)[1].trivial
    assert {"data-parallel", "micro-batches", "context-parallel"} <= set(subject.not_claimed)
    found = check.judge(subject, ranks.run(subject, list(check.variants(case))))
    assert (found and found.code) == code


def test_logs_of_several_calls_of_a_tinker_client_are_not_merged() -> None:
    claim = Claim("r.py", "loss_fn", "tinker", "sum", "token_sum")
    claim = replace(claim, claimed=frozenset({"micro-batches"}))
    subject = Subject.of(claim)
    subject = replace(subject, found=structs.replace(subject.found, returns_logs=True))
    space = logs.CHECK.space(subject)
    assert space is not None and space.max_microbatches == 1
    assert (more := MICRO_BATCHES.space(subject)) is not None and more.max_microbatches > 1


@pytest.mark.parametrize(
    ("name", "mode", "function", "code", "key"),
    [
        ("slime-trainer", "sample_mean", "slime_loss_function", None, ""),
        ("slime-trainer", "token_mean", "slime_loss_function", None, ""),
        ("slime-trainer", "token_mean", "slime_logs_rescaled", "AGV511", "loss"),
        ("slime-trainer", "sample_mean", "slime_logs_own_means", "AGV513", "metric"),
        ("miles-trainer", "sample_mean", "miles_loss_function", None, ""),
        ("miles-trainer", "token_mean", "miles_logs_a_count_each", None, ""),
        ("miles-trainer", "token_mean", "miles_logs_one_each", "AGV513", "metric"),
        ("miles-fsdp", "sample_mean", "miles_loss_function", None, ""),
        ("miles-fsdp", "sample_mean", "miles_logs_one_each", "AGV513", "metric"),
    ],
)
def test_what_trainers_of_megatron_log(
    ranks: Executor, name: str, mode: str, function: str, code: str | None, key: str
) -> None:
    """Objective and metric, merged by slime's and miles' own, a count for each key included."""
    engine = convention(name).default_engine(mode)
    subject = Subject.of(Claim(f"{MODULE}:{function}", function, name, engine, mode))
    several = [c for c in cases(name, mode) if c.layout.dp_size * c.layout.num_microbatches > 1]
    own = tuple(t % 5 + 1.0 for t in range(len(several[0].losses)))
    found = [
        logs.CHECK.judge(subject, ranks.run(subject, list(logs.CHECK.variants(case))))
        for case in (case.with_losses(own) for case in several)
    ]
    assert {finding and finding.code for finding in found} == {code}, found
    for finding in filter(None, found):
        assert f"log[{key!r}]" in finding.message, finding.message


def test_each_window_of_a_generation_batch_has_its_own_tokens(ranks: Executor) -> None:
    """TRL #5619, #6024: tokens counted over the generation, losses summed over the step."""
    trl = ("GRPOTrainer._compute_loss", "trl", "mean")
    rows = [("window_mean", "native", "sum", True), ("generation_mean", "native", "sum", False)]
    for function, *said, right in (*rows, (*trl, False)):
        claim = Claim(f"{MODULE}:{function}", function, *said, "token_mean")
        subject = Subject.of(replace(claim, claimed=frozenset({"generations"})))
        done = ranks.run(subject, cases("trl", "token_mean"))
        wanted = [subject.expected(e.case.step) for e in done]
        found = [
            e.weights is not None and w is not None and np.allclose(e.weights, list(map(float, w)))
            for e, w in zip(done, wanted, strict=True)
        ]
        assert found == [right] * len(found), function


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "mode", "more"),
    [
        LATER("skyrl", "token_mean_legacy", ("--micro-batch-size", "2")),
        ("trl", "bnpo", ("--micro-batch-size", "2")),
        ("verl", "sequence_sum", ()),
        LATER("verl", "token_sum", ()),
        LATER("trl", "sample_mean", ()),
        LATER("openrlhf", "sample_mean", ("--policy", "empty_units=exclude")),
        LATER("slime-aggregation", "prompt_mean", ("--group-size", "2")),
        LATER("slime-aggregation", "", ("--group-size", "2", "--divisor", "1024")),
        LATER("miles-aggregation", "", ("--group-size", "2", "--divisor", "1024")),
        ("miles-aggregation", "prompt_mean", ("--group-size", "2")),
        LATER("megatron-lm-two-output", "token_mean_legacy", ("--micro-batch-size", "2")),
        LATER("roll", "", ("--policy", "empty_units=exclude")),
        LATER("miles-tinker", "", ()),
        LATER("skyrl-tinker", "", ()),
    ],
)
def test_the_whole_check_passes_it(cli: Cli, name: str, mode: str, more: tuple[str, ...]) -> None:
    """As docs/frameworks prints it, of one mode or of all."""
    said = ("--convention", name, "--profile", "quick", "--world", "2", *more)
    said = (*said, "--mode", mode) if mode else said
    target = Path(__file__).with_name("systems.py")
    right = cli("check", f"{target}:{CHECKED[name]}", *said)
    assert right.code == 0, right


@pytest.mark.thorough
def test_a_shape_that_is_known_needs_no_option(cli: Cli) -> None:
    target = f"{Path(__file__).with_name('systems.py')}:agg_loss"
    ran = cli("check", target, "--mode", "token_sum", *("--profile", "quick", "--world", "2"))
    assert ran.code == 0, ran
    assert "systems.py:agg_loss verl · token_sum" in ran.flat


def test_a_shape_whose_names_are_common_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def my_loss(data, logprobs): ...\n")
    ran = cli("check", "r.py")
    assert ran.code == 2
    assert "my_loss has the shape of Tinker, custom loss function: aggverify check " in ran.err
    assert "--convention tinker" in ran.err
