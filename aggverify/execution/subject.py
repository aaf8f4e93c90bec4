"""What is under test: a claim resolved to convention, engine and oracle, and what was found out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from msgspec import structs

from aggverify import oracles
from aggverify.codec import Double, Integer, Part
from aggverify.conventions import FEATURES, UNUSUAL, Convention, convention
from aggverify.conventions.calls import PerCallConvention
from aggverify.conventions.policy_loss import score_terms
from aggverify.engines import EngineSpec, usable
from aggverify.errors import InputError
from aggverify.execution.claim import Claim, is_nonlinear
from aggverify.execution.oracle_process import loaded_oracle
from aggverify.execution.term_readings import given_readings, split_reading
from aggverify.model import Assumption, Lines, Ranks
from aggverify.oracles import Objective, Policy, Step
from aggverify.oracles.custom import CustomOracle
from aggverify.steps.case import Case, has_whole_groups, ranks_sharing_groups, ranks_with_parts
from aggverify.steps.dimensions import BY_FEATURE
from aggverify.trainer.conditions import Condition

CANDIDATE_ROUNDINGS = 8
"""Roundings allowed on one token's path inside the candidate: count conversion, reciprocal,
division by a second count, up to three scale factors, the accumulation of a partial weight and one
spare; see docs/bounds.md. Independent of the number of tokens."""


class Refused(Part, frozen=True):
    """A feature of layouts or steps that the candidate declines by its own exception."""

    feature: str
    words: str
    """Its own, from the simplest case."""
    beyond: Integer = 1
    """The largest size it still takes."""

    @property
    def what(self) -> str:
        """What it refuses, as the words that follow "refuses"."""
        beyond = f" beyond {self.beyond}" if self.beyond > 1 else ""
        return f"{BY_FEATURE[self.feature].title}{beyond}"


_UNSEEN = Ranks("", "")


class Discovered(Part, frozen=True):
    """What a run has identified of a subject, and no option declares."""

    identified: bool = False
    """Whether the claim's mode (and its divisor and engine) was recognised rather than claimed."""
    engine_declared: bool = True
    """False where no option names the engine: the claim's is where to begin."""
    mode_declared: bool = True
    """False where no option names a mode, and the function is asked for all that it may have."""
    narrowed: tuple[str, ...] = ()
    """Features taken out of the claim, because only without them an assumed engine fits at all."""
    untold: tuple[tuple[str, str], ...] = ()
    """Features that this version of the function has no parameter for, each with the reason."""
    computes_in: str = "float64"
    trust_formula: bool = True
    """False once the formula is known to be wrong: from then on only invariance is judged."""
    refused: tuple[Refused, ...] = ()
    """What it refuses, which is right where it is not claimed."""
    returns_logs: bool = True
    """False once a step was seen without."""
    constants: tuple[Double, ...] = ()
    """The numbers that its code names: what it may compare anything with."""
    dtypes: tuple[str, ...] = ()
    """Those of losses that its code names."""
    surroundings: tuple[str, ...] = ()
    """What its code may ask that a launch decides (``trainer.environment_uses``)."""
    communicates: bool = False
    """Whether ranks were seen to issue the reducer's own collectives."""
    functions: tuple[Lines, ...] = ()
    """Those of its file."""
    conditions: tuple[Condition, ...] = ()
    """Those in them, by place."""
    ranks: Ranks = _UNSEEN
    room: Integer | None = None
    """The largest world that the machine has room for, where that is less than was asked for."""
    no_room: str = ""
    """Why no larger one."""
    carried: str = ""
    """What carries collectives apart from the backend, where that is not this machine's usual."""
    compiles: bool = False
    """Whether a step was seen to call something that was given to torch.compile."""
    sandbox: str | None = None
    """What its ranks see of the machine, where they live in a sandbox."""
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()


_NOTHING = Discovered()


