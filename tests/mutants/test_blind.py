"""Reducers with witnesses: each wrong one is wrong on its own, each right one right on all."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from aggverify.api.running import request
from aggverify.checks import (
    Check,
    arguments,
    asynchronous,
    backward,
    counts,
    larger_steps,
    launched,
    logs,
    order,
    poison,
    scalar,
    shapes,
    steadiness,
    terms,
    torch_modes,
    windows,
)
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import Subject
from aggverify.oracles import MODES
from aggverify.run import session
from aggverify.run.opening import loaded
from aggverify.world import Pool
from tests.corpus.branches.corpora import CORPORA, WITNESSED_RIGHT, WITNESSED_WRONG
from tests.corpus.branches.fresh import registry as fresh
from tests.corpus.branches.unread.base import Unread
from tests.corpus.branches.unread.witness import Witness, run
from tests.corpus.branches.untuned.judging import DIVISOR
from tests.choosing import thorough_at_times, thorough_but

ENOUGH = {
    "untuned": (30, 20),
    "unread": (50, 40),
    "fresh": (45, 25),
    "latest": (42, 22),
    "later": (24, 14),
    "sixth": (45, 30),
    "seventh": (45, 30),
    "eighth": (45, 30),
    "ninth": (45, 30),
    "tenth": (45, 30),
    "eleventh": (40, 30),
    "twelfth": (40, 30),
    "thirteenth": (0, 40),
}
"""How many wrong and right ones of each folder there are at least."""
QUICK = ("positions_in_a_byte",)
PLAIN = Witness("1")
"""One token: what every reducer here is right on."""
KINDS = ("zigzag", "contiguous", "gathered")


def name(entry: Unread) -> str:
    return entry.name


def is_quick(entry: Unread) -> bool:
    return entry.name in QUICK


@contextmanager
def under_test(entry: Unread, pool: Pool) -> Iterator[tuple[Subject, Laboratory]]:
    """The reducer as its ranks have it."""
    divisor = DIVISOR if MODES[entry.mode].needs_divisor else None
    wanted = request(entry.target, {"mode": [entry.mode], "divisor": divisor})
    with loaded(wanted, pool) as ((subject, *_), laboratory):
        yield subject, laboratory


def steps(seed: int, number: int) -> Iterator[Witness]:
    """Small random steps, on layouts of up to six ranks and any number of micro-batches."""
    chance = random.Random(seed)
    for _ in range(number):
        samples = chance.randint(1, 7)
        rest = list(range(samples))
        chance.shuffle(rest)
        cells = [[i] for i in rest[: chance.choice((1, samples, chance.randint(1, samples)))]]
        for i in rest[len(cells) :]:
            chance.choice(cells).append(i)
        ranks = chance.choice([d for d in (1, 2, 3) if len(cells) % d == 0])
        texts = [",".join(map(str, cell)) for cell in cells]
        per = len(texts) // ranks
        layout = " | ".join(" ".join(texts[d * per : (d + 1) * per]) for d in range(ranks))
        words = [
            f"{chance.randint(1, 9)}/{_mask(chance)}{joint}"
            for joint in chance.choices(("+", " ", "; "), k=samples)
        ]
        yield Witness(
            "".join(words).strip("+; "),
            layout,
            cp=chance.choice((1, 1, 2)),
            kind=chance.choice(KINDS),
            dtype=chance.choice(("float64", "float64", "float32", "bfloat16")),
            losses=tuple(chance.randint(-255, 255) / 64 for _ in range(11)),
        )


def _mask(chance: random.Random) -> str:
    density, length = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0)), chance.choice((1, 2, 3, 5, 9, 40))
    return "".join("1" if chance.random() < density else "0" for _ in range(length))


@pytest.mark.parametrize("entry", thorough_but(WITNESSED_WRONG, is_quick, ids=name, each=40))
def test_a_wrong_one_is_wrong_on_its_witness_only(entry: Unread, shared_pool: Pool) -> None:
    assert entry.witness is not None
    with under_test(entry, shared_pool) as (subject, laboratory):
        assert run(subject, laboratory, [PLAIN]) == [""]
        assert run(subject, laboratory, [entry.witness]) != [""]


@pytest.mark.parametrize("entry", thorough_at_times(WITNESSED_RIGHT, 48, ids=name))
def test_a_right_one_is_right_on_every_witness(entry: Unread, shared_pool: Pool) -> None:
    tried = [*_known("kl" in entry.met.lower()), *steps(len(entry.name), 24)]
    with under_test(entry, shared_pool) as (subject, laboratory):
        found = run(subject, laboratory, tried)
    assert not _wrong(entry, tried, found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "codes"), [("added_by_index", ["AGV102"]), ("accumulated_by_index", [])]
)
def test_a_loss_is_looked_at_where_code_branches(
    name: str, codes: list[str], shared_pool: Pool
) -> None:
    """Every weight of it is right, and the loss wrong from eight samples of few groups on."""
    [entry] = (each for each in (*fresh.WRONG, *fresh.RIGHT) if each.name == name)
    with under_test(entry, shared_pool) as (subject, laboratory):
        verdict = session.examine(subject, laboratory, checks=[scalar.CHECK])
    assert [each.finding.code for each in verdict.reports] == codes


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "looks", "bug"),
    [
        ("logged_as_the_sum_so_far", logs.CHECK, "running-total-logged"),
        ("logged_by_the_first_rank", logs.CHECK, "logged-in-part"),
        ("logged_over_lengths", logs.CHECK, "wrong-normaliser"),
        ("divergence_on_the_first_shard", terms.CHECK, "auxiliary-left-out"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_told_is_what_it_does(name: str, looks: Check, bug: str, shared_pool: Pool) -> None:
    [entry] = (each for each in fresh.WRONG if each.name == name)
    with under_test(entry, shared_pool) as (subject, laboratory):
        verdict = session.examine(subject, laboratory, checks=[looks])
    diagnosis = verdict.reports[0].diagnosis
    assert diagnosis is not None and diagnosis.bug is not None
    assert diagnosis.bug.name == bug


MISSED_ONCE: list[tuple[str, Check, str, str | None]] = [
    ("chunks_averaged_and_scaled_back", counts.CHECK, "AGV101", None),
    ("positions_in_a_byte", counts.CHECK, "AGV101", None),
    ("entropy_as_a_mean_of_rows", terms.CHECK, "AGV207", None),
    ("metric_added_up_beside_the_loss", logs.CHECK, "AGV511", None),
    ("running_sum_in_sixteen_bits", scalar.CHECK, "AGV301", None),
    ("rollouts_counted_from_gathered_ids", shapes.CHECK, "AGV204", None),
    ("prompt_tokens_in_id_ring", shapes.CHECK, "AGV101", None),
    ("logged_by_the_main_process", logs.CHECK, "AGV511", None),
    ("slot_for_every_prompt_name", launched.CHECK, "AGV412", None),
    ("prompt_counts_times_device_one", steadiness.STATE, "AGV408", "state-between-steps"),
    ("kl_scale_set_at_window_start", terms.CHECK, "AGV207", "state-between-steps"),
    ("tokens_added_rollout_by_rollout", shapes.CHECK, "AGV101", None),
    ("window_logged_with_its_last", logs.CHECK, "AGV511", "state-between-steps"),
    ("scale_kept_on_the_device", steadiness.STATE, "AGV408", "state-between-steps"),
    ("kl_divided_by_a_slot_table", terms.CHECK, "AGV207", None),
    ("prompt_means_above_epsilon", shapes.CHECK, "AGV111", None),
    ("scattered_backward", backward.CHECK, "AGV126", None),
    ("ends_by_triangle", torch_modes.CHECK, "AGV129", None),
    ("sum_without_trailing_copies", shapes.CHECK, "AGV101", None),
    ("weights_from_a_table_of_shapes", windows.CHECK, "AGV208", "state-between-steps"),
    ("turn_after_turn", order.CHECK, "AGV205", None),
    ("step_count_in_the_compute_dtype", torch_modes.CHECK, "AGV129", None),
    ("ring_totals_in_buckets", asynchronous.CHECK, "AGV411", None),
    ("unmasked_sum_of_dense_batches", shapes.CHECK, "AGV101", None),
    ("penalty_in_tiles_and_a_tail", terms.CHECK, "AGV207", None),
    ("masked_in_a_workspace", arguments.LEFT_ALONE, "AGV502", "arguments-changed"),
    ("rollout_means_in_blocks", scalar.CHECK, "AGV102", None),
    ("logged_with_the_count_of_the_mask", logs.CHECK, "AGV511", "wrong-normaliser"),
    ("rollout_tokens_found_in_validation", torch_modes.CHECK, "AGV128", None),
    ("idle_pieces_stay_attached", poison.CHECK, "AGV121", "multiply-by-mask"),
    ("own_mean_by_share", larger_steps.CHECK, "AGV203", None),
]


@pytest.mark.parametrize("missed", thorough_at_times(MISSED_ONCE, 99, ids=lambda missed: missed[0]))
@pytest.mark.exhaustive
def test_what_was_missed_once_is_found_and_told_to_be_nothing_else(
    missed: tuple[str, Check, str, str | None], shared_pool: Pool
) -> None:
    """A name of a bug that it is not is worse than none."""
    name, looks, code, bug = missed
    [entry] = (each for each in WITNESSED_WRONG if each.name == name)
    with under_test(entry, shared_pool) as (subject, laboratory):
        verdict = session.examine(subject, laboratory, checks=[looks])
    first = verdict.reports[0]
    told = first.diagnosis.bug if first.diagnosis is not None else None
    assert (first.finding.code, told and told.name) == (code, bug)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("penalty_of_the_first_tokens", ["AGV207"]),
        ("penalty_in_two_parts", []),
        ("penalty_in_its_own_dtype", []),
        ("penalty_of_a_formula_of_its_own", []),
    ],
)
def test_a_term_keeps_its_mode_on_long_responses(
    name: str, codes: list[str], shared_pool: Pool
) -> None:
    """It has an oracle of its own where it has a mode's weights on a small step, and none where it
    has no mode's."""
    entry = Unread(f"tests.corpus.branches.penalties:{name}", "token_mean", "")
    with under_test(entry, shared_pool) as (subject, laboratory):
        verdict = session.examine(subject, laboratory, checks=[terms.CHECK])
    assert [report.finding.code for report in verdict.reports] == codes
    assert all("token_mean's, times 0.25" in r.finding.message for r in verdict.reports)


