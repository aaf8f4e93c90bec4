"""What a verdict document says, in words: one place for every format. Nothing is escaped here."""

from aggverify.report.reading.finding import (
    MAX_LINE,
    consequence,
    explanation,
    facts,
    replay,
    shortened,
    tag,
    trace,
)
from aggverify.report.reading.labelled import (
    header,
    inventory,
    margin,
    state,
    tried,
)
from aggverify.report.reading.sentences import (
    assumption,
    baseline_words,
    every_cause,
    headline,
    incomplete,
    refusals,
    summary,
)

__all__ = [
    "MAX_LINE",
    "assumption",
    "baseline_words",
    "consequence",
    "every_cause",
    "explanation",
    "facts",
    "header",
    "headline",
    "incomplete",
    "inventory",
    "margin",
    "refusals",
    "replay",
    "shortened",
    "state",
    "summary",
    "tag",
    "trace",
    "tried",
]
