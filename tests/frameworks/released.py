"""What is verified: a framework's own function out of a released wheel; AGGVERIFY_RELEASED says
``FOLDER:MODULE:NAME``, and the packages that are not at hand stand in empty."""

import importlib
import os
import sys

import standins

MORE = (
    *("accelerate", "codetiming", "datasets", "deepspeed", "flash_attn"),
    "huggingface_hub",
)
AREAL = ("areal.api", "areal.infra", "areal.utils.data")
MEGATRON = (
    *("megatron.bridge", "megatron.core.distributed", "megatron.core.pipeline_parallel"),
    *("skyrl.backends.skyrl_train.distributed.megatron", "skyrl.backends.skyrl_train.mtp"),
)
standins.install(*MORE, *AREAL, *MEGATRON, "orjson", "pandas", "peft", "pyarrow", "pylatexenc")
folder, module, name = os.environ["AGGVERIFY_RELEASED"].split(":")
sys.path.insert(0, folder)
globals()[name] = getattr(importlib.import_module(module), name)
