"""Verdict documents, baselines and snapshots that mean harm: ours, with anything anywhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from aggverify import codec, model
from aggverify.report import baseline
from aggverify.report.baseline import Baseline, Entry
from aggverify.report.document import known_findings
from aggverify.report.formats import FORMATS
from aggverify.report.view_model import headline
from aggverify.snapshot import file
from tests import verdicts
from tests.hostile import places, refused, spoil

Place = tuple[Any, ...]


@cache
def _verdict() -> tuple[Any, list[Place]]:
    data = codec.plain(verdicts.written(verdicts.verdict("x", 2), verdicts.verdict("y", 0)))
    return data, [place for place in places(data) if place]


@cache
def _baseline() -> tuple[Any, list[Place]]:
    document = verdicts.written(verdicts.verdict("x", 2))
    found = [finding for verdict in document.verdicts for finding in verdict.findings]
    known = tuple(Entry(f.id, f.identity, "known", "me", "2026-12-31", f.case) for f in found)
    data = codec.plain(Baseline(baseline.SCHEMA, known))
    return data, [place for place in places(data) if place]


@st.composite
def spoiled(draw: st.DrawFn, made: Callable[[], tuple[Any, list[Place]]]) -> Any:
    """With one to three of its values replaced, removed or doubled."""
    whole, there = made()
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        spoil(draw, data, there)
    return data


def verdict_documents() -> st.SearchStrategy[Any]:
    """Verdict documents."""
    return spoiled(_verdict)


def baselines() -> st.SearchStrategy[Any]:
    """Baselines."""
    return spoiled(_baseline)


HEADER = (
    f"# aggverify-snapshot {file.SCHEMA}",
    f"# corpus {file.VERSION}",
    "# torch 2.6.0",
    "# processor AVX2",
    "# threads 1",
    "# target r.py:reduce",
)
LINES = st.sampled_from(
    [
        *HEADER, '# claim token_mean {"engine": "sum"}', "# claim token_mean {", "# claim", "# ",
        "token_mean a dp1.cp1.mb1 float64 value=0x1p-1 weights=0x1p+0*2",
        "token_mean a dp1.cp1.mb1 float64 weights=9:0123456789ab:8:0x1p+0:0x1p+3",
        "a token_mean d1c1k1 float64 value=0x1p-1 weights=00", "a b c d fault=x", "a b c d e=f",
        "\x1b[31m", "a b", "",
    ]
)  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn) -> bytes:
    """Lines of a snapshot, most with the header it must have."""
    lines = [*HEADER] if draw(st.integers(0, 3)) else []
    lines += draw(st.lists(LINES | st.text(max_size=12), max_size=5))
    return "\n".join(lines).encode(errors="surrogatepass") + draw(st.binary(max_size=3))


def feed_verdict(data: Any) -> None:
    """Give the document to its reader, and what is taken to all that start from one."""
    found: list[model.Document] = []
    if refused(lambda: found.append(model.from_json(data))):
        return
    [document] = found
    text = model.render(document)  # compared as text: a NaN is not equal to itself
    assert model.render(model.from_json(json.loads(text))) == text
    model.comparable(document)
    refused(lambda: list(known_findings(document)))
    headline(model.harmless(document))
    for name in FORMATS:
        FORMATS[name].render(document)


def feed_baseline(data: Any, path: Path) -> None:
    """Give the document to the reader of baselines, as a file."""
    path.write_text(json.dumps(data))
    refused(lambda: baseline.load(path))


def feed_snapshot(text: bytes, path: Path) -> None:
    """Give the bytes to the reader of snapshots, as a file."""
    path.write_bytes(text)
    refused(lambda: file.read(path))
