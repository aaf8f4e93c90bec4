"""The verdict document: what every writer starts from, whether it was just made or stored.

Two runs with the same plan on the same code give the same document, as far as it is ``comparable``.
``python -m aggverify.report.model`` prints its JSON schema.
"""

from aggverify.report.model.document import (
    MAX_BYTES,
    SCHEMA,
    Accepted,
    Document,
    Environment,
    Replay,
    comparable,
    from_json,
    harmless,
    load,
    render,
    schema,
)
from aggverify.report.model.established import (
    Asked,
    Check,
    Covered,
    Cut,
    Lines,
    Margin,
    OtherEngine,
    Power,
    Reading,
    Refusal,
    ReportedLoss,
    SizeMargin,
    Tried,
    Waiver,
    Warned,
)
from aggverify.report.model.finding import Bug, Call, Finding, Given, Mask, Run, Sample, Step
from aggverify.report.model.verdict import Verdict

__all__ = [
    "MAX_BYTES",
    "SCHEMA",
    "Accepted",
    "Asked",
    "Bug",
    "Call",
    "Check",
    "Covered",
    "Cut",
    "Document",
    "Environment",
    "Finding",
    "Given",
    "Lines",
    "Margin",
    "Mask",
    "OtherEngine",
    "Power",
    "Reading",
    "Refusal",
    "Replay",
    "ReportedLoss",
    "Run",
    "Sample",
    "SizeMargin",
    "Step",
    "Tried",
    "Verdict",
    "Waiver",
    "Warned",
    "comparable",
    "from_json",
    "harmless",
    "load",
    "render",
    "schema",
]
