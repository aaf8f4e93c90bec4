"""What the golden table has a row for: every example, mutant and right twin, every reducer that was
written blind or for a hard case."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import chain
from typing import Any

from aggverify.checks import Finding
from aggverify.errors import AggverifyError
from aggverify.run.outcome.verdict import ReportedFinding, RunVerdict, exit_code
from aggverify.run.planning.request import Request
from aggverify.run.session import verify
from aggverify.world import Pool
from tests.conftest import ROOT
from tests.contradicted import contradicted
from tests.corpus.base import Correct, Mutant
from tests.corpus.branches import right, wrong
from tests.corpus.families import FAMILIES, RIGHT
from tests.corpus.table import BLIND, Blind
from tests.hard import wrong as hard

NO_ROW = (
    "examples/length_weighted.py",
    "examples/slime/zigzag.py",
    "examples/tinker/client.py",
    "examples/trainer/broken/megatron.py",
    "examples/trainer/megatron.py",
)
"""An oracle, slices that other examples import, weights that only an adapter can call; and what
needs Megatron-core, which tests install by themselves."""
NOT_BY_SIGNATURE = {"dealer": "dealer", "log_reducer": "log-reducer", "validation": "validation"}
"""Folders of examples whose convention has to be named, with its name."""
SEEDS = (0, 1, 2)
"""Of mutants; everything else is run with the first. Wrong ones written blind end at their first
finding, which saves most of the time."""
BY_DEFAULT, MOST = " ci", 200
"""How names of rows of the default profile end, and of how many reducers they are that are chosen
by the checksums of their names."""
NOT_BY_QUICK = (
    "dtypes.rounding:nearly_equal_counts_are_one_count",
    "dtypes.small_formats:counts_in_float16",
    "ids.complete_groups:sum_without_trailing_copies",
    "ids.owners:tokens_added_rollout_by_rollout",
    "ids.slots:groups_of_a_frame",
    "masks.behind:prompt_means_above_epsilon",
    "masks.dense_and_sparse:index_with_capacity",
    "masks.dense_and_sparse:nearly_equal_rows_are_cut",
    "masks.remaining_losses:unmasked_sum_of_dense_batches",
    "masks.trimming:long_prefixes_skipped",
    "masks.trimming:scaled_by_reciprocals",
    "state.warm_up:mean_by_a_running_tally",
)
"""Written blind, and found by the default profile's longer lists alone: rows of it as well."""
BESIDE = {"mode_without_effect": ("sample_mean",)}
"""Mutants that are wrong beside another mode only, with that mode."""
Row = dict[str, Any]
"""``exit``; ``causes``, how many are named of what fails; ``findings``, each as in ``_kept``;
``why`` of what could not be judged; ``seconds`` that it took when it was recorded."""


def requests() -> Mapping[str, Request]:
    """What is run for each row, by its name; those of the first seed before all others.

    The last ones are of the default profile.
    """
    reducers = list(_reducers())
    rows = [
        (seed, f"{name} {seed}", _request(given, seed, "quick"))
        for name, given, seeds in chain(reducers, _hard())
        for seed in seeds
    ]
    found = {name: request for _, name, request in sorted(rows, key=lambda row: row[0])}
    some = sorted(reducers, key=lambda row: zlib.crc32(row[0].encode()))[:MOST]
    more = {f"wrong corpus.blind.{name}" for name in NOT_BY_QUICK}
    some += [row for row in reducers if row[0] in more and row not in some]
    return found | {f"{name} 0{BY_DEFAULT}": _request(given, 0, "ci") for name, given, _ in some}


def _request(given: Mapping[str, Any], seed: int, profile: str) -> Request:
    return Request(**given, seed=seed, profile=profile, max_time=900.0)


