"""The outcome for one subject."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.codec import Claim, Double, Integer, Part
from aggverify.codes.identity import About
from aggverify.codes.state import Incomplete, State
from aggverify.model.established import (
    Asked,
    Assumption,
    CheckRecord,
    Covered,
    Cut,
    Margin,
    OtherEngine,
    Ranks,
    Reading,
    Refusal,
    Tried,
    Waiver,
    Warned,
)
from aggverify.model.finding import FindingRecord


class Verdict(Part, frozen=True):
    """The outcome for one subject.

    ``mode`` is None where none was declared or found out, and ``oracle`` the person's own mode.
    """

    claim: Claim
    """All that determines what was run."""
    about: About
    """What it is a verdict on, wherever the project lies."""
    asked: Asked
    target: str
    function: str
    against: str | None
    convention: str
    convention_title: str
    engine: str
    engine_title: str
    engine_does: str
    engine_is_default: bool
    engine_assumed: bool
    """Whether no option names it, and the convention leaves it open."""
    narrowed: tuple[str, ...]
    """Features taken out of the claim, as the assumed engine fits only without them."""
    other_engines: tuple[OtherEngine, ...]
    """Where it is assumed; the convention's default first."""
    mode: str | None
    oracle: str | None
    identified: bool
    linear: bool
    only_called: bool
    """Whether it reduces no losses and was judged call by call: engine and mode have no meaning."""
    divisor: Double | None
    computes_in: str
    policy: tuple[Reading, ...]
    claimed: tuple[str, ...]
    without: tuple[str, ...]
    """Features that the person took out of the claim."""
    refused: tuple[Refusal, ...]
    layouts_refused: Integer
    layouts_left: Integer
    """Sizes of layouts that were judged instead of all that are claimed."""
    not_claimed: Mapping[str, str]
    """With the reason."""
    never_claimed: tuple[str, ...]
    """Those of them that the engine's trainers never have, whatever is claimed."""
    ranks: Ranks
    seed: Integer
    sandbox: str | None
    """What the ranks saw of the machine, where they lived in a sandbox."""
    notes: tuple[str, ...]
    checks: tuple[CheckRecord, ...]
    executed: Integer
    worlds: Mapping[str, Integer]
    """Steps by number of ranks."""
    tried: Tried
    covered: Covered
    margins: tuple[Margin, ...]
    cuts: tuple[Cut, ...]
    warnings: tuple[Warned, ...]
    findings: tuple[FindingRecord, ...]
    call_milliseconds: Integer | None
    """About what one call takes by the clock, to one digit; None where it is next to nothing."""
    waivers: tuple[Waiver, ...]
    incomplete: Incomplete | None
    """What ended it before everything planned was judged."""
    assumed: tuple[Assumption, ...] = ()

    @property
    def mode_name(self) -> str:
        """The mode, the person's own oracle, or that there is none."""
        return self.oracle or self.mode or ("calls" if self.only_called else "no known mode")

    @property
    def engine_in_question(self) -> bool:
        """Whether it was judged under an engine that is neither named nor the convention's own."""
        return self.engine_assumed and not self.engine_is_default

    @property
    def loud(self) -> list[Warned]:
        """Warnings about this run rather than about most."""
        return [warned for warned in self.warnings if not warned.quiet]

    @property
    def not_judged(self) -> list[CheckRecord]:
        """Checks that should have come to a result, and did not."""
        left = (check for check in self.checks if check.state is State.NOT_JUDGED)
        return [check for check in left if not check.spoiled]

    @property
    def unjudged_for(self) -> str | None:
        """The one reason for which no check was judged."""
        reasons = {check.reason for check in self.not_judged}
        left = [check for check in self.checks if check.state.judged]
        return reasons.pop() if len(reasons) == 1 and not left and not self.findings else None

    @property
    def fails(self) -> bool:
        """Whether anything found is a reason not to take the reducer."""
        return any(finding.fails for finding in self.findings)

    @property
    def fails_at_once(self) -> bool:
        """Whether not even the simplest step was got through: nothing else was run."""
        return any(finding.call is not None for finding in self.findings)

    @property
    def conforms(self) -> bool:
        """Whether it is right, and nothing was left open."""
        judged = self.executed and not self.not_judged and not self.incomplete
        judged = judged and not self.engine_in_question
        return bool(judged) and not self.fails

    @property
    def causes(self) -> list[list[FindingRecord]]:
        """Findings grouped by root cause; one that fails stands before those that do not."""
        groups: dict[str, list[FindingRecord]] = {}
        for finding in sorted(self.findings, key=lambda f: not f.fails):
            groups.setdefault(finding.same_cause_as or finding.id, []).append(finding)
        return list(groups.values())
