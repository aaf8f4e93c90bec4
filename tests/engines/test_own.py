"""Engines that are not in the table: found by name, warmed up apart, merged where they say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.engines import ENGINES, engine, usable
from aggverify.engines.plain_sum import PLAIN_SUM
from aggverify.errors import InputError
from aggverify.execution.executor import Executor
from aggverify.execution.limits import HANDLER
from aggverify.generation.catalogue import hard_cases
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.world import Job, Options, Pool, Template
from tests.conftest import EXAMPLES, ROOT
from tests.engines.slow_start import SECONDS, SLOW

PATH = EXAMPLES / "native" / "sum" / "token_mean.py"
NONE_HERE = replace(PLAIN_SUM, name=f"{__name__}:NONE_HERE")
MISNAMED = replace(PLAIN_SUM, name="sum")


class Recording(Executor):
    """Notes which jobs may share a dispatch."""

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.together: list[bool] = []
        submit = template.submit

        def noted(jobs: list[Job]) -> object:
            self.together += [job.together for job in jobs]
            return submit(jobs)

        template.submit = noted  # type: ignore[method-assign, assignment]


def test_first_use_costs_are_the_engines() -> None:
    target = parse_target(str(PATH))
    limits = Options(cpu_seconds=SECONDS / 2, cpu_seconds_after=SECONDS / 4)
    cases = [c for c in hard_cases() if c.layout.world_size == 2][:4]
    with Pool(limits) as pool:
        template = pool.template(HANDLER, {"target": target.setup()}, paths=[str(ROOT)])
        assert isinstance(template, Template)
        request = Request(str(PATH), modes=("token_mean",), engine=SLOW.name)
        subject = subjects(request, target, template.description)[0]
        executor = Recording(template)
        slow = executor.run(subject, cases)
        plain = executor.run(replace(subject, engine=PLAIN_SUM), cases)
        apart = executor.run(replace(subject, engine=replace(PLAIN_SUM, merges=False)), cases)
    assert subject.engine is SLOW
    for one, other, third in zip(slow, plain, apart, strict=True):
        assert one.weights is not None, one.failure
        assert other.weights is not None, other.failure
        assert third.weights is not None, third.failure
        assert one.weights.tolist() == other.weights.tolist() == third.weights.tolist()
        assert one.first_seconds < SECONDS
    # Cases share a dispatch, and a reduction, only if the engine says that they may.
    count = len(cases)
    assert executor.together == [True] * (2 * count) + [False] * count


def test_an_engine_is_found_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # restores sys.path
    (tmp_path / "my_trainer.py").write_text(
        "from dataclasses import replace\n"
        "from aggverify.engines.mean import MEAN\n"
        "ENGINE = replace(MEAN, name=f'{__name__}:ENGINE')\n"
    )
    assert engine("my_trainer:ENGINE").required == ENGINES["mean"].required
    assert engine(SLOW.name) is SLOW


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{__name__}:NO_SUCH", "AttributeError"),
        (f"{__name__}:PATH", "is no EngineSpec"),
        (f"{__name__}:MISNAMED", "is named 'sum': ranks could not find it"),
        (":", "cannot be imported"),
    ],
)
def test_what_is_no_engine(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        engine(name)


def test_an_engine_that_cannot_run_here_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(PLAIN_SUM), "available", lambda self: "it needs 8 GPUs")
    assert engine("sum") is PLAIN_SUM
    with pytest.raises(InputError, match="engine sum cannot run here: it needs 8 GPUs"):
        usable("sum")
