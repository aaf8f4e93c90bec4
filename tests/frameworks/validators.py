"""Validators as slime's and miles' are: arguments of a parser of their own, a file that overrides
them, and the rules of ``--loss-aggregation``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODES = ("sample_mean", "prompt_mean", "token_mean", "constant")


def get_slime_extra_args_provider() -> Callable[[Any], Any]:
    def add(parser: Any) -> Any:
        parser.add_argument("--loss-aggregation", default="sample_mean", choices=MODES)
        parser.add_argument("--custom-config-path")
        parser.add_argument("--eval-interval", type=int)
        parser.add_argument("--entropy-coef", type=float, default=0.0)
        return parser

    return add


get_miles_extra_args_provider = get_slime_extra_args_provider


def _overridden(args: Any) -> None:
    if args.custom_config_path:
        vars(args).update(json.loads(Path(args.custom_config_path).read_text()))


def _checked(args: Any) -> None:
    mode, divisor = args.loss_aggregation, args.loss_aggregation_divisor
    if mode == "constant":
        if not isinstance(divisor, int | float) or not divisor > 0:
            raise ValueError(f"a positive divisor, got {divisor!r}")
    elif divisor is not None:
        raise ValueError(f"no divisor in {mode}, got {divisor!r}")
    if args.calculate_per_token_loss and mode not in ("sample_mean", "token_mean"):
        raise ValueError(f"--calculate-per-token-loss contradicts {mode}")
    if mode == "prompt_mean" and args.global_batch_size % args.n_samples_per_prompt:
        raise ValueError(f"{args.global_batch_size} rollouts are no whole prompt groups")
    assert args.eval_interval is None and args.rollout_batch_size and args.hf_checkpoint


def slime_validate_args(args: Any) -> None:
    """The file is read after all that is checked."""
    assert not args.debug_rollout_only and args.load_debug_rollout_data is None
    _checked(args)
    _overridden(args)


def miles_validate_args(args: Any) -> None:
    """Once, on what is merged."""
    _overridden(args)
    if args.loss_aggregation not in MODES or args.loss_aggregation_divisor == math.inf:
        raise ValueError(f"one of {MODES} and a finite divisor, got {args}")
    if args.loss_aggregation == "token_mean" and args.entropy_coef:
        raise ValueError("its entropy term is normalised by samples")
    _checked(args)


def with_a_new_argument(args: Any) -> None:
    miles_validate_args(args)
    assert args.not_yet
