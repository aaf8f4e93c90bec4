"""What ``--loss-aggregation`` and its divisor must be, before anything is trained."""

import math

MODES = ("sample_mean", "prompt_mean", "token_mean", "constant")


def validate_args(args):
    mode, divisor = args.loss_aggregation, args.loss_aggregation_divisor
    if mode not in MODES:
        raise ValueError(f"--loss-aggregation must be one of {MODES}, got {mode!r}")
    if mode == "constant":
        if divisor is None or not (0 < divisor < math.inf):
            raise ValueError(f"--loss-aggregation-divisor must be positive, got {divisor!r}")
    elif divisor is not None:
        raise ValueError(f"--loss-aggregation-divisor {divisor!r} belongs to constant, not {mode}")
    if args.calculate_per_token_loss and mode in ("prompt_mean", "constant"):
        raise ValueError(f"--calculate-per-token-loss contradicts {mode}")
    if mode == "prompt_mean" and args.global_batch_size % args.n_samples_per_prompt:
        raise ValueError(
            f"{args.global_batch_size} rollouts are no whole groups of {args.n_samples_per_prompt}"
        )
