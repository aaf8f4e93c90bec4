"""Persistent ranks under real torch.distributed: jobs go in as data, replies or faults come out.

The calling process never imports torch nor the code under test. It talks to a *fork server* that
has imported torch once. Every handler gets a *template* process forked from it, and worlds of ranks
are forked from that template.
"""

from aggverify.world.backends import (
    AUTO,
    BACKENDS,
    CUDA_GLOO,
    GLOO,
    KINDS,
    NCCL,
    Backend,
    RankPlace,
    backend,
)
from aggverify.world.candidate_errors import Raised
from aggverify.world.cluster import Cluster
from aggverify.world.collectives import Collective
from aggverify.world.evidence import evidence
from aggverify.world.faults import (
    Fault,
    Job,
    Outcome,
    PoolError,
    Replies,
    Reply,
    TemplateFailure,
)
from aggverify.world.frames import Frame, Stack
from aggverify.world.link import Printed
from aggverify.world.local_launcher import LocalLauncher
from aggverify.world.options import Options
from aggverify.world.pool import Pool
from aggverify.world.replay_log import ReplayLog
from aggverify.world.sandbox import Sandbox
from aggverify.world.template import Pending, Template

__all__ = [
    "AUTO",
    "BACKENDS",
    "CUDA_GLOO",
    "GLOO",
    "KINDS",
    "NCCL",
    "Backend",
    "Cluster",
    "Collective",
    "Fault",
    "Frame",
    "Job",
    "LocalLauncher",
    "Options",
    "Outcome",
    "Pending",
    "Pool",
    "PoolError",
    "Printed",
    "Raised",
    "RankPlace",
    "ReplayLog",
    "Replies",
    "Reply",
    "Sandbox",
    "Stack",
    "Template",
    "TemplateFailure",
    "backend",
    "evidence",
]
