"""Every option of ``aggverify check``, once.

The command line, the settings and their JSON schema, a file's own ``AGGVERIFY`` and the request are
made from this table. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aggverify.errors import shown
from aggverify.execution.budget import (
    MAX_EXAMPLES,
    MAX_GROUP,
    MAX_SECONDS,
    MAX_WORLD,
    STEPS,
)
from aggverify.execution.option_types import OptionType, too_much

COLORS = ("auto", "always", "never")


class Where(Enum):
    """Where it may be given besides the command line."""

    NOWHERE = "nowhere"
    PROJECT = "in [tool.aggverify]"
    ANYWHERE = "there, and in the file's own AGGVERIFY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``key`` is its name in settings and, with dashes, on the command line."""

    key: str
    kind: OptionType
    help: str
    where: Where = Where.PROJECT
    field: str = ""
    """Its name in the request; empty for what only the command itself looks at."""
    default: Any = None
    late: bool = False
    """Whether the project's value waits until the file is known, which may declare another."""
    adds: bool = False
    """Whether values given in several places are put together."""
    names: str = ""
    """The closed set that its values come from, which the schema lists."""
    least: int | None = None
    most: int | None = None
    above: int | None = None
    metavar: str | None = None
    short: str = ""
    """Of the command line: ``-v``."""
    is_path: bool = False
    """Whether it is relative to the file that contains it."""
    one_text: bool = False
    """Whether several are written as one text on the command line, with commas."""

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return f"--{self.key.replace('_', '-')}"

    def _is_out_of_range(self, number: float) -> bool:
        low = self.least is not None and number < self.least
        return low or (self.most is not None and number > self.most)

    def wrong(self, value: object) -> str | None:
        """Why the value cannot be used, as in "must be ..., got ..."; None where it can."""
        if not self.kind.fits(value):
            return f"must be {self.kind.value}, got {shown(value)}"
        if (why := too_much(value)) is not None or self.kind not in (
            OptionType.NUMBER,
            OptionType.INTEGER,
        ):
            return why
        number: Any = value
        if self.above is not None and not number > self.above:
            return f"must be more than {self.above}, got {shown(value)}"
        if not self._is_out_of_range(number):
            return None
        least = self.above if self.least is None else self.least
        return f"must be between {least} and {self.most}, got {shown(value)}"


