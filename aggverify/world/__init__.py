"""Persistent ranks under real torch.distributed: jobs go in as data, replies or faults come out.

The calling process never imports torch nor the code under test. It talks to a *zygote* that has
imported torch once; every handler gets a *template* process forked from it, and worlds of ranks
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
    Place,
    backend,
)
from aggverify.world.candidate_errors import Raised
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
from aggverify.world.hosts import Hosts
from aggverify.world.journal import Journal
from aggverify.world.launcher import Launcher
from aggverify.world.link import Printed
from aggverify.world.options import Options
from aggverify.world.pool import Pool
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
    "Collective",
    "Fault",
    "Frame",
    "Hosts",
    "Job",
    "Journal",
    "Launcher",
    "Options",
    "Outcome",
    "Pending",
    "Place",
    "Pool",
    "PoolError",
    "Printed",
    "Raised",
    "Replies",
    "Reply",
    "Sandbox",
    "Stack",
    "Template",
    "TemplateFailure",
    "backend",
    "evidence",
]
