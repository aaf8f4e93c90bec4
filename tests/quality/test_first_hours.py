"""What people write in their first hour: exit code, cause, and no cause that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.choosing import thorough_at_times
from tests.conftest import Cli
from tests.first_hours import FIRST_HOURS, NOTHING_JUDGED, FirstHour

BRIEF = ("--profile", "quick")
"""Only less searched: everything here is found on stored cases and a few drawn ones."""


def test_there_are_twenty() -> None:
    assert len(FIRST_HOURS) >= 20
    assert len({hour.name for hour in FIRST_HOURS}) == len(FIRST_HOURS)


@pytest.mark.parametrize(
    "hour",
    [
        *(pytest.param(hour, id=hour.name) for hour in NOTHING_JUDGED[1:3]),
        *thorough_at_times(
            [h for h in FIRST_HOURS if h not in NOTHING_JUDGED[1:3]], 16, ids=lambda h: h.name
        ),
    ],
)
def test_a_first_hour(cli: Cli, tmp_path: Path, hour: FirstHour) -> None:
    for name, text in {hour.path: hour.source, **hour.beside}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.lstrip("\n"))
    ran = cli("check", hour.path, *BRIEF)
    assert ran.code == hour.code, ran
    output = ran.out + ran.err + ran.flat
    assert [text for text in hour.says if text not in output] == [], ran
    assert [text for text in hour.silent if text in output] == [], ran
