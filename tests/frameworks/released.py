"""What is verified: a framework's own function, out of a wheel or a checkout; AGGVERIFY_RELEASED
says ``FOLDER:MODULE:NAME`` (or several names, with commas), and the packages that are not at hand
stand in empty, as do the framework's own parts of AGGVERIFY_STANDS_IN."""

import importlib
import os
import sys

import standins

PARTS = (
    *("areal.api", "areal.infra", "areal.utils.data"),
    *("megatron.bridge", "megatron.core.distributed", "megatron.core.pipeline_parallel"),
    *("skyrl.backends.skyrl_train.distributed.megatron", "skyrl.backends.skyrl_train.mtp"),
)
folder, module, names = os.environ["AGGVERIFY_RELEASED"].split(":")
sys.path.insert(0, folder)
standins.install(*PARTS, *os.environ.get("AGGVERIFY_STANDS_IN", "").split())
standins.install_missing(folder)
for name in names.split(","):
    globals()[name] = getattr(importlib.import_module(module), name)
