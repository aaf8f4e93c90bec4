"""The shipped policy losses, under names of their own."""

import runpy
from typing import Any

from tests.conftest import EXAMPLES


def _loss(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / "policy_loss" / f"{name}.py"))["loss"]


right = _loss("token_mean")
own_mean = _loss("broken/own_mean")
masked_after_exp = _loss("broken/masked_after_exp")
clip_cov = _loss("broken/clip_cov")
