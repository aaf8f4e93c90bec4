"""Which label a training step has used for each of its logits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aggverify.conventions import Site
from aggverify.conventions.token_labels import Sequences
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.labels import WrongLabel, logits

STEP = parse_step("2/101; 1/11")
ALONE = Layout.trivial(2)
Labels = Callable[[Tensor], Tensor]


def trained(labels: Labels, layout: Layout = ALONE, **how: float) -> tuple[list[float], list[str]]:
    """Weights of the step's tokens on the first rank, and which kinds of wrong labels were used."""
    case = Case(STEP, layout, (0.5,) * 5)
    site = Site(case, None, None, False, 0, 0, None, None, torch.device("cpu"))
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    wrong: list[WrongLabel] = []
    made = logits(site, 0, (torch.full_like(theta, 0.5).detach(), theta), wrong.append)
    own = Sequences.of(site, layout.micro_batches[0][0]).local_labels
    right = torch.cat([torch.from_numpy(part) for part in own])
    cross_entropy(made, labels(right), reduction="sum", **how).backward()
    assert theta.grad is not None
    return theta.grad.tolist(), [error.name.partition(": ")[2] for error in wrong]


def shifted(right: Tensor) -> Tensor:
    return torch.cat([right[1:], right.new_tensor([-100])])


def test_a_token_weighs_one_where_its_label_is_the_next_token() -> None:
    assert trained(lambda right: right) == ([1.0, 0.0, 1.0, 1.0, 1.0], [])


def test_smoothing_is_no_other_label() -> None:
    _, wrong = trained(lambda right: right, label_smoothing=0.1)
    assert wrong == []


def at(row: int, label: int) -> Labels:
    """Nothing but that one position has a label: ids are 1 to 8, the second sample's from 6."""
    return lambda right: torch.full_like(right, -100).index_fill(0, torch.tensor([row]), label)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        pytest.param(shifted, "shifted twice", id="all of them once more"),
        pytest.param(at(1, 4), "shifted twice", id="one once more"),
        pytest.param(at(1, 2), "not shifted", id="its own token"),
        pytest.param(at(0, 2), "prompt", id="a token of the prompt"),
        pytest.param(at(4, 6), "over an edge", id="the first of the next sample"),
        pytest.param(at(1, 5), "elsewhere", id="two too far"),
    ],
)
def test_a_wrong_label_is_named(labels: Labels, kind: str) -> None:
    assert trained(labels)[1] == [kind]


def test_the_edge_of_a_shard_is_told_from_a_second_shift() -> None:
    """Of five tokens the first rank has the first two and no more."""
    layout = Layout((((0,), (1,)),), 2)
    assert trained(at(1, 4), layout)[1] == ["over an edge"]
