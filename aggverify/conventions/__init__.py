"""How a candidate is called: one file per framework signature."""

from __future__ import annotations

from aggverify.conventions.adapter_convention import AdapterConvention
from aggverify.conventions.adapter_file import declared
from aggverify.conventions.base import ADAPTED, Bound, Convention, Misuse, Output, Site, WholeStep
from aggverify.conventions.calls import PerCallConvention
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.features import EXPERTS, FEATURES, UNUSUAL
from aggverify.conventions.log_reducer import LogReducer
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.conventions.native import Native
from aggverify.conventions.policy_loss import PolicyBatch, PolicyLoss
from aggverify.conventions.sample_partitioner import SamplePartitioner
from aggverify.conventions.shipped import shipped
from aggverify.conventions.skyrl import SkyrlAdvantages
from aggverify.conventions.slime import SlimeHook
from aggverify.conventions.trainer import TrainContext, TrainStepFunction
from aggverify.conventions.trainer_engine import TrainerEngine
from aggverify.conventions.validation import Validation
from aggverify.errors import unknown
from aggverify.files import is_path
from aggverify.plugins import Table

_OWN: tuple[Convention, ...] = (
    Native(),
    SlimeHook(),
    SkyrlAdvantages(),
    TrainStepFunction(),
    TrainerEngine(),
    PolicyLoss(),
    Validation(),
    LogReducer(),
    SamplePartitioner(),
)
CONVENTIONS: Table[Convention] = Table(
    "conventions",
    lambda: Convention,
    {c.name: c for c in _OWN} | shipped(),
)
"""The tool's own, and those that frameworks ship in their own packages."""
ALIASES = {"miles": "slime"}
"""Names people use for a convention that is byte for byte another one."""


def convention(name: str) -> Convention:
    """Return the convention of that name or alias, or of an adapter's file.

    Raises InputError naming the accepted ones.
    """
    if is_path(name):
        return declared(name)
    name = ALIASES.get(name, name)
    if name not in CONVENTIONS:
        raise unknown("convention", name, [*CONVENTIONS, *ALIASES])
    return CONVENTIONS[name]


def by_shape() -> list[Convention]:
    """Those that are found out from a signature: a function that is no reducer must be named."""
    return [how for how in CONVENTIONS.values() if not isinstance(how, PerCallConvention)]


def undeclared() -> list[Convention]:
    """Those of them that are no adapter: they call a function as it is."""
    return [how for how in by_shape() if not isinstance(how, AdapterConvention)]


def by_shape_or_name(offer: Offer) -> list[Convention]:
    """Return conventions that the function fits by shape, or only by a person's word.

    By shape: it has their parameters, under another name than theirs. By word: a validator, or what
    merges logs.
    """
    known = [how for how in CONVENTIONS.values() if isinstance(how, AdapterConvention)]
    called = (how for how in CONVENTIONS.values() if isinstance(how, PerCallConvention))
    taken = any(how.recognises(offer) for how in known)
    return [
        *(how for how in known if how.has_shape(offer) and not taken),
        *(how for how in called if how.recognises(offer)),
    ]


def calls_bound(how: Convention) -> bool:
    """Whether it calls methods on an object that is built for them; else it passes ``self``."""
    first = (how.recognised_by if isinstance(how, AdapterConvention) else how.parameters)[:1]
    return bool(first) and first != ("self",)


__all__ = [
    "ADAPTED",
    "ALIASES",
    "CONVENTIONS",
    "EXPERTS",
    "FEATURES",
    "UNUSUAL",
    "Bound",
    "Convention",
    "MicroBatch",
    "Misuse",
    "Offer",
    "Output",
    "PolicyBatch",
    "Site",
    "TrainContext",
    "WholeStep",
    "by_shape",
    "by_shape_or_name",
    "calls_bound",
    "convention",
    "undeclared",
]
