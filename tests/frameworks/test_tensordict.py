"""A loss that takes one TensorDict has a direct road: the weights are read off the gradient of the
log-probabilities that an adapter puts into it, with the reported loss and the upstream factor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.frameworks import targets
from tests.choosing import LATER
from tests.conftest import ROOT, Cli
from tests.frameworks import wheels

TORCHRL = next(target for target in targets() if target.adapter == "torchrl_grpo.py")
ADAPTER = "reports/adapters/torchrl_grpo.py"


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("GRPOLoss", 0, "PASS every token has its sample_mean weight"),
        LATER("ReportsTwice", 1, "FAIL AGV102 Reported loss is not the scalar"),
        ("ForgetsUpstream", 1, "FAIL AGV126"),
    ],
)
def test_weights_are_read_off_what_lies_in_a_tensordict(
    pytestconfig: pytest.Config, shell: Cli, name: str, code: int, said: str
) -> None:
    assert 'gradient_of": "log_probs"' in (ROOT / ADAPTER).read_text(encoding="utf-8")
    folder = Path(pytestconfig.cache.mkdir("wheels"))
    where = wheels.unpacked(folder, TORCHRL.package, TORCHRL.versions[-1])
    asked = replace(TORCHRL, modes=("sample_mean",))
    ran = shell(
        *("check", f"{Path(__file__).with_name('tensordict_candidate.py')}:{name}"),
        *(str(ROOT / word) if word == ADAPTER else word for word in asked.called),
        *("--profile", "quick", "--world", "2", "--exit-first"),
        env={
            "AGGVERIFY_RELEASED": f"{where}:{TORCHRL.module}:GRPOLoss",
            "AGGVERIFY_RELEASED_WITH": str(wheels.installed(folder, *TORCHRL.needs)),
            "AGGVERIFY_STANDS_IN": " ".join(TORCHRL.stands_in),
        },
    )
    assert ran.code == code and said in ran.flat, ran