OPTIONS = (
    Option(
        key="mode",
        kind=OptionType.TEXTS,
        help="Mode it should implement (`aggverify modes` lists them); repeatable.",
        where=Where.ANYWHERE,
        late=True,
        field="modes",
        default=(),
        names="mode",
    ),
    Option(
        key="oracle",
        kind=OptionType.TEXT,
        is_path=True,
        help="Your own mode: a file with weights(step) or scalar(step, losses).",
        field="oracle",
        late=True,
    ),
    Option(
        key="against",
        kind=OptionType.TEXT,
        help="Another path, old.py[:name], that must agree on every step.",
        where=Where.NOWHERE,
        field="against",
    ),
    Option(
        key="convention",
        kind=OptionType.TEXT,
        help="How it is called (`aggverify conventions`); identified from the file by default.",
        where=Where.ANYWHERE,
        late=True,
        field="convention",
        names="convention",
    ),
    Option(
        key="adapter",
        kind=OptionType.TEXT,
        is_path=True,
        help="Your own convention: a file with ADAPTER = {...} and call(function, losses, batch).",
        field="adapter",
    ),
    Option(
        key="engine",
        kind=OptionType.TEXT,
        help="How local losses become the update (`aggverify engines`), or module:OBJECT; the "
        "convention's by default.",
        where=Where.ANYWHERE,
        late=True,
        field="engine",
        names="engine",
    ),
    Option(
        key="divisor",
        kind=OptionType.NUMBER,
        help="L of --mode constant.",
        where=Where.ANYWHERE,
        late=True,
        field="divisor",
    ),
    Option(
        key="claim",
        kind=OptionType.TEXTS,
        help="Also test a feature that is not claimed by default (the screen names them as not "
        "tested); repeatable.",
        where=Where.ANYWHERE,
        late=True,
        field="claims",
        default=frozenset(),
        adds=True,
        names="claim",
    ),
    Option(
        key="without",
        kind=OptionType.TEXTS,
        help="Take a feature out of what is claimed and tested; repeatable.",
        where=Where.ANYWHERE,
        late=True,
        field="without",
        default=frozenset(),
        adds=True,
        names="claim",
    ),
    Option(
        key="strict",
        kind=OptionType.FLAG,
        help="A hazard is a failure.",
        where=Where.ANYWHERE,
        late=True,
        field="strict",
        default=False,
        adds=True,
    ),
    Option(
        key="accept",
        kind=OptionType.TEXTS,
        help="Accept a known finding for a reason: it is shown, and fails nothing; repeatable.",
        field="accept",
        default=frozenset(),
        adds=True,
        names="accept",
        metavar="CODE[:CASE]=REASON",
    ),
    Option(
        key="baseline",
        kind=OptionType.TEXT,
        is_path=True,
        help="A committed list of known findings: they fail nothing, each is run again.",
    ),
    Option(
        key="baseline_write",
        kind=OptionType.FLAG,
        help="Write what fails now into --baseline, and take out what is fixed.",
        where=Where.NOWHERE,
        default=False,
    ),
    Option(
        key="compile",
        kind=OptionType.FLAG,
        help="Compile what the reducer gives to torch.compile in every step, not in a few.",
        field="compiled",
        default=False,
    ),
    Option(
        key="group_size",
        kind=OptionType.INTEGER,
        help="Promise whole prompt groups of this many rollouts.",
        where=Where.ANYWHERE,
        late=True,
        field="group_size",
        least=1,
        most=MAX_GROUP,
    ),
    Option(
        key="micro_batch_size",
        kind=OptionType.INTEGER,
        help="Samples of every micro-batch, for --mode token_mean_legacy.",
        where=Where.ANYWHERE,
        late=True,
        field="micro_batch_size",
        least=1,
        most=MAX_GROUP,
    ),
    Option(
        key="policy",
        kind=OptionType.READINGS,
        help="Reading of an open question, for example empty_units=exclude (`aggverify modes` "
        "lists them); repeatable.",
        where=Where.ANYWHERE,
        late=True,
        field="policy",
        adds=True,
        metavar="QUESTION=READING",
    ),
    Option(
        key="terms",
        kind=OptionType.READINGS,
        help="An auxiliary term that is no mean over the step by design, as "
        "aux=micro_batch_mean; repeatable.",
        where=Where.ANYWHERE,
        late=True,
        field="terms",
        adds=True,
        names="reading of a term",
        metavar="TERM=READING",
    ),
    Option(
        key="world",
        kind=OptionType.INTEGER,
        help="Largest number of ranks.",
        field="max_world",
        default=MAX_WORLD,
        least=1,
        most=MAX_WORLD,
    ),
    Option(
        key="backend",
        kind=OptionType.TEXT,
        help="gloo (default), nccl or cuda+gloo, with the device it implies; auto: the first there "
        "is of nccl, cuda+gloo, gloo.",
        field="backend",
        names="backend",
    ),
    Option(
        key="device",
        kind=OptionType.TEXT,
        help="cpu (default), or cuda, by the first there is of nccl and cuda+gloo.",
        field="device",
        names="device",
    ),
    Option(
        key="profile",
        kind=OptionType.TEXT,
        help="quick, ci or thorough.",
        field="profile",
        default="ci",
        names="profile",
    ),
    Option(
        key="step",
        kind=OptionType.TEXT,
        help="production: also one of 512 rollouts of up to 32,768 tokens, on all ranks.",
        field="step",
        default=STEPS[0],
        names="step",
    ),
    Option(
        key="max_examples",
        kind=OptionType.INTEGER,
        help="Drawn cases per check, at most: many need fewer.",
        field="max_examples",
        least=1,
        most=MAX_EXAMPLES,
    ),
    Option(
        key="max_time",
        kind=OptionType.NUMBER,
        help="Seconds for the whole command, imports and reports included.",
        field="max_time",
        above=0,
        most=MAX_SECONDS,
    ),
    Option(
        key="sandbox",
        kind=OptionType.FLAG,
        help="Ranks see no network, no home directory, a few variables, and write nowhere (bwrap).",
        where=Where.NOWHERE,
        field="sandbox",
        default=False,
    ),
    Option(
        key="seed", kind=OptionType.INTEGER, help="Seed of the search.", field="seed", default=0
    ),
    Option(
        key="report",
        kind=OptionType.TEXTS,
        help="Also write: json, junit, md, html, sarif, pytest, text (with commas); json=- "
        "writes to standard output.",
        default="",
        names="report",
        one_text=True,
    ),
    Option(
        key="github",
        kind=OptionType.FLAG,
        help="In GitHub Actions: annotate the reducer's line, add to the step summary.",
        where=Where.NOWHERE,
        default=False,
    ),
    Option(
        key="report_dir",
        kind=OptionType.TEXT,
        is_path=True,
        help="Where cases and reports go.",
        default=".aggverify",
    ),
    Option(
        key="only",
        kind=OptionType.TEXTS,
        help="Run these checks only (with commas); --list names all.",
        where=Where.NOWHERE,
        field="only",
        default=(),
        metavar="CHECK[,CHECK]",
    ),
    Option(
        key="skip",
        kind=OptionType.TEXTS,
        help="Run all checks but these (with commas).",
        where=Where.NOWHERE,
        field="skip",
        default=(),
        metavar="CHECK[,CHECK]",
    ),
    Option(
        key="exit_first",
        short="-x",
        kind=OptionType.FLAG,
        help="Stop at the first confirmed finding.",
        where=Where.NOWHERE,
        field="exit_first",
        default=False,
    ),
    Option(
        key="replay_from",
        kind=OptionType.TEXTS,
        help="Also run the cases of another version's findings, of its verdict document; "
        "repeatable.",
        where=Where.NOWHERE,
        default=(),
        metavar="VERDICT",
    ),
    Option(
        key="replay_into",
        kind=OptionType.TEXT,
        help="Check nothing else, and add the results of these to a verdict document of this "
        "version.",
        where=Where.NOWHERE,
        metavar="VERDICT",
    ),
    Option(
        key="verbose",
        short="-v",
        kind=OptionType.FLAG,
        help="Also show every check, margins, policies and what was not tested.",
        where=Where.NOWHERE,
        default=False,
    ),
    Option(
        key="quiet",
        short="-q",
        kind=OptionType.FLAG,
        help="Show findings and the last line only.",
        where=Where.NOWHERE,
        default=False,
    ),
    Option(
        key="color",
        kind=OptionType.TEXT,
        help="auto (on a terminal, unless NO_COLOR is set), always or never.",
        where=Where.NOWHERE,
        default=COLORS[0],
        names="color",
    ),
    Option(
        key="list",
        kind=OptionType.FLAG,
        help="Print what would be run, and run no check.",
        where=Where.NOWHERE,
        default=False,
    ),
    Option(
        key="config",
        kind=OptionType.TEXT,
        is_path=True,
        help="TOML file with [tool.aggverify]; the nearest pyproject.toml that has it by default.",
        where=Where.NOWHERE,
    ),
)
"""In the order of the help."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "What is verified": (
        *("mode", "engine", "convention", "adapter", "divisor", "oracle", "against", "claim"),
        *("without", "policy", "terms", "group_size", "micro_batch_size"),
    ),
    "How much": (
        *("profile", "only", "skip", "exit_first", "max_time", "max_examples", "world", "step"),
        *("seed", "compile", "list"),
    ),
    "Screen and reports": ("verbose", "quiet", "color", "report", "report_dir", "github"),
    "Accepted findings": (
        *("accept", "baseline", "baseline_write", "strict", "replay_from", "replay_into"),
    ),
    "Machine": ("backend", "device", "sandbox", "config"),
}
"""The help's headings, with the options under each."""

BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS}


def default(key: str) -> Any:
    """Return the value where none is given."""
    return BY_KEY[key].default


def texts(value: Any) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)
