"""Put on PYTHONPATH by ``aggverify audit --at``: runs in every Python process of the job."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _run_the_usual_one() -> None:
    here = Path(__file__).resolve().parent
    path = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


_run_the_usual_one()
if os.environ.get("AGGVERIFY_PROBE_AT"):
    sys.path.append(os.environ["AGGVERIFY_PROBE_HOME"])
    from aggverify.audit.probe_points import install

    install()
