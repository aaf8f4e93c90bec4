"""What an audit holds a run to: one named property each, with the codes of what breaks it."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.checks import Check, Finding, formula, layout

WRONG, NOT_FINITE = "AGV101", "AGV103"
LOST, TWICE, PADDING, OTHER_COUNTS, TERM, REDUCTION = (
    "AGV601",
    "AGV602",
    "AGV603",
    "AGV604",
    "AGV605",
    "AGV606",
)
GROUPS_SPAN, UNEQUAL, CUT, SILENT = "AGVW21", "AGVW22", "AGVW23", "AGVW24"


def _property(name: str, title: str) -> Check:
    """Make a property, which is judged on records: nothing is generated, and nothing is run."""

    def no_judge(*_: object) -> Finding | None:
        raise NotImplementedError(f"{name} is judged on a run's records, not on a reducer")

    return Check(name=name, title=title, space=lambda subject: None, judge=no_judge)


ONCE = _property("run_weighs_every_token_once", "no token is lost, and none is weighed twice")
MASKED = _property("run_weighs_no_padding", "padding, dummies and masked tokens weigh nothing")
WEIGHTS = _property("run_weights_are_the_modes", "every token's weight in the update is the mode's")
TERMS = _property("run_terms_weigh_alike", "further terms have the losses' weights")
ENGINE = _property("run_reduces_as_the_engine", "ranks' gradients are reduced as the engine does")
PROPERTIES = (ONCE, MASKED, WEIGHTS, TERMS, ENGINE)
_FORMULA, _COMBINED = (formula.CHECK, "AGV101"), (layout.COMBINED, "AGV204")
_ONE_SIZE: Mapping[str, tuple[Check, str]] = {
    "num_microbatches": (layout.MICRO_BATCHES, "AGV202"),
    "dp_size": (layout.DATA_PARALLEL, "AGV203"),
    "cp_size": (layout.CONTEXT_PARALLEL, "AGV201"),
}


def as_a_case(sizes: frozenset[str]) -> tuple[Check, str]:
    """Return what judges a recorded step of a reducer, by the sizes of its layout above one."""
    if not sizes:
        return _FORMULA
    return _COMBINED if len(sizes) > 1 else _ONE_SIZE[min(sizes)]