def _known(terms: bool) -> list[Witness]:
    """Witnesses of the wrong ones, launched ranks apart; those of terms for reducers with terms;
    none with rejected tokens, of which this convention promises nothing."""
    found = [entry.witness for entry in WITNESSED_WRONG if entry.witness is not None]
    usual = [w for w in found if not w.where and (terms or w.term is None)]
    return [w for w in usual if all(s.original_mask is None for s in w.case.step.samples)]


def _wrong(entry: Unread, tried: Sequence[Witness], found: Sequence[str]) -> list[str]:
    """What was wrong, but for a refusal of the reducer's own."""
    pairs = zip(tried, found, strict=True)
    refuses = "refuses" in entry.name
    return [
        f"{witness}: {text}"
        for witness, text in pairs
        if text and not (refuses and witness.kind == "gathered" and "not supported" in text)
    ]


def test_names_are_unique_and_of_each_kind_there_are_enough() -> None:
    names = [entry.name for entry in (*WITNESSED_WRONG, *WITNESSED_RIGHT)]
    assert len(set(names)) == len(names)
    counted = {each.name: (len(each.wrong), len(each.right)) for each in CORPORA}
    assert counted.keys() == ENOUGH.keys()
    for name, (wrong, right) in ENOUGH.items():
        assert counted[name][0] >= wrong and counted[name][1] >= right, name