@dataclass(frozen=True, slots=True)
class Subject:
    """One candidate under its claim. ``mode`` is None while it implements no known mode."""

    claim: Claim
    convention: Convention
    engine: EngineSpec
    oracle: CustomOracle | None = None
    """The person's own mode, instead of a built-in one."""
    against: Subject | None = None
    """Another path that must agree with this one on every step."""
    found: Discovered = _NOTHING

    @staticmethod
    def of(claim: Claim) -> Subject:
        """Return the claim resolved.

        Raises InputError for unknown names, OracleError for a bad oracle.
        """
        return Subject(
            claim,
            convention(claim.called),
            usable(claim.engine),
            None if claim.oracle is None else loaded_oracle(claim.oracle),
            None if claim.against is None else Subject.of(claim.against),
        )

    def claiming(self, **changes: Any) -> Subject:
        """Return the same subject under a changed claim.

        ``changes``: any fields but ``oracle`` and ``against``, which are not resolved again.
        """
        claim = replace(self.claim, **changes)
        how, what = convention(claim.called), usable(claim.engine)
        return replace(self, claim=claim, convention=how, engine=what)

    def under(self, name: str) -> Subject:
        """Return the same subject under another engine.

        So is the path that it is compared with, unless an option names that one's engine.
        """
        moved = self.claiming(engine=name)
        path = self.against
        if path is None or path.found.engine_declared:
            return moved
        return moved.compared_with(path.under(name))

    def compared_with(self, other: Subject) -> Subject:
        """Return the same subject with another path to agree with."""
        return replace(self, claim=replace(self.claim, against=other.claim), against=other)

    def knowing(self, **changes: Any) -> Subject:
        """Return the same subject with more found out."""
        return replace(self, found=structs.replace(self.found, **changes))

    def noting(self, *notes: str) -> Subject:
        """Return the same subject with further notes for its verdict."""
        return self.knowing(notes=(*self.found.notes, *notes))

    @property
    def engine_assumed(self) -> bool:
        """Whether another engine may be the trainer's: no option and no convention names one."""
        return not (self.found.engine_declared or self.convention.fixes_engine)

    @property
    def engine_in_question(self) -> bool:
        """Whether an assumed engine is not even the convention's usual one.

        The claim is not complete then, whatever comes of it.
        """
        usual = self.convention.default_engine(self.mode)
        return self.engine_assumed and self.engine.name != usual

    @property
    def only_called(self) -> bool:
        """Whether it reduces no losses, and is judged call by call."""
        return isinstance(self.convention, PerCallConvention)

    def must_reduce(self) -> None:
        """Raise InputError for one that has no step to be run on."""
        if self.only_called:
            raise InputError(
                f"{self.target} reduces no losses ({self.convention.title}), so no step can be run "
                f"on it: aggverify check judges its calls"
            )

    @property
    def target(self) -> str:
        return self.claim.target

    @property
    def function(self) -> str:
        return self.claim.function

    @property
    def nonlinear(self) -> bool:
        """A non-linear objective: its value and gradient must be the same in every layout."""
        return is_nonlinear(self.claim.mode)

    @property
    def objective(self) -> Objective | None:
        """The known non-linear objective that it claims; None where it claims none such."""
        return None if self.claim.mode is None else oracles.objective(self.claim.mode)

    @property
    def mode(self) -> str | None:
        return None if self.nonlinear else self.claim.mode

    @property
    def divisor(self) -> float | None:
        return self.claim.divisor

    @property
    def policy(self) -> Policy:
        return self.claim.policy

    @property
    def claimed(self) -> frozenset[str]:
        return self.claim.claimed

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(split_reading(text)[0] for text in self.claim.terms)

    @property
    def term_readings(self) -> dict[str, str]:
        """Readings by term, of the terms for which one is declared."""
        return given_readings(self.claim.terms)

    @property
    def offered(self) -> tuple[str, ...]:
        return self.claim.offered

    @property
    def at_rest(self) -> Subject:
        """What it is where all inputs are 0: of a known objective its linear mode."""
        known = self.objective
        return self if known is None else self.claiming(mode=known.linear)

    @property
    def group_size(self) -> int | None:
        """G, promised or because the mode compares so many rollouts of a prompt."""
        return self.claim.group_size or self.compares

    @property
    def compares(self) -> int | None:
        """Rollouts of a prompt that its mode compares, where it does."""
        if self.nonlinear:
            return None if self.objective is None else self.objective.group_size
        return None if self.mode is None else oracles.mode(self.mode).group_size

    @property
    def rows(self) -> int | None:
        """Samples of every micro-batch, where its mode is defined for exactly so many."""
        return None if self.mode is None else oracles.mode(self.mode).rows

    @property
    def max_world(self) -> int:
        """Ranks of the largest world that is run."""
        return min(self.claim.max_world, self.found.room or self.claim.max_world)

    @property
    def computes_in(self) -> str:
        return self.found.computes_in

    @property
    def trust_formula(self) -> bool:
        # A mode of one layout alone leaves nothing else to compare with.
        return self.found.trust_formula or self.rows is not None

    @property
    def refused(self) -> tuple[Refused, ...]:
        return self.found.refused

    @property
    def keeps_groups_whole(self) -> bool:
        """Whether prompt groups are only given whole: it refuses split ones, or the person does."""
        split = "straddling-groups"
        return split in self.without or self.most(split) is not None

    @property
    def keeps_shards_whole(self) -> bool:
        """Whether each is given to one rank only, in whichever of its micro-batches."""
        split = "straddling-shards"
        return split in self.without or self.most(split) is not None

    def keeps_promises(self, case: Case) -> bool:
        """Whether its trainer may hand it that step: rows, prompt groups and shards as promised."""
        return (
            (not self.rows or {len(c) for _, _, c in case.layout.cells()} == {self.rows})
            and (not self.group_size or has_whole_groups(case, self.group_size))
            and (not self.keeps_groups_whole or not ranks_with_parts(case))
            and (not self.keeps_shards_whole or not ranks_sharing_groups(case))
        )

    def most(self, feature: str) -> int | None:
        """Return the largest size of a feature that it does not refuse; None for any."""
        return next((r.beyond for r in self.refused if r.feature == feature), None)

    @property
    def returns_logs(self) -> bool:
        return self.found.returns_logs

    @property
    def notes(self) -> tuple[str, ...]:
        return self.found.notes

    @property
    def without(self) -> frozenset[str]:
        return self.claim.without

    @property
    def not_claimed(self) -> dict[str, str]:
        """Features that are not tested, each with the reason, in order.

        Its engine's are among them: "zigzag" too, where its trainers slice no samples.
        """
        unseen = {**self.convention.not_claimed, **dict(self.found.untold)}
        unseen = {f: why for f, why in unseen.items() if f not in self.claimed}
        unseen |= self.engine.not_claimed
        without = dict.fromkeys(self.without, DISCLAIMED)
        without |= dict.fromkeys(self.found.narrowed, NARROWED)
        return dict(sorted((unseen | without).items()))

    @property
    def features(self) -> frozenset[str]:
        """What generated cases may contain.

        What the convention sees, plus explicit claims, less what it refuses.
        """
        mine = frozenset(FEATURES) - frozenset(self.not_claimed)
        mine -= UNUSUAL - self.claimed - getattr(self.convention, "unusual", frozenset())
        mine -= {"fan-out"} if self.group_size or self.objective else frozenset()
        mine -= {r.feature for r in self.refused if r.beyond == 1}
        return mine if self.against is None else mine & self.against.features

    @property
    def has_oracle(self) -> bool:
        """Whether exact weights are known and worth trusting for this candidate."""
        return (self.mode is not None or self.oracle is not None) and self.trust_formula

    @property
    def mode_name(self) -> str | None:
        """The mode, or the person's oracle file; None when only invariance is judged."""
        return self.mode if self.oracle is None else self.oracle.name

    def roundings_on(self, step: Step | None = None) -> int:
        """Return a token's roundings in this step or one of few rollouts, the engine's included."""
        rollouts = 0 if step is None else step.num_rollouts
        more = oracles.mode(self.mode).more_roundings(rollouts) if self.mode else 0
        around = getattr(self.convention, "roundings", 0)
        return CANDIDATE_ROUNDINGS + self.engine.roundings + more + around

    def shown(self, case: Case, *, zeros: bool = False) -> Case:
        """Return the case with losses that the convention can give.

        Losses of 0, whose weights it may not show, stay as they are only where ``zeros``.
        """
        if self.objective is not None and self.objective.negative:
            case = case.with_losses(tuple(-(abs(x) % 1) for x in case.losses))
        if getattr(self.convention, "gradient_of", ""):  # one advantage a sample
            case = case.with_one_loss_a_sample()
        return case.without_zeros() if self.hides_zeros and not zeros else case

    @property
    def hides_zeros(self) -> bool:
        """Whether a token with a loss of 0 shows no weight."""
        return not self.nonlinear and getattr(self.convention, "hides_zeros", False)

    def reports_instead(self, case: Case) -> Case | None:
        """Return the case with other per-token losses that may be reported just as well.

        A loss of log-probabilities may report their sum; None where there are none.
        """
        plain = self.hides_zeros and self.objective is None
        return case.with_losses(score_terms(case.losses)) if plain else None

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


DISCLAIMED = "disclaimed by --without"
NARROWED = "wrong with it under the engine that fits all else, which no option names"
"""Why a feature is not claimed: the person took it out, or the engine was assumed without it."""
SHORT = 4096
"""Tokens of a step whose weights are remembered: it comes back under other layouts."""

_known_weights = lru_cache(maxsize=64)(oracles.weights)
