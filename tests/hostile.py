"""Files that mean harm: documents of ours with anything anywhere, and text that is nearly JSON or
nearly TOML."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from aggverify.cli.oracle import read_step
from aggverify.errors import AggverifyError
from aggverify.execution import decode_replies
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.run_spec import RunSpec
from aggverify.oracles import OracleError, Policy, Sample, Step
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning import settings
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.world import Replies, answers, postmortem, resource_headroom, wire
from aggverify.world.link import open_link
from aggverify.world.process_inspector import HERE
from aggverify.world.wire import Decoder, WireError
from tests.schemas import FAULT, validator

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31, 2**63, 10**400, 1 << 27]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["nan", "01", "\0", "\ud800", "../../etc/passwd", "$(id)", "\x1b[31m"]),
    st.sampled_from([{"all": 1.0}, {"runs": [[1, 2]]}, {"runs": [[1, 1 << 40]]}, {"runs": [1]}]),
)  # fmt: skip
ANYTHING = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def document() -> dict[str, Any]:
    """A stored case with every field in use."""
    samples = (Sample(1, b"\1\0", 0, 0, b"\1\1"), Sample(2, b"\1" * 300, 1, 0))
    case = Case(Step(samples), Layout((((0,), (1,)),)), (1.0, float("nan"), *(0.5,) * 300))
    old = Claim("old.py", "reduce", "native", "mean", "token_mean", budget=Budget(max_time=2.5))
    claim = Claim(
        "r.py",
        "reduce",
        "native",
        "sum",
        "token_mean",
        divisor=2.0,
        oracle="own.py",
        terms=("kl",),
        offered=("token_mean", "sample_mean"),
        policy=Policy(denominators="post_rejection", group_size=2),
        claimed=frozenset({"poison", "whole-groups"}),
        group_size=4,
        max_world=2,
        against=old,
        seed=3,
        budget=Budget("quick", max_examples=7),
    )
    return StoredCase(
        case, claim, "weights_are_the_modes", "AGV101", False, ("r.py:reduce",)
    ).to_json()


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside."""
    yield path
    items: Any = ()
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield from places(value, (*path, key))


PLACES = [place for place in places(document()) if place]


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A document with one to three of its values replaced, removed or doubled."""
    data = copy.deepcopy(document())
    for _ in range(draw(st.integers(1, 3))):
        spoil(draw, data, PLACES)
    return data


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """The bytes of a document, cut, doubled, nested or with odd bytes in between."""
    text = json.dumps(draw(documents())).encode()
    at = draw(st.integers(0, len(text)))
    odd = draw(
        st.sampled_from(
            [b"", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5000, b"NaN", b"\xff", b"1e999", b'"']
        )
        | st.binary(max_size=8)
    )  # fmt: skip
    return text[:at] + odd + text[at + draw(st.integers(0, 8)) :]


TOML_VALUES = st.one_of(
    st.sampled_from(
        [
            "true", "0", "-1", "1.5", "nan", "inf", "1" * 400, "''", "[]", "{}", "[['a']]",
            "{a = 1}", "1979-05-27", "'prompt_mean'", "['sum', 1]", "{empty_units = 'skip'}",
            "'../..'", "[" * 20_000, "{a=" * 20_000, '"\\u0000"', "'\x1b[31m'", '"""x"""',
            "0x_f", "'",
        ]
    ),
    st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=8),
)  # fmt: skip
TOML_KEYS = st.sampled_from([*settings.KEYS, "modes", "__class__", "", "''", "a.b"])


@st.composite
def settings_texts(draw: st.DrawFn) -> bytes:
    """Lines of a pyproject.toml, of which some may even be right."""
    pairs = draw(st.lists(st.tuples(TOML_KEYS, TOML_VALUES), max_size=4))
    header = draw(st.sampled_from(["[tool.aggverify]", "[[tool.aggverify]]", "[tool]", "tool = 1"]))
    text = "\n".join([header, *(f"{key} = {value}" for key, value in pairs)])
    return text.encode(errors="surrogatepass") + draw(st.sampled_from([b"", b"\xff", b"\0"]))


ERROR: Any = {
    "type": "ValueError",
    "message": "no",
    "frames": [["r.py", 3, "reduce", "candidate", "raise ValueError", [0, 5]]],
    "last": "ValueError: no",
    "stated": True,
    "breach": "",
    "before": None,
    "caused": False,
}
_NOTE = "0|0|all_reduce|float32|1|SUM|r.py:3"
_SEEN: Any = {"trace": [_NOTE], "sequences": {"0": [1], "0/": [0, 1]}}
_DATA: Any = {
    "losses": ["0x1p-1"],
    "counts": [1],
    "checksum": 1,
    "logs": [[["loss", ["0x1p-1"]]]],
    "lines": [3],
    "first_seconds": 0.25,
}
SAID: tuple[Any, ...] = (
    {"ready": 1},
    {"preparing": True},
    {"preparing": False},
    {"data": _DATA, **_SEEN},
    {"data": {"parts": [_DATA, _DATA], "sizes": [8, 8]}, **_SEEN, "checksums": {"0": 1}},
    {"error": {**ERROR, "before": ERROR}, **_SEEN, "changes": ["umask"], "replace": False},
    {"world": 1, "rank": 0, "exit": 0},
    {"description": {}, "threads": "none", "cuda": False},
)  # fmt: skip


@st.composite
def said(draw: st.DrawFn) -> bytes:
    """What a rank may send whose code has got at the connection: frames with anything in them,
    cut or with odd bytes in between."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        header = copy.deepcopy(draw(st.sampled_from(SAID)))
        for _ in range(draw(st.integers(0, 2))):
            spoil(draw, header, [place for place in places(header) if place])
        blob = draw(st.binary(max_size=24) | st.sampled_from([b"\0" * 8, b"\0" * 16]))
        parts.append(wire.encode(header, blob))
    data = b"".join(parts)
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.just(b"") | st.binary(max_size=8)) + data[at:]


