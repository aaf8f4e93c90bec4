"""The calls of a candidate as data: what is written down, and what is none."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aggverify.conventions import Output, Site
from aggverify.conventions.native import Native
from aggverify.conventions.skyrl import SkyrlAdvantages
from aggverify.conventions.trainer import TrainStepFunction
from aggverify.engines.plain_sum import PLAIN_SUM
from aggverify.errors import InputError
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.generation.catalogue import plain_losses
from aggverify.run.export import _steps
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.trainer.recording import recorded

STEP = parse_step("1/11 1/1")
CASE = Case(STEP, Layout(parse_micro_batches("0 1")), plain_losses(STEP))
SITE = Site(CASE, "token_mean", None, False, 0, 0, None, None, torch.device("cpu"))


@dataclass(frozen=True)
class How:
    """A convention that hands over what it is given."""

    value: Any = None
    after: Any = None

    def bind(self, function: Any, module: Any, site: Site) -> Any:
        after = self.after or (lambda out: out)
        return lambda k, losses: Output(after(function(losses, given=self.value)))


def of(how: Any, module: Any = None) -> dict[str, Any]:
    found = recorded(how, "reduce", module, SITE, PLAIN_SUM)
    read: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return read


NAN = {"builtin": ["float", "nan"]}
VALUES = [
    (None, None),
    (True, True),
    (math.inf, {"builtin": ["float", "inf"]}),
    ((1, [2.5, "x"]), {"builtin": ["tuple", [1, [2.5, "x"]]]}),
    ({"a": slice(1, None)}, {"builtin": ["dict", [["a", {"builtin": ["slice", 1, None, None]}]]]}),
    (torch.float16, {"named": "torch.float16"}),
    (SimpleNamespace(n=1), {"object": {"n": 1}}),
    (
        torch.tensor([[1.0, math.nan]]),
        {"tensor": {"shape": [1, 2], "dtype": "float32", "values": [1.0, NAN]}},
    ),
]


@pytest.mark.parametrize(("value", "data"), VALUES, ids=lambda row: type(row).__name__)
def test_a_value_is_plain_data(value: Any, data: Any) -> None:
    first, second = of(How(value))["cells"]
    assert first["calls"][0]["kwargs"] == {"given": data}
    assert (first["loss"], second["loss"]) == ({"result": 0}, {"result": 1})
    losses = first["calls"][0]["args"][0]["tensor"]
    assert losses["values"] == list(CASE.losses[:2])
    assert losses["slopes"] == [[0, 0, 1.0], [1, 1, 1.0]]
    assert second["calls"][0]["args"][0]["tensor"]["slopes"] == [[0, 2, 1.0]]
    assert [cell["tokens"] for cell in (first, second)] == [2, 1]


def test_a_batch_has_what_a_reducer_can_ask_for() -> None:
    [cell, _] = of(Native())["cells"]
    batch = cell["calls"][0]["args"][1]["object"]
    assert batch["num_tokens"] == 3 and batch["dp_group"] is None
    assert batch["mask"]["tensor"]["values"] == [1, 1]
    assert not any(name.startswith("_") for name in batch)


def test_a_result_that_is_a_factor_stands_for_itself() -> None:
    module = SimpleNamespace(reduce_loss=print)
    first, second = of(SkyrlAdvantages(), module)["cells"]
    kinds = [[next(iter(call["call"].items())) for call in c["calls"]] for c in (first, second)]
    own = [("named", "operator.getitem"), ("named", "operator.mul"), ("reducer", "reduce_loss")]
    assert kinds == [[("reducer", "reduce"), *own], own]
    assert second["calls"][0]["args"][0] == {"result": 0} and second["loss"] == {"result": 6}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (How(print), "given is of type builtin_function_or_method, which is no data"),
        (How(np.float64), "given is of type type, which is no data"),
        (How(after=lambda out: out[0] if out else out), "looks into what the reducer returns"),
        (How(after=lambda out: out.loss), "reads loss of what the reducer returns"),
        (How(after=lambda out: torch.relu(torch.ones(1)) + out.item()), "reads item of"),
        (TrainStepFunction(), "a whole training step is given a model, which is no data"),
    ],
)  # fmt: skip
def test_what_is_no_data_is_said(how: Any, why: str) -> None:
    found = of(how)
    assert found.keys() == {"why_not"} and why in found["why_not"]


@pytest.mark.parametrize("blob", [b"", b"[", b"[1]", b"[]", b'[{"cells"]', b"[{}]", b"[" * 99_999])
def test_a_rank_that_sends_something_else_is_named(blob: bytes) -> None:
    with pytest.raises(InputError, match="what is no record of calls"):
        _steps(RunSpec(CASE), Execution(CASE, recorded=(blob,)))


def test_why_a_rank_has_no_record_is_handed_on() -> None:
    ran = Execution(CASE, recorded=(b'[{"why_not": "it is a model"}]',))
    with pytest.raises(InputError, match=r"^it is a model$"):
        _steps(RunSpec(CASE), ran)
