"""How slime's whole validator is called: with every argument of its own parser at its default, what
else it reads in "others", and a custom configuration file."""

import argparse
import sys

ADAPTER = {
    "title": "slime's slime_validate_args",
    "validates": {
        "overrides": "custom_config_path",
        "others": {
            "rollout_batch_size": 8,
            "num_rollout": 1,
            "hf_checkpoint": "model",
            "debug_rollout_only": False,
            "load_debug_rollout_data": None,
        },
    },
    "run_against": [["THUDM/slime", "1951fa005", "2026-11-26"]],
}


def call(slime_validate_args, args):
    parser = argparse.ArgumentParser()
    sys.modules[slime_validate_args.__module__].get_slime_extra_args_provider()(parser)
    for action in parser._actions:
        if not hasattr(args, action.dest):
            setattr(args, action.dest, action.default)
    return slime_validate_args(args)