def _reducers() -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    """A reducer's name with its kind, options and seeds."""
    for each in BLIND:
        given = {**_of(each), "exit_first": each.verdict == "wrong"}
        yield f"{each.verdict} {each.target.removeprefix('tests.')}", given, SEEDS[:1]
    for kind, families, entries, seeds in (
        ("mutant", FAMILIES, "MUTANTS", SEEDS),
        ("right", RIGHT, "CORRECT", SEEDS[:1]),
    ):
        for family in families:
            for entry in getattr(family, entries):
                name = f"{kind} {family.__name__.removeprefix('tests.')}:{entry.function}"
                yield name, _given(family.__name__, entry), seeds
    for kind, module, table in (
        ("mutant", wrong, wrong.WRONG),
        ("right", right, right.RIGHT),
    ):
        for each in table:
            name = f"{kind} {module.__name__.removeprefix('tests.')}:{each.function}"
            target = f"{module.__name__}:{each.function}"
            yield name, {"target": target, "modes": (each.mode,)}, SEEDS[:1]
    for path in sorted((ROOT / "examples").rglob("*.py")):
        target = path.relative_to(ROOT)
        if str(target) not in NO_ROW and "\nADAPTER = " not in path.read_text():
            convention = NOT_BY_SIGNATURE.get(target.parts[1])
            given = {"convention": convention} if convention else {}
            yield f"example {target}", {"target": str(path), **given}, SEEDS[:1]


def _hard() -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    """Those that a hard case kills; not among those that the default profile is run on."""
    modes = {name: each.mode for name, each in hard.WRONG.items()}
    for name, mode in (modes | {name: mode for name, (_, mode, _) in hard.SPECIAL.items()}).items():
        given = {"target": f"tests.hard.wrong:{name}", "modes": (mode,), "engine": "sum"}
        yield f"hard {name}", {**given, "exit_first": True}, SEEDS[:1]


def _given(module: str, entry: Mutant | Correct) -> dict[str, Any]:
    policy = {
        question.name: str(reading)
        for question in fields(entry.policy)
        if (reading := getattr(entry.policy, question.name)) != question.default
    }
    return {
        "target": f"{module}:{entry.function}",
        "modes": (entry.mode, *BESIDE.get(entry.function, ())),
        "engine": entry.engine,
        "convention": entry.convention,
        "divisor": entry.divisor,
        "claims": frozenset(entry.claims),
        "policy": policy,
    }


def _of(entry: Blind) -> dict[str, Any]:
    return {
        "target": entry.target,
        "modes": (entry.mode,),
        "engine": entry.engine,
        "divisor": entry.divisor,
    }


def judged(request: Request, pool: Pool) -> Row:
    """The row of a reducer."""
    try:
        verdicts = verify(request, lambda event: None, pool=pool)
    except AggverifyError as error:
        why = str(error).replace(str(ROOT), ".")
        return {"exit": 2, "causes": 0, "findings": [], "why": why}
    found = [_kept(report) for v in verdicts for group in v.causes for report in group]
    return {
        "exit": int(exit_code(verdicts)),
        "causes": sum(map(_causes, verdicts)),
        "findings": found,
    }


def _causes(verdict: RunVerdict) -> int:
    """How many causes are named of what fails."""
    return sum(any(report.fails for report in group) for group in verdict.causes)


def _kept(report: ReportedFinding) -> Row:
    d, f = report.diagnosis, report.finding
    return {
        "code": f.code,
        "check": f.check,
        "dimensions": list(report.relevance.dimensions),
        "bug": d.bug.name if d and d.bug else "",
        "cause": d.sentence if d else "",
        "factor": d.factor if d else None,
        "size": _size(f),
        "signature": report.signature,
        "fails": report.fails,
        "where": [[s.function, s.line] for s in report.suspects],
        "refuted": contradicted(f, d, report.stored.claim.divisor),
    }


def _size(found: Finding) -> list[int]:
    """Ranks, micro-batches, samples and response tokens of its case."""
    step, layout = found.case.step, found.case.layout
    counts = (layout.num_microbatches, len(step.samples), step.num_response_tokens)
    return [layout.world_size, *counts]
