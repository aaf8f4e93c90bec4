"""The report on where a value goes: floors are those of the import contracts."""

from __future__ import annotations

import runpy

from tests.conftest import ROOT

WAY = runpy.run_path(str(ROOT / "reports" / "way.py"))


def test_a_floor_is_higher_where_the_contracts_have_it_so() -> None:
    way = WAY["Way"](WAY["VALUES"]["subject"])
    names = ("execution.executor", "run.planning.plan", "run.session", "report.known", "cli.check")
    floors = [way.floor(f"aggverify.{name}:any") for name in names]
    assert floors == sorted(set(floors))


def test_only_what_leads_to_a_higher_floor_is_a_climb() -> None:
    way = WAY["Way"](WAY["VALUES"]["case"])
    up = ("aggverify.run.planning.plan:plan", "aggverify.run.session:examine")
    down, same = up[::-1], ("aggverify.checks.masks:judge", "aggverify.checks.order:judge")
    assert way.upward(dict.fromkeys([up, down, same])) == [up]
