"""What is being verified: one candidate under one convention, engine and mode, with its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from aggverify import oracles
from aggverify.conventions import FEATURES, Convention
from aggverify.engines import Engine
from aggverify.oracles import DEFAULT_POLICY, Policy, Step
from aggverify.oracles.custom import CustomOracle

CANDIDATE_ROUNDINGS = 8
"""Roundings allowed on one token's path inside the candidate: count conversion, reciprocal,
division by a second count, up to three scale factors, the accumulation of a partial weight and one
spare; see docs/bounds.md. Independent of the number of tokens."""

NONLINEAR = "nonlinear"
"""What a person writes for a mode when the objective is not linear in its inputs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The claim under test. ``mode`` is None while the candidate implements no known mode."""

    target: str
    function: str
    convention: Convention
    engine: Engine
    mode: str | None
    divisor: float | None = None
    policy: Policy = DEFAULT_POLICY
    claimed: frozenset[str] = frozenset()
    computes_in: str = "float64"
    oracle: CustomOracle | None = None
    """The person's own mode, instead of a built-in one."""
    trust_formula: bool = True
    """False once the formula is known to be wrong: from then on only invariance is judged."""
    terms: tuple[str, ...] = ()
    """Per-token inputs beside the losses that the reducer takes, each an additive term."""
    against: Subject | None = None
    """Another path that must agree with this one on every step."""
    nonlinear: bool = False
    """A non-linear objective: its value and gradient must be the same in every layout."""
    max_world: int = 8
    group_size: int | None = None
    """G, when the candidate is promised whole prompt groups of G rollouts in every micro-batch."""
    refuses_split_groups: bool = False
    """Whether it says no to a prompt group that is not whole in a micro-batch, which is right."""
    offered: tuple[str, ...] = ()
    """All modes claimed for a candidate that is told the mode: they must differ."""
    returns_logs: bool = True
    """False once a step was seen without."""
    notes: tuple[str, ...] = field(default=())

    @property
    def features(self) -> frozenset[str]:
        """What generated cases may contain: what the convention sees, plus explicit claims."""
        seen = frozenset(FEATURES) - frozenset(self.convention.not_claimed)
        mine = (seen | self.claimed) - ({"fan-out"} if self.group_size else frozenset())
        return mine if self.against is None else mine & self.against.features

    @property
    def has_oracle(self) -> bool:
        """Whether exact weights are known and worth trusting for this candidate."""
        return (self.mode is not None or self.oracle is not None) and self.trust_formula

    @property
    def mode_name(self) -> str | None:
        """The mode, or the person's oracle file; None when only invariance is judged."""
        return self.mode if self.oracle is None else self.oracle.name

    @property
    def roundings(self) -> int:
        """Roundings on one token's path, the engine's included."""
        more = oracles.mode(self.mode).more_roundings if self.mode else 0
        return CANDIDATE_ROUNDINGS + self.engine.roundings + more

    def expected(self, step: Step) -> tuple[Fraction, ...] | None:
        """Exact weights of the mode on a step, flat; None where there is no oracle to trust."""
        if not self.trust_formula:
            return None
        if self.oracle is not None:
            return self.oracle.weights(step)
        if self.mode is None:
            return None
        find = _known_weights if step.num_response_tokens <= SHORT else oracles.weights
        return find(self.mode, step, divisor=self.divisor, policy=self.policy)


SHORT = 4096
"""Tokens of a step whose weights are remembered: it comes back under other layouts."""

_known_weights = lru_cache(maxsize=64)(oracles.weights)
