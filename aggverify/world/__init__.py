"""Persistent ranks under real torch.distributed. Knows nothing of reducers."""

from __future__ import annotations

from aggverify.world.outcomes import Fault, Job, Limits, Outcome, Replies, Reply, TemplateFailure
from aggverify.world.pool import Pool, Template

__all__ = [
    "Fault",
    "Job",
    "Limits",
    "Outcome",
    "Pool",
    "Replies",
    "Reply",
    "Template",
    "TemplateFailure",
]
