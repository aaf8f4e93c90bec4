"""The verdict document as data: written, read back, refused where it is wrong, and its schema."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aggverify import codec, model
from aggverify.errors import InputError
from aggverify.regression import model as compared
from aggverify.report import formats
from aggverify.report.document import stopped
from aggverify.report.view_model import labelled
from tests import hostile, schemas, verdicts

DOCUMENTS = {
    "red": verdicts.written(verdicts.verdict("é\n\x1b[2J", reports=2)),
    "green": verdicts.written(verdicts.verdict(reports=0), verdicts.verdict(reports=0)),
    "untested": verdicts.written(verdicts.verdict(reports=0, executed=0)),
    "error": stopped((), InputError("no such file\nr.py")),
}
RED = json.loads(model.render(DOCUMENTS["red"]))


def test_the_schema_that_ships_is_the_models() -> None:
    shipped = (schemas.FOLDER / schemas.VERDICT).read_text()
    assert shipped == model.schema(), "python -m aggverify.model > verdict.json"
    shipped = (schemas.FOLDER / schemas.COMPARISON).read_text()
    assert shipped == compared.schema(), "python -m aggverify.regression.model > comparison.json"
    for name in (schemas.VERDICT, schemas.CASE, schemas.FAULT, schemas.COMPARISON):
        schemas.validator(name).check_schema(schemas.validator(name).schema)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_written_fits_the_schema_and_is_read_back(name: str) -> None:
    text = model.render(DOCUMENTS[name])
    schemas.validator(schemas.VERDICT).validate(json.loads(text))
    again = model.from_json(json.loads(text))
    assert model.render(again) == text
    assert again == DOCUMENTS[name]


def test_the_schema_of_stored_cases_says_what_is_no_case() -> None:
    case = schemas.validator(schemas.CASE)
    good = hostile.document()
    case.validate(good)
    for place in hostile.places(good):
        if place and place[-1] in ("mask", "losses", "cp", "check"):
            data = copy.deepcopy(good)
            inner: Any = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = {"runs": 1}
            assert not case.is_valid(data), place


def test_a_document_whose_findings_had_scripts_is_read_without_them() -> None:
    old: Any = copy.deepcopy(RED) | {"schema": 5}
    for finding in old["verdicts"][0]["findings"]:
        finding |= {"script": "import torch", "no_script": None}
    kept = copy.deepcopy(old)
    assert model.from_json(old) == model.from_json(RED)
    assert old == kept, "what is handed over stays as it is"
    assert hostile.refused(lambda: model.from_json({"schema": 5, "verdicts": [1, {"findings": 2}]}))


def test_weights_and_bounds_are_exact() -> None:
    (finding, _) = RED["verdicts"][0]["findings"]
    assert finding["expected"] == ["1/2", "1/2"]
    assert finding["observed"] == [(0.25).hex(), (0.5).hex()]
    assert finding["bound"] == (2.0**-50).hex()
    margin = RED["verdicts"][0]["margins"][0]["reported_loss"]
    assert margin["smallest_caught_dense"] == "inf"
    odd = RED["verdicts"][0]["findings"][0] | {"observed": ["nan", "-inf"]}
    nan, infinite = codec.read(model.FindingRecord, odd, "it").observed or ()
    assert math.isnan(nan) and infinite == -math.inf


@pytest.mark.parametrize(
    ("alone", "dense", "shown"),
    [
        (0.01, 0.2, "beyond 0.01 with one loss alone, 0.2 at best on 3 dense steps, vacuous on 1"),
        (math.inf, 0.2, "beyond 0.2 at best on 3 dense steps, vacuous on 1"),
        (0.01, math.inf, "beyond 0.01 with one loss alone"),
        (math.inf, math.inf, "no factor is caught on 3 dense steps"),
    ],
)
def test_a_margin_names_what_would_be_caught(alone: float, dense: float, shown: str) -> None:
    loss = model.ReportedLoss(alone, dense, 3, 1)
    _, line = labelled.margin(model.Margin("float32", 0.5, 0.1, loss, ()))
    assert line == f"float32, reported loss: {shown}"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((), [], "the verdict document must be an object, got []"),
        (("schema",), 1, "the verdict document.schema must be 6, got 1"),
        (("schema",), "2", "document.schema must be 6, got '2'"),
        (("verdicts", 0, "claim"), None, "document.verdicts[0].claim must be an object, got None"),
        (("exit",), True, "document.exit must be an integer, got True"),
        (("verdict",), [], "key of the verdict document 'verdict'; did you mean 'verdicts'"),
        (("verdicts", 0, "mode"), 3, "document.verdicts[0].mode must be text, got 3"),
        (("verdicts", 0, "worlds", "1"), 0.5, "worlds.1 must be an integer, got 0.5"),
        (("verdicts", 0, "seed"), 10**30, "seed must be an integer of at most 64 bits, got 1000"),
        (("verdicts", 0, "findings", 1, "expected"), ["1/2"], "1 expected weights for 4"),
        (("verdicts", 0, "findings", 0, "expected"), ["1/0", "1"], "[0] must be a fraction"),
        (("verdicts", 0, "findings", 0, "expected"), ["1e9999999", "1"], "must be a fraction"),
        (("verdicts", 0, "findings", 0, "bound"), "0x1p+9999", "bound must be a double in hex"),
        (("verdicts", 0, "findings", 0, "bound"), 0.5, "bound must be a double in hex, got 0.5"),
        (("verdicts", 0, "findings", 0, "token"), 2, "findings[0]: token 2 of 2"),
        (("verdicts", 0, "findings", 0, "step", "samples", 0, "runs", 0, "tokens"), 1 << 40,
         "its runs hold more than its 2 response tokens"),
        (("verdicts", 0, "findings", 0, "step", "samples", 0, "runs", 0, "mask"), "#",
         "mask must be 'unmasked' or 'masked' or 'rejected', got '#'"),
        (("verdicts", 0, "checks", 0, "state"), "\ud800", "state must be 'ok' or 'failed' or"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(place: tuple[Any, ...], value: object, message: str) -> None:
    data: Any = copy.deepcopy(RED)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if place:
        inner[place[-1]] = value
    with pytest.raises(InputError) as raised:
        model.from_json(data if place else value)
    assert message in str(raised.value)


def test_what_lacks_is_named() -> None:
    data = copy.deepcopy(RED)
    del data["verdicts"][0]["findings"][0]["code"]
    with pytest.raises(InputError, match=r"document.verdicts\[0\].findings\[0\] lacks code$"):
        model.from_json(data)


PATIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
# Cases, claims and faults have readers of their own.
PLACES = [
    place for place in hostile.places(RED) if place and not {"case", "claim", "fault"} & {*place}
]


@given(st.sampled_from(PLACES), hostile.ANYTHING)
@example(("verdicts", 0, "findings"), [])
def test_reader_and_schema_agree_and_every_writer_takes_what_is_read(
    place: tuple[Any, ...], value: object
) -> None:
    data = copy.deepcopy(RED)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = copy.deepcopy(value)
    if hostile.refused(lambda: model.from_json(data)):
        return
    schemas.validator(schemas.VERDICT).validate(data)
    for each in formats.FORMATS.values():
        each.render(model.from_json(data)).encode()


@PATIENT
@given(st.binary(max_size=40) | hostile.texts())
def test_files_of_any_kind_are_read_or_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(text)
    assert hostile.refused(lambda: model.load(tmp_path / "verdict.json"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file: "):
        model.load(tmp_path / "verdict.json")
