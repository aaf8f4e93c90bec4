"""A version that a convention does not know is never told as a finding of its function's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from aggverify.checks import calls
from aggverify.checks.arguments import SWITCH
from aggverify.checks.base import failure_finding
from aggverify.conventions import CONVENTIONS, convention
from aggverify.conventions.validation import Validation
from aggverify.errors import UnknownVersion
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.run.opening import opened
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.blame import NotKnown
from aggverify.trainer.contract import outcomes
from aggverify.world import Pool
from tests.conftest import Cli
from tests.frameworks.test_called import SITE
from tests.frameworks.test_shipped import CHECKED, possible

MODULE = "tests.frameworks.newer"
OF_TENSORS = {
    *("verl", "roll", "openrlhf", "nemo-rl", "areal", "prime-rl", "skyrl", "skyrl-reduce-loss"),
    *("slime", "slime-core", "miles-core", "megatron-lm", "megatron-lm-two-output"),
    *("areal-reduction", "hf-loss-func"),
}
"""Conventions that hand over no object."""
WITH_MAPPINGS = {
    *("slime-aggregation", "miles-aggregation", "slime-trainer", "miles-trainer", "miles-fsdp"),
    *("trl", "skyrl-megatron-wrapper", "hf-trainer", "hf-loss-func"),
    *("miles-tinker", "skyrl-tinker", "oat"),
}
OWN = ("native", "policy-loss", "trainer", "trainer-engine")
"""Whose signatures are aggverify's: what such a reducer misreads is a finding."""


@pytest.fixture(scope="module")
def ranks(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": MODULE}) as template:
        yield Executor(template)


def told(name: str, way: str, ranks: Executor) -> str:
    """What is raised of a version that is newer in this way; "" where nothing is."""
    mode, engine = next(iter(possible(convention(name))))
    size = 2 if mode.startswith("token_mean_legacy") else 1
    step = parse_step("2/11; 1/1" if size == 2 else "2/11")
    function = f"{way}_{name.replace('-', '_')}"
    terms = getattr(convention(name), "terms", ())
    claim = Claim(f"{MODULE}:{function}", function, name, engine, mode, 7.0, terms=terms)
    case = Case(step, Layout.trivial(size), plain_losses(step))
    try:
        ranks.run(Subject.of(claim), [case])
    except UnknownVersion as error:
        return str(error)
    return ""


def test_every_convention_is_looked_at() -> None:
    assert {*CHECKED, *OWN, "slime"} == CONVENTIONS.keys() - {"validation", "log-reducer", "dealer"}


@pytest.mark.parametrize("way", ["attribute", "key", "more", "fewer"])
def test_what_a_convention_does_not_know_of_a_version(way: str, ranks: Executor) -> None:
    names = {*CHECKED, "slime"}
    names -= OF_TENSORS if way == "attribute" else set()
    names &= WITH_MAPPINGS if way == "key" else names
    words = {
        "attribute": "it reads `not_yet`",
        "key": "it reads `not_yet`",
        "more": "it requires `not_yet`",
        "fewer": r"it does not take `\w+`|takes 0 positional arguments but \d were given",
    }
    for name in sorted(names):
        sentence = told(name, way, ranks)
        assert re.search(rf"the convention {name}: .*({words[way]})", sentence), (name, sentence)
    for name in OWN if way != "key" else ():
        assert told(name, way, ranks) == "", name


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("own_attribute", "AttributeError: 'types.SimpleNamespace' object"),
        ("own_key", "KeyError: 'masks'"),
        ("own_call", "TypeError: own_key() takes 2"),
        ("more_native", "missing 1 required keyword-only argument: 'not_yet'"),
        ("fewer_native", "takes 0 positional arguments but 2 were given"),
        ("attribute_native", "AttributeError: 'MicroBatch' object has no attribute 'not_yet'"),
        ("of_none", "AttributeError: 'NoneType' object"),
        ("wrong_use", "ValueError: rows are padded right or left"),
    ],
)
def test_what_a_reducer_gets_wrong_itself_stays_a_finding(
    function: str, error: str, ranks: Executor
) -> None:
    claim = Claim(f"{MODULE}:{function}", function, "native", "sum", "token_mean")
    case = Case(step := parse_step("2/11"), Layout.trivial(1), plain_losses(step))
    [ran] = ranks.run(subject := Subject.of(claim), [case])
    finding = failure_finding("any", subject, ran)
    assert finding is not None and finding.code == "AGV401"
    assert error in finding.message


def test_a_mode_that_an_older_version_does_not_offer_leaves_its_others_judged(
    ranks: Executor,
) -> None:
    offered = ("token_mean", "sample_mean", "constant")
    claim = Claim(f"{MODULE}:older_skyrl", "older_skyrl", "skyrl", "skyrl-fsdp", "token_mean")
    mine = Subject.of(replace(claim, offered=offered))
    step = parse_step("2/11; 1/1")
    specs = SWITCH.variants(Case(step, Layout.trivial(2), plain_losses(step)))
    ran = ranks.run(mine, specs)
    failed = [one.mode for one, done in zip(specs[1:], ran[1:], strict=True) if done.failure]
    assert failed == ["prompt_mean"]
    assert SWITCH.judge(mine, ran) is None


def test_functions_that_reduce_nothing(ranks: Executor) -> None:
    def validate(args: Any) -> None:
        args.not_yet  # noqa: B018

    with pytest.raises(NotKnown, match=r'it reads `not_yet` .*"others"'):
        outcomes(validate, Validation(), SITE)

    subject = Subject.of(Claim(f"{MODULE}:key_logs", "key_logs", "log-reducer", "sum"))
    with pytest.raises(UnknownVersion, match="convention log-reducer: it reads `not_yet`"):
        ranks.run(subject, calls.CHECK.variants(next(calls.cases(subject))))


def test_the_command_says_so_and_ends_without_a_verdict(cli: Cli) -> None:
    ran = cli("check", f"{MODULE}:key_trl", "--convention", "trl", "--mode", "token_mean")
    assert ran.code == 2, ran
    text = " ".join(ran.out.split())
    assert "NOT JUDGED this version of" in text
    assert "is not known to the convention trl: it reads `not_yet`" in text
    assert "AGV" not in text
