"""How miles' whole validator is called: with every argument of its own parser at its default, what
else it reads in "others", and a custom configuration file."""

import argparse
import sys

ADAPTER = {
    "title": "miles' miles_validate_args",
    "validates": {
        "overrides": "custom_config_path",
        "forbidden": {"entropy_coef": ["token_mean"]},
        "others": {
            "rollout_batch_size": 8,
            "num_rollout": 1,
            "hf_checkpoint": "model",
        },
    },
    "run_against": [["radixark/miles", "18fd8d82b", "2026-11-26"]],
}


def call(miles_validate_args, args):
    parser = argparse.ArgumentParser()
    sys.modules[miles_validate_args.__module__].get_miles_extra_args_provider()(parser)
    for action in parser._actions:
        if not hasattr(args, action.dest):
            setattr(args, action.dest, action.default)
    return miles_validate_args(args)
