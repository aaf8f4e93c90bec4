from aggverify.api.invariance import assert_invariant
from aggverify.api.observation import Observation
from aggverify.api.running import check_case, check_reducer, observe, verify
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.conventions.policy_loss import PolicyBatch
from aggverify.conventions.trainer import TrainContext
from aggverify.model import Document, Verdict
from aggverify.model import load as load_verdict
from aggverify.oracles import Sample, Step
from aggverify.probes import probe, probe_log_probs
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.testing.parametrization import conformance, parametrize_with_checks
from aggverify.world import Pool

__version__: str

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
