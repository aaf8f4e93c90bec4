"""Observations made to explain a logged loss: its weight of every token, all other losses 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aggverify.checks import Finding
from aggverify.checks.logs import OTHER_COUNT, logged_value
from aggverify.diagnosis import Diagnosis, recognised
from aggverify.diagnosis.observation import close
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject

_MOST = 64
"""Response tokens of the step, at most: it is run once for each."""


def explain_log(subject: Subject, finding: Finding, executor: Executor) -> Diagnosis | None:
    """Return a diagnosis where the log is a mean of its own of the losses that count.

    It is linear, and has every token that has a weight, and no other; but not with that weight.
    """
    tokens = finding.case.step.num_response_tokens
    if tokens > _MOST or subject.hides_zeros:
        return None
    case = replace(finding.case, dtype="float64")
    alone = (tuple(float(t == n) for t in range(tokens)) for n in range(tokens))
    ran = executor.run(subject, [case, *map(case.with_losses, alone)])
    values = [logged_value(subject, each) for each in ran]
    weights = ran[0].weights
    if weights is None or any(value is None for value in values):
        return None
    whole, *logged = [float(value) for value in values if value is not None]
    has_all = [value > 0 for value in logged] == [weight > 0 for weight in weights.tolist()]
    is_linear = close(np.array([np.dot(logged, case.losses)]), np.array([whole]))
    if not has_all or not is_linear or close(np.array(logged), weights):
        return None
    return recognised(subject, finding, OTHER_COUNT)
