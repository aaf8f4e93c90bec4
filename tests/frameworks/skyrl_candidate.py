"""What is verified: SkyRL's own functions out of the wheel named by AGGVERIFY_SKYRL."""

import os
import sys

import standins

standins.install()
sys.path.insert(0, os.environ["AGGVERIFY_SKYRL"])

from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402

reduce_loss = ppo_utils.reduce_loss
if hasattr(ppo_utils, "apply_loss_reduction_to_advantages_minibatch"):
    apply_loss_reduction_to_advantages_minibatch = (
        ppo_utils.apply_loss_reduction_to_advantages_minibatch
    )
