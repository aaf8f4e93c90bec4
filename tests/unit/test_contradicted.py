"""A diagnosis that gives another weight than the printed one is seen."""

from __future__ import annotations

from dataclasses import replace

from tests import verdicts
from tests.contradicted import contradicted


def test_a_factor_is_held_to_the_worst_token() -> None:
    report = verdicts.verdict().reports[0]
    told = report.diagnosis
    assert told is not None and told.factor == "1/cp_size"
    assert not contradicted(report.finding, told, None)
    for factor in ("cp_size", "1/(2*cp_size)", "1/dp_size", "1/3"):
        assert contradicted(report.finding, replace(told, factor=factor), None)
    assert not contradicted(report.finding, replace(told, factor="N/(2*P)"), None)
