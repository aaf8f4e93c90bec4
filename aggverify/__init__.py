"""aggverify: numerical verification of loss aggregation under real torch.distributed.

``import aggverify`` imports nothing else: every name but the probes, which a training loop calls,
comes with its module on first use.
``__init__.pyi`` declares their types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aggverify.probes import probe, probe_log_probs

__version__ = "0.1.0"

_FROM = {
    "Case": "aggverify.steps.case",
    "Document": "aggverify.model",
    "Layout": "aggverify.steps.layouts",
    "MicroBatch": "aggverify.conventions.micro_batch",
    "Observation": "aggverify.api.observation",
    "PolicyBatch": "aggverify.conventions.policy_loss",
    "Pool": "aggverify.world",
    "Sample": "aggverify.oracles",
    "Step": "aggverify.oracles",
    "TrainContext": "aggverify.conventions.trainer",
    "Verdict": "aggverify.model",
    "assert_invariant": "aggverify.api.invariance",
    "check_case": "aggverify.api.running",
    "check_reducer": "aggverify.api.running",
    "conformance": "aggverify.testing.parametrization",
    "load_verdict": "aggverify.model",
    "observe": "aggverify.api.running",
    "parametrize_with_checks": "aggverify.testing.parametrization",
    "parse_step": "aggverify.steps.notation",
    "verify": "aggverify.api.running",
}
_NAMED_OTHERWISE = {"load_verdict": "load"}
"""Public names whose module has another one for them."""

__all__ = [
    "Case",
    "Document",
    "Layout",
    "MicroBatch",
    "Observation",
    "PolicyBatch",
    "Pool",
    "Sample",
    "Step",
    "TrainContext",
    "Verdict",
    "__version__",
    "assert_invariant",
    "check_case",
    "check_reducer",
    "conformance",
    "load_verdict",
    "observe",
    "parametrize_with_checks",
    "parse_step",
    "probe",
    "probe_log_probs",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module 'aggverify' has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), _NAMED_OTHERWISE.get(name, name))
