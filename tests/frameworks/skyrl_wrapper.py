"""SkyRL's Megatron wrapper, as those of ``systems.py``: a module of its own, whose names are
replaced while it is called."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from tests.frameworks.twins import twin, wrong

mpu: Any = None
get_forward_backward_func: Any = None
make_batch_generator: Any = None
from_parallel_logits_to_logprobs: Any = None
vocab_parallel_entropy: Any = None


class MegatronModelWrapper:
    """Since 0.3.0, with an entropy term as its KL term is."""

    def forward_backward_mini_batch(
        self, micro_batches: Any, seq_len: int, micro_batch_size: int, loss_fn: Any = None
    ) -> Any:
        me: Any = SimpleNamespace(**vars(self))
        config = me.cfg.algorithm

        def loss_func(logits: Any, data: Any) -> Any:
            mask, width = data["loss_mask"], data["num_actions"]
            log_probs = from_parallel_logits_to_logprobs(logits, data["sequences"])[:, -width:]
            policy, _ = me.policy_loss_fn(
                *(log_probs, data["old_action_log_probs"], data["advantages"]),
                config=config,
                loss_mask=mask,
                rollout_logprobs=data["rollout_action_logprobs"],
            )

            def mean(term: Any) -> Any:
                rows = torch.where(mask.bool(), term, 0).sum(-1) / mask.sum(-1).clamp(min=1)
                return rows.mean()

            kl = mean(log_probs - data["base_action_log_probs"]) * config.kl_loss_coef
            bonus = mean(vocab_parallel_entropy(logits)) * config.entropy_loss_coef
            # 49: Megatron multiplies by cp_size once more
            twice = wrong("skyrl-megatron-wrapper")
            size = mpu.get_data_parallel_world_size(with_context_parallel=twice)
            return policy * data["num_microbatches"] * size + kl - bonus, {}

        def forward_step(batches: Any, model: Any) -> Any:
            data = next(batches)
            return model(data["sequences"]), partial(loss_func, data=data)

        return get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=make_batch_generator(micro_batches, vpp_size=1),
            model=me.actor_module,
            num_microbatches=len(micro_batches),
        )


wrong_skyrl_megatron_wrapper = twin(
    "skyrl-megatron-wrapper", MegatronModelWrapper.forward_backward_mini_batch
)
