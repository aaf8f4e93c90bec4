"""What verl, TRL, OpenRLHF, SkyRL and AReaL have released, out of their wheels, through adapters
that ship, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reports.frameworks import targets
from tests.choosing import first_of_each
from tests.conftest import Cli
from tests.frameworks import wheels

pytestmark = pytest.mark.network


@dataclass(frozen=True, slots=True)
class Released:
    package: str
    version: str
    module: str
    name: str
    method: str = ""
    """Of that, what is called."""

    def unpacked(self, config: pytest.Config) -> Path:
        return wheels.unpacked(Path(config.cache.mkdir("wheels")), self.package, self.version)


VERL = Released("verl", "0.9.1", "verl.trainer.ppo.core_algos", "agg_loss")
POLICY = replace(VERL, name="compute_policy_loss_vanilla")
KL_COV = replace(VERL, name="compute_policy_loss_kl_cov")
CLIP_COV = replace(VERL, name="compute_policy_loss_clip_cov")
TRL = Released("trl", "1.16.0", "trl.trainer.grpo_trainer", "GRPOTrainer", "._compute_loss")
SKYRL = Released(
    *("skyrl", "0.4.0", "skyrl.backends.skyrl_train.workers.worker", "PolicyWorkerBase"),
    "._forward_backward_micro",
)
WRAPPER = Released(
    *("skyrl", "0.4.0", "skyrl.backends.skyrl_train.workers.megatron.megatron_model_wrapper"),
    *("MegatronModelWrapper", ".forward_backward_mini_batch"),
)
OLDER = replace(WRAPPER, version="0.2.0")
BEFORE, WRAPPED_BEFORE = (replace(now, version="0.3.0") for now in (SKYRL, WRAPPER))
AREAL = Released("areal", "1.0.4", "areal.utils.functional.functional", "ppo_actor_loss_fn")
OPENRLHF = Released("openrlhf", "0.11.2", "openrlhf.models.loss", "aggregate_loss")


ROWS = [
    # what, convention, mode, options, exit code, what is said
    (VERL, "verl", "token-sum", (), 0, "its token_sum weight"),
    (VERL, "verl", "seq-mean-token-sum", (), 0, "its sequence_sum weight"),
    (
        VERL,
        "verl",
        "seq-mean-token-mean",
        ("--engine", "verl-megatron"),
        0,
        "its sample_mean weight",
    ),
    (VERL, "verl", "seq-mean-token-sum-norm", ("--divisor", "16"), 0, "its constant weight"),
    # 0 / 0 for a step without a token
    (VERL, "verl", "token-mean", (), 1, "AGV111 Not finite when something is fully masked"),
    (POLICY, "verl-policy-loss", "seq-mean-token-mean", (), 0, "its sample_mean weight"),
    (KL_COV, "verl-policy-loss", "seq-mean-token-sum", (), 0, "its sequence_sum weight"),
    (CLIP_COV, "verl-policy-loss", "seq-mean-token-mean", (), 0, "its sample_mean weight"),
    (TRL, "trl", "dapo", (), 0, "its token_mean weight"),
    (TRL, "trl", "bnpo", ("--micro-batch-size", "2"), 0, "its token_mean_legacy(2) weight"),
    (TRL, "trl", "luspo", (), 0, "its sequence_sum weight"),
    (TRL, "trl", "dr_grpo", ("--divisor", "16"), 0, "its constant weight"),
    (TRL, "trl", "grpo", (), 0, "its sample_mean weight"),
    # its entropy is each micro-batch's own mean; its policy loss and its KL are right
    (SKYRL, "skyrl-worker", "sample_mean", (), 1, "the weights of entropy, with everything else 0"),
    (SKYRL, "skyrl-worker", "token_mean", ("--accept", "AGV207=known"), 0, "1 waived finding"),
    (SKYRL, "skyrl-worker", "prompt_mean", ("--accept", "AGV207=known"), 0, "1 waived finding"),
    (SKYRL, "skyrl-worker", "token_mean_legacy", ("--micro-batch-size", "2"), 0, "for 2 samples"),
    (WRAPPER, "skyrl-megatron-wrapper", "token_mean", ("--accept", "AGV207=known"), 0, "1 waived"),
    (BEFORE, "skyrl-worker", "sample_mean", ("--accept", "AGV207=known"), 0, "1 waived finding"),
    (WRAPPED_BEFORE, "skyrl-megatron-wrapper", "token_mean", (), 1, "the weights of entropy"),
    # SkyRL #1420: Megatron multiplies by cp_size once more
    (OLDER, "skyrl-megatron-wrapper", "token_mean", (), 1, "cp_size times too large"),
    # by the tokens of the generation, though an optimizer step is half of it: #5619, #6024
    (TRL, "trl", "dapo", ("--claim", "generations"), 1, "AGV101"),
    (AREAL, "areal", "token_mean", (), 0, "its token_mean weight"),
    # 0 / 0 for a step without a token, and for a sequence
    (
        OPENRLHF,
        "openrlhf",
        "token_mean",
        (),
        1,
        "0 / 0: what has no token is divided by its count of 0",
    ),
    (OPENRLHF, "openrlhf", "sample_mean", ("--policy", "empty_units=exclude"), 1, "AGV111"),
]
FIRST = first_of_each(ROWS, lambda row: row[1])
"""One of each convention; the others are for the exhaustive suite."""


def tier(row: tuple[Any, ...]) -> tuple[pytest.MarkDecorator, ...]:
    return () if row in FIRST else (pytest.mark.exhaustive,)


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=tier(r)) for r in ROWS],
    ids=lambda row: f"{row[0].package}-{row[1]}-{row[2]}" if isinstance(row, tuple) else None,
)
def test_what_is_released(
    row: tuple[Released, str, str, tuple[str, ...], int, str],
    pytestconfig: pytest.Config,
    shell: Cli,
) -> None:
    released, name, mode, more, code, said = row
    where = released.unpacked(pytestconfig)
    function = released.name + released.method
    ran = shell(
        *("check", f"{Path(__file__).with_name('released.py')}:{function}", "--convention", name),
        *("--mode", mode, "--profile", "quick", "--world", "2", *more),
        env={"AGGVERIFY_RELEASED": f"{where}:{released.module}:{released.name}"},
    )
    assert ran.code == code, ran
    assert said in ran.out


def test_a_custom_loss_that_tinker_s_client_runs(pytestconfig: pytest.Config, shell: Cli) -> None:
    """Traced by the client, and run by its handle for each datum of a call."""
    [needs] = (target.needs for target in targets() if target.adapter == "tinker.py")
    where = wheels.installed(Path(pytestconfig.cache.mkdir("wheels")), *needs)
    names = "run_loss_handle,trace_loss"
    ran = shell(
        *("check", f"{Path(__file__).with_name('tinker_candidate.py')}:loss_fn"),
        *("--convention", "tinker", "--mode", "token_sum", "--profile", "quick"),
        env={"AGGVERIFY_RELEASED": f"{where}:tinker.lib.public_interfaces.custom_loss:{names}"},
    )
    assert ran.code == 0 and "PASS every token has its token_sum weight" in ran.flat, ran
