"""Recorded steps of wrong trainers are found and named, right ones with odd structure pass."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from aggverify.codes.state import State
from aggverify.errors import InputError
from aggverify.run.outcome.verdict import Exit
from tests.audit.written import Pass, Step, found, row, verdict

N = 9
"""Unmasked tokens of the step below: 2, 1, 3 and 3, on two ranks with two micro-batches each."""


def four(
    by: Fraction | float = Fraction(2, N), factors: tuple[float, ...] = (1, 1, 1, 1), first: int = 0
) -> list[list[Pass]]:
    """One sample in each micro-batch; 2/9 is what DDP's mean over two ranks makes 1/9."""
    lengths, n = (2, 1, 3, 3), iter(range(4))
    return [
        [
            Pass(
                [row(float(by) * factors[i], lengths[i])], ids=[first + i], groups=[first + i // 2]
            )
            for i in (next(n), next(n))
        ]
        for _ in range(2)
    ]


def other(tokens: int, by: float, first: int) -> Step:
    """A step of one sample on each rank."""
    return [[Pass([row(by, tokens - 1)], ids=[first])], [Pass([row(by, 1)], ids=[first + 1])]]


RIGHT: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "token mean": ([four()], {}),
    "sum": ([four(Fraction(1, N))], {"engine": "sum"}),
    "sample mean": (
        [
            [
                [Pass([row(Fraction(1, 4), 2), row(Fraction(1, 2), 1)])],
                [Pass([row(Fraction(1, 6), 3)] * 2)],
            ]
        ],
        {"mode": "sample_mean"},
    ),
    "prompt mean": ([four(Fraction(2, 2), (1 / 3, 1 / 3, 1 / 6, 1 / 6))], {"mode": "prompt_mean"}),
    "dummies that weigh nothing": (
        [
            [
                [Pass([row(Fraction(2, 3), 2)], ids=[0])],
                [Pass([row(Fraction(2, 3), 1), [0, 0]], [[1], []], [1, -1])],
            ]
        ],
        {},
    ),
    "a rank without tokens": ([[[Pass([row(Fraction(2, 3), 3)])], []]], {}),
    "a rank with masked tokens only": (
        [[[Pass([row(Fraction(2, 3), 3)])], [Pass([[0, 0]], [[0, 0]])]]],
        {},
    ),
    "more micro-batches on one rank": (
        [
            [
                [Pass([row(Fraction(2, 3), 1)]), Pass([row(Fraction(2, 3), 1)])],
                [Pass([row(Fraction(2, 3), 1)])],
            ]
        ],
        {},
    ),
    "padding in the middle": (
        [[[Pass([[2 / 3, 0, 2 / 3]], [[1, 0, 1]])], [Pass([row(Fraction(2, 3), 1)])]]],
        {},
    ),
    "shards by their positions": (
        [
            [
                [Pass([row(Fraction(2, 4), 2)], ids=[7], positions=[[0, 3]])],
                [Pass([row(Fraction(2, 4), 2)], ids=[7], positions=[[1, 2]])],
            ]
        ],
        {"cp": 2},
    ),
    "gathered copies": (
        [[[Pass([row(Fraction(2, 3), 3)], ids=[7], positions=[[0, 1, 2]])]] * 2],
        {"cp": 2},
    ),
    "tensor-parallel copies": (
        [[[Pass([row(Fraction(1, 3), 3)], ids=[7])], [Pass([row(Fraction(1, 3), 3)], ids=[7])]]],
        {"tp": 2},
    ),
    "counts beside the loss": (
        [[[Pass([row(1, 2)], more={"count": 2})], [Pass([row(1, 1)], more={"count": 1})]]],
        {"engine": "megatron-token-raw"},
    ),
    "a term with a coefficient": (
        [[[Pass([row(Fraction(2, 3), 2)]), Pass([row(Fraction(2, 3), 1)])], []]],
        {},
    ),
    "steps of different sizes": ([four(), other(5, 2 / 5, 50)], {}),
    "float32 counts in float64": (
        [[[Pass([[0.66666668653488159] * 2])], [Pass([[0.66666668653488159]])]]],
        {},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_run_passes(name: str) -> None:
    steps, asked = RIGHT[name]
    seen = verdict(*steps, **asked)
    assert list(found(seen)) == []
    assert seen.exit is Exit.CONFORMS


WRONG: dict[
    str, tuple[list[Step], dict[str, Any], str, str | None, tuple[Fraction, Fraction] | None]
] = {
    # code, what is said of the cause, and the weight at the shown token: expected, actual
    "divided by K once more": (
        [four(Fraction(1, N))],
        {},
        "AGV101",
        "every weight is 1/2 of the mode's: 1/dp_size or 1/num_microbatches",
        (Fraction(1, N), Fraction(1, 18)),
    ),
    "scaled twice": (
        [four(Fraction(4, N))],
        {},
        "AGV101",
        "every weight is 2 of the mode's: dp_size or num_microbatches, which are that in this run",
        (Fraction(1, N), Fraction(2, N)),
    ),
    "each micro-batch by its own count": (
        [
            [
                [
                    Pass([row(Fraction(1, 2) * Fraction(1, 2) * 2, 2)], ids=[0]),
                    Pass([row(Fraction(1, 2) * 2, 1)], ids=[1]),
                ],
                [Pass([row(Fraction(1, 3), 3)], ids=[2]), Pass([row(Fraction(1, 3), 3)], ids=[3])],
            ]
        ],
        {},
        "AGV101",
        None,
        (Fraction(1, N), Fraction(1, 2)),
    ),
    "the counts of the step before": (
        [four(), other(5, 2 / 9, 50), other(7, 2 / 5, 60)],
        {},
        "AGV604",
        "divided by the token count of the step before it (9 for 5, 5 for 7)",
        (Fraction(1, 5), Fraction(1, 9)),
    ),
    "a generation batch over two steps": (
        [other(5, 4 / 12, 40), other(7, 4 / 12, 50)],
        {},
        "AGV604",
        "divided by the token count of 2 optimizer steps together, divided by 2 (6 for 5, 6 for 7)",
        (Fraction(1, 5), Fraction(1, 6)),
    ),
    "a bin that is dropped": (
        [
            [
                [Pass([row(Fraction(2, 3), 2)], ids=[0])],
                [Pass([row(0, 1)], ids=[1], more={"unused": True})],
            ]
        ],
        {},
        "AGV601",
        "losses without a backward pass",
        (Fraction(1, 3), Fraction(0)),
    ),
    "a shard that is dropped": (
        [
            [
                [Pass([row(Fraction(2, 3), 2)], ids=[7], positions=[[0, 3]])],
                [Pass([row(Fraction(2, 3), 1)], ids=[7], positions=[[1]])],
            ]
        ],
        {"cp": 2},
        "AGV601",
        "positions that no rank holds",
        (Fraction(1, 3), Fraction(1, 3)),
    ),
    "a sample on two ranks": (
        [[[Pass([row(Fraction(2, 2), 2)], ids=[3])], [Pass([row(Fraction(2, 2), 2)], ids=[3])]]],
        {},
        "AGV602",
        "one sample on several ranks",
        (Fraction(1, 2), Fraction(1)),
    ),
    "padding is weighed": (
        [[[Pass([row(Fraction(2, 3), 3)], [[1, 1, 0]])], [Pass([row(Fraction(2, 3), 1)])]]],
        {},
        "AGV603",
        "a weight behind the mask",
        (Fraction(0), Fraction(1, 3)),
    ),
    "a dummy is weighed": (
        [[[Pass([row(1, 2)], ids=[0])], [Pass([row(1, 1)], ids=[-1])]]],
        {},
        "AGV603",
        "a weight behind the mask",
        (Fraction(0), Fraction(1, 2)),
    ),
    "dummies are counted": (
        [[[Pass([row(Fraction(2, 3), 2)], ids=[0])], [Pass([[0]], [[1]], ids=[-1])]]],
        {},
        "AGV101",
        None,
        (Fraction(1, 2), Fraction(1, 3)),
    ),
    "an engine that does not average": (
        [four(Fraction(2, N))],
        {"engine": "sum"},
        "AGV101",
        "dp_size or num_microbatches",
        (Fraction(1, N), Fraction(2, N)),
    ),
    "not a number": ([[[Pass([[float("nan")]])], [Pass([[1.0]])]]], {}, "AGV103", None, None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_run_is_found(name: str) -> None:
    steps, asked, code, cause, shown = WRONG[name]
    seen = verdict(*steps, **asked)
    assert list(found(seen)) == [code]
    assert seen.exit is Exit.FINDINGS
    [report] = seen.reports
    finding = report.finding
    if cause is not None:
        assert report.diagnosis is not None
        assert cause in report.diagnosis.sentence
    if shown is not None:
        assert finding.expected is not None and finding.observed is not None
        assert finding.token is not None
        assert finding.expected[finding.token] == shown[0]
        assert finding.observed[finding.token] == pytest.approx(float(shown[1]), rel=1e-15)


def test_a_term_that_is_averaged_otherwise_is_found() -> None:
    def passes(kl: tuple[float, float]) -> Step:
        rows = [row(Fraction(2, 3), 2), row(Fraction(2, 3), 1)]
        terms = [row(kl[0], 2), row(kl[1], 1)]
        return [
            [Pass([r], ids=[n]), Pass([t], ids=[n], name="kl")]
            for n, (r, t) in enumerate(zip(rows, terms, strict=True))
        ]

    assert list(found(verdict(passes((0.5, 0.5))))) == []
    assert list(found(verdict(passes((0.0, 0.0))))) == []
    [report] = verdict(passes((0.5, 1.0))).reports
    assert (report.finding.code, report.finding.term) == ("AGV605", "kl")


@pytest.mark.parametrize(
    ("steps", "mode", "divisor"),
    [
        ([four()], "token_mean", None),
        (
            [four(Fraction(1, 4), (Fraction(1, 2) * 2, 2, Fraction(1, 3) * 2, Fraction(1, 3) * 2))],
            "sample_mean",
            None,
        ),  # type: ignore[arg-type]
        ([four(Fraction(2, 4 * 7))], "constant", 7.0),
        ([four(2)], "token_sum", None),
        ([four(Fraction(2, 4))], "sequence_sum", None),
    ],
)
def test_the_mode_is_found_out(steps: list[Step], mode: str, divisor: float | None) -> None:
    seen = verdict(*steps, mode=None)
    assert (seen.subject.mode, seen.subject.divisor, seen.identified) == (mode, divisor, True)
    assert seen.exit is Exit.CONFORMS


def test_weights_of_no_mode_are_not_judged() -> None:
    seen = verdict(four(1, (1, 2, 3, 5)), mode=None)
    assert seen.exit is Exit.NO_JUDGEMENT
    assert [c.state for c in seen.checks if c.name == "run_weights_are_the_modes"] == [
        State.NOT_JUDGED
    ]


@pytest.mark.parametrize(
    ("steps", "asked", "words"),
    [
        ([[[Pass([row(1, 1)])]]], {"mode": "prompt_mean"}, "have no prompt groups"),
        ([[[Pass([row(1, 1)])]]], {"engine": "train-step"}, "only scales and sums"),
        ([four()], {"cp": 3}, "must divide the world of 2 ranks"),
        (
            [[[Pass([row(1, 1)], ids=[0])], [Pass([row(1, 2)], ids=[0])]]],
            {"cp": 2},
            "give the probe positions=",
        ),
    ],
)
def test_what_records_cannot_tell_is_refused(
    steps: list[Step], asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        verdict(*steps, **asked)


def test_groups_that_span_steps_and_unequal_steps_are_warned_of() -> None:
    first = [[Pass([row(1, 2)], ids=[0], groups=[5])], [Pass([row(1, 1)], ids=[1], groups=[6])]]
    then = [[Pass([row(1, 2)], ids=[2], groups=[6])], []]
    seen = verdict(first, then, mode="prompt_mean")
    assert [(w.code, w.detail) for w in seen.weaknesses] == [
        ("AGVW22", "2, 1 samples in steps 0, 1"),
        ("AGVW21", "1 groups, the first with id 6"),
    ]


def test_a_sample_on_two_ranks_beside_weights_of_no_one_factor_is_told_apart() -> None:
    """What has a finding of its own takes no part in what is said of all others."""
    lengths = [[(3, 2, 1.0), (4, 1, 0.5)], [(3, 2, 1.0), (5, 3, 0.7)]]
    step = [[Pass([row(by, n)], ids=[name]) for name, n, by in rank] for rank in lengths]
    assert set(found(verdict(step))) == {"AGV602", "AGV101"}
