"""What is verified: a framework's own function, out of a wheel or a checkout; AGGVERIFY_RELEASED
says ``FOLDER:MODULE:NAME`` (or several names, with commas), and the packages that are not at hand
stand in empty, as do the framework's own parts of AGGVERIFY_STANDS_IN. Packages in the folders of
AGGVERIFY_RELEASED_WITH are imported as they are."""

import importlib
import os
import sys
from pathlib import Path

import standins

PARTS = (
    *("areal.api", "areal.infra", "areal.utils.data"),
    *("megatron.bridge", "megatron.core.distributed", "megatron.core.pipeline_parallel"),
    *("skyrl.backends.skyrl_train.distributed.megatron", "skyrl.backends.skyrl_train.mtp"),
)
folder, module, names = os.environ["AGGVERIFY_RELEASED"].split(":")
folders = [folder, *filter(None, os.environ.get("AGGVERIFY_RELEASED_WITH", "").split(os.pathsep))]
sys.path[:0] = folders
parts = [part for part in PARTS if not f"{module}.".startswith(f"{part}.")]
standins.install(*parts, *os.environ.get("AGGVERIFY_STANDS_IN", "").split(), there=folders)
standins.install_missing(folder)
if Path(folder, "megatron").is_dir():  # its own, where aggverify has installed another
    for name in [name for name in sys.modules if f"{name}.".startswith("megatron.")]:
        del sys.modules[name]
for name in names.split(","):
    globals()[name] = getattr(importlib.import_module(module), name)
