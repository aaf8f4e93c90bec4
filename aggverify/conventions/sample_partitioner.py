"""What deals samples to data-parallel ranks, ``deal(args, data, dp_size)``: whole prompt groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from aggverify.conventions.base import Bound, Misuse, Site
from aggverify.conventions.calls import JudgedCall
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.partition_cases import PartitionCase, Promises
from aggverify.conventions.partition_judging import mistake
from aggverify.conventions.run_against import RunAgainst

Dealing = Callable[[Callable[..., Any], Any, Any, int], Any]


def plainly(function: Callable[..., Any], args: Any, data: Any, dp_size: int) -> Any:
    """How it is called where no adapter declares it."""
    return function(args, data, dp_size)


def calls(promises: Promises, deal: Callable[[], Dealing]) -> Iterator[JudgedCall]:
    """Return a call a rollout; of those that no deal is right of, one that must be refused."""

    def once(one: PartitionCase) -> JudgedCall:
        def make(function: Callable[..., Any], site: Site) -> str | None:
            out = deal()(function, one.args(promises), one.data(), one.ranks)
            whole = promises.whole_groups
            return None if one.wrong else mistake(one, out, whole_groups=whole)

        sentence = f"{one.description} ({one.wrong})" if one.wrong else one.description
        return JudgedCall(one.description, sentence, bool(one.wrong), make)

    return map(once, promises.deals())


@dataclass(frozen=True, slots=True)
class SamplePartitioner:
    """A function that returns, of each rank, the indices of its samples.

    It has every sample once, prompt groups whole and complete on one rank and in one optimizer
    step, and as many samples each; it raises where that cannot be. A shard may be a mapping with
    ``partition`` and ``micro_batch_indices``: then micro-batches are as many on each rank, and
    within their budget.
    """

    name: str = "dealer"
    title: str = "what deals prompt groups to data-parallel ranks"
    usual_name: str = "split_train_data_by_dp"
    signature: str = "def split_train_data_by_dp(args, data: dict, dp_size: int) -> list[list[int]]"
    returns: str = "of each rank its samples' indices, or a mapping with them as its partition"
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ("samples are dealt: no loss is reduced, under no engine",)
    parameters: tuple[str, ...] = ("args", "data", "dp_size")
    misuses: tuple[Misuse, ...] = ()
    run_against: tuple[RunAgainst, ...] = ()
    ranks: int = 1
    promises: Promises = field(default_factory=Promises)
    deal: Callable[[], Dealing] = field(default=lambda: plainly, compare=False)

    @property
    def calls(self) -> tuple[JudgedCall, ...]:
        return tuple(calls(self.promises, self.deal))

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return ()

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters == ("args", "data", "dp_size")

    def default_engine(self, mode: str | None) -> str:
        return "sum"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        if mode is not None:
            return "what deals samples has no mode"
        return None if engine == "sum" else "what deals samples reduces no loss, under no engine"

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        raise TypeError("what deals samples is given no losses")