def spoil(draw: st.DrawFn, data: Any, there: list[tuple[Any, ...]]) -> None:
    """Replace, remove or double one value."""
    if not there:
        return
    *way, last = draw(st.sampled_from(there))
    inner = data
    try:
        for key in way:
            inner = inner[key]
        action = draw(st.integers(0, 4))
        if action == 0:
            del inner[last]
        elif action == 1 and isinstance(inner, list):
            inner.append(inner[last])
        else:
            # A copy: some of what is drawn is shared, and would be changed in later examples.
            inner[last] = copy.deepcopy(draw(ANYTHING))
    except (KeyError, IndexError, TypeError):
        return  # an earlier change has taken it away


def refused(read: Callable[[], object]) -> bool:
    """Whether it was refused as bad input; anything else that is raised is a fault of ours."""
    try:
        read()
    except (AggverifyError, OracleError) as error:
        assert len(str(error)) < 5_000, len(str(error))
        return True
    return False


def feed(data: Any) -> None:
    """Give the document, and its parts, to every reader of stored cases."""
    if not refused(lambda: StoredCase.from_json(data)):
        stored = StoredCase.from_json(data)
        again = StoredCase.from_json(json.loads(json.dumps(stored.to_json())))
        assert again.to_json() == stored.to_json()
        assert stored.id == again.id
    case = data.get("case") if isinstance(data, dict) else None
    refused(lambda: Case.from_json(case))  # type: ignore[arg-type]
    if isinstance(case, dict):
        refused(lambda: Step.from_json(case.get("step")))  # type: ignore[arg-type]
        refused(lambda: Layout.from_json(case.get("layout")))  # type: ignore[arg-type]


def feed_file(text: bytes, path: Path) -> None:
    """Give the bytes to the readers of stored cases and of steps, as a file."""
    path.write_bytes(text)
    refused(lambda: store.read(str(path), path.parent))
    refused(lambda: read_step(str(path)))


def feed_settings(text: bytes, path: Path) -> None:
    """Give the bytes to the reader of settings, as a file."""
    path.write_bytes(text)
    refused(lambda: settings.read(path))


CASE = Case(Step((Sample(1, b"\1\1", 0, 0),)), Layout.trivial(1), (0.5, 0.25))


def feed_rank(data: bytes) -> None:
    """Give the bytes to what reads a rank's connection; nothing but its own errors may come out,
    and of what it takes for an answer an outcome must be made."""
    link, (connection, output, _) = open_link(0)
    try:
        link.hear(wire.encode({"ready": 1}))
        link.replies.clear()
        link.asked += 3
        link.hear(data)
        assert len(link.replies) <= 3
        while link.replies:
            outcome, _ = postmortem.finished(
                [link.replies[0]], [link], 0, resource_headroom.PidsWatch(), HERE
            )
            assert len(postmortem.split(outcome, 2)) == 2
            if isinstance(outcome, Replies):
                decode_replies.answers(RunSpec(CASE), outcome.replies)
            else:
                validator(FAULT).validate(json.loads(json.dumps(outcome.to_json())))
            link.replies.popleft()
    finally:
        link.close()
        for fd in (connection, output):
            os.close(fd)
    for check in (answers.constructed, lambda header: answers.ending(header, 2)):
        with contextlib.suppress(WireError):
            for header, _ in Decoder(answers.SMALL).feed(data):
                check(header)
