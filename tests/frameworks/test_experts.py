"""A training step whose model has experts: their gradients have a group of their own."""

from __future__ import annotations

import pytest

from aggverify.steps.experts import owners, parallel_size
from aggverify.steps.layouts import Layout
from tests.conftest import EXAMPLES, Cli

RIGHT = EXAMPLES / "trainer" / "experts.py"
QUICK = ("--profile", "quick", "--mode", "token_mean", "--world", "4", "--only")
INVARIANT = "independent_of_data_parallel_size"
AVERAGED = "parameter.grad /= ctx.world_size"
SUMMED = "dist.all_reduce(parameter.grad, group=ctx.expert_dp_group)"


def test_a_step_that_reduces_them_over_copies_and_divides_by_all_ranks_is_right(cli: Cli) -> None:
    ran = cli("check", RIGHT, *QUICK, INVARIANT)
    assert ran.code == 0, ran
    assert "every second response token's weight is read" in ran.flat


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (AVERAGED, f"{AVERAGED} // ctx.ep_size", "not divided by all ranks"),
        pytest.param(AVERAGED, "pass", "not divided by all ranks", marks=pytest.mark.thorough),
        pytest.param(SUMMED, "pass", "AGV405 Ranks disagree", marks=pytest.mark.thorough),
        pytest.param(
            SUMMED,
            SUMMED.replace("expert_dp_group", "dp_cp_group"),
            "not summed over exactly",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_is_wrong_with_experts_alone_is_named(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory, right: str, wrong: str, said: str
) -> None:
    file = tmp_path_factory.mktemp("experts") / "step.py"
    text = RIGHT.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong))
    ran = cli("check", file, *QUICK, INVARIANT)
    assert ran.code == 1, ran
    assert said in ran.flat


def test_only_a_whole_training_step_has_experts(cli: Cli) -> None:
    ran = cli("check", EXAMPLES / "native" / "sum" / "token_mean.py", "--claim", "experts")
    assert ran.code == 2
    assert "only a whole training step has a model with some" in ran.err


@pytest.mark.parametrize(("world", "size"), [(1, 1), (2, 2), (3, 3), (4, 2), (6, 2)])
def test_every_rank_that_shares_experts_holds_some(world: int, size: int) -> None:
    layout = Layout(tuple(((0,),) for _ in range(world)))
    assert parallel_size(layout) == size
    assert set(owners(20, size)) == {-1, *range(size)}
