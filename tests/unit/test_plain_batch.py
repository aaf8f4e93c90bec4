"""A script's batch has what the reducer asks of it, and all there is where that is not known."""

from __future__ import annotations

from dataclasses import fields, replace

from aggverify.conventions import MicroBatch, PlainSite
from aggverify.conventions.plain_batch import _fields, asked_of_batch, batch_of
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

STEP = parse_step("1/1")
SITE = PlainSite(Case(STEP, Layout.trivial(1), (1.0,)), None, None, False)
COUNTS = {"num_rollouts", "num_groups", "num_tokens", "step_rollout_tokens"}
"""Those of the step stand in its data."""


def test_it_can_have_all_that_a_batch_has() -> None:
    properties = {name for name, value in vars(MicroBatch).items() if isinstance(value, property)}
    methods = {"padded", "rows"}
    own = {f.name for f in fields(MicroBatch) if not f.name.startswith("_")}
    assert {name for name, _ in _fields(SITE)} | COUNTS | {"mode"} == own | properties | methods


def test_what_is_asked_is_read_from_the_source() -> None:
    text = "    def reduce(losses, batch):\n        return losses.sum() / batch.num_tokens\n"
    assert asked_of_batch([text, "def f(x):\n    return x.loss_masks"]) == {"num_tokens"}
    assert asked_of_batch([text, "def f(batch):\n    return g(batch)"]) is None
    assert asked_of_batch(["def f(batch):\n    b = batch"]) is None
    assert asked_of_batch(["def f(batch:"]) is None
    own = PlainSite(SITE.case, None, None, False, texts=(text,))
    assert "loss_masks=masks" in batch_of(own) and "step_width" not in batch_of(own)
    asked = "def f(batch):\n    return batch.step_width"
    assert "step_width=" in batch_of(replace(own, texts=(text, asked)))
    assert "padded=padded" in batch_of(SITE) and "padded" not in batch_of(own)
