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
    counts,
    header,
    inventory,
    margin,
    reach,
    state,
    state_name,
    tried,
)
from aggverify.report.reading.sentences import (
    assumption,
    baseline_words,
    every_cause,
    headline,
    incomplete,
    refusals,
    result,
    summary,
)

__all__ = [
    "MAX_LINE",
    "assumption",
    "baseline_words",
    "consequence",
    "counts",
    "every_cause",
    "explanation",
    "facts",
    "header",
    "headline",
    "incomplete",
    "inventory",
    "margin",
    "reach",
    "refusals",
    "replay",
    "result",
    "shortened",
    "state",
    "state_name",
    "summary",
    "tag",
    "trace",
    "tried",
]
