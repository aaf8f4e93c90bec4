"""What is found out about a reducer does not depend on which others used the same ranks before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aggverify import model
from aggverify.checks import check
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.report.document import document
from aggverify.run import opening, session
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.world import Pool

SUITE = Path(__file__).parent / "suite.py"
FOUND = {
    "right": set(),
    "changes_state": set(),
    "sensitive": set(),
    "dies": {"AGV403"},
    "leaves_a_thread": set(),
    "reduces_once_more": {"AGV404"},
    "raises": {"AGV401"},
    "forgets_the_micro_batches": {"AGV202", "AGV203"},
}
NAMES = tuple(FOUND)
SHUFFLED = [NAMES[i] for i in (4, 1, 6, 2, 0, 5, 7, 3)]
# None of those that ask for fresh ranks by themselves.
CHECKS = tuple(
    check(name)
    for name in (
        "weights_are_the_modes",
        "independent_of_micro_batches",
        "independent_of_data_parallel_size",
    )
)


@pytest.fixture(scope="module")
def executor() -> Iterator[tuple[Executor, Any]]:
    with Pool(LIMITS) as pool, opening.opened(pool, parse_target(str(SUITE)).setup()) as template:
        yield Executor(template), template.description


def verdicts(names: Sequence[str], executor: tuple[Executor, Any]) -> dict[str, dict[str, Any]]:
    """The verdict document of each, examined in this order by the same ranks."""
    told = {}
    for name in names:
        target = parse_target(f"{SUITE}:{name}")
        request = Request(
            target.text, modes=("token_mean",), max_world=2, max_examples=4, max_time=3600.0
        )
        [subject] = subjects(request, target, executor[1])
        verdict = session.examine(subject, executor[0], checks=CHECKS)
        told[name] = json.loads(model.render(document([verdict])))
        # How long a call takes by the clock is the machine's to say.
        del told[name]["verdicts"][0]["call_milliseconds"]
        # Lines are noted in the first ordinary cases that a process runs of a subject.
        del told[name]["verdicts"][0]["covered"]
        for found in told[name]["verdicts"][0]["findings"]:
            # Stacks, and what was printed last: how far other ranks had come is a matter of time.
            del found["detail"], found["fault"]
    return told


@pytest.mark.exhaustive
def test_forward_backward_and_shuffled(executor: tuple[Executor, Any]) -> None:
    forward = verdicts(NAMES, executor)
    codes = {
        name: {f["code"] for f in told["verdicts"][0]["findings"]} for name, told in forward.items()
    }
    assert codes == FOUND
    for order in (NAMES[::-1], SHUFFLED):
        again = verdicts(order, executor)
        for name in NAMES:
            assert json.dumps(again[name], indent=1) == json.dumps(forward[name], indent=1), name
    altered = [w["detail"] for w in forward["changes_state"]["verdicts"][0]["warnings"]]
    assert any("environment, torch default dtype" in detail for detail in altered)
