"""``[tool.aggverify]``: found, checked, overridden, and described by the schema that ships."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

import aggverify
from aggverify.cli import settings_schema
from aggverify.cli.check import check
from aggverify.cli.config import config
from aggverify.cli.options import given_options
from aggverify.errors import InputError
from aggverify.execution.options import BY_KEY, GROUPS, OPTIONS, OptionType
from aggverify.oracles.policy import READINGS
from aggverify.run.planning.claims import completed
from aggverify.run.planning.request import Request, requested
from aggverify.run.planning.settings import KEYS, PROBE_POINTS, find, read, validated
from tests.conftest import ROOT

FOLDER = Path(aggverify.__file__).parent / "schema"
SCHEMA, WHOLE = (json.loads((FOLDER / f"{n}.json").read_text()) for n in ("settings", "pyproject"))
DESCRIPTION: dict[str, Any] = {"offers": [{"name": "reduce", "parameters": ["losses", "batch"]}]}


def written(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_the_nearest_file_that_has_the_section_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    outer = written(tmp_path, '[tool.aggverify]\nmode = "token_mean"\nworld = 4\n')
    written(inner, "[project]\nname = 'x'\n")
    found = find(inner)
    assert (found.source, found.values) == (outer, {"mode": "token_mean", "world": 4})
    assert find(Path("/nonexistent-folder")).source is None


def test_probe_points_are_no_options(tmp_path: Path) -> None:
    points = '[tool.aggverify]\nmode = "token_mean"\n[tool.aggverify.probe-points.mine]\n'
    found = read(written(tmp_path, points + 'mask = "m"\n'))
    assert found.values == {"mode": "token_mean"}
    jsonschema.validate({"probe-points": {"mine": {"mask": "m"}}}, SCHEMA)


def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    with pytest.raises(InputError, match="Is a pipe"):
        find(tmp_path)


@pytest.mark.parametrize("sign", [".git", "pyproject.toml"])
def test_what_lies_above_the_project_is_somebody_elses(tmp_path: Path, sign: str) -> None:
    written(tmp_path, '[tool.aggverify]\nmode = "token_mean"\n')
    (tmp_path / "mine" / "src").mkdir(parents=True)
    (tmp_path / "mine" / sign).touch()
    assert find(tmp_path / "mine" / "src").source is None


@pytest.mark.parametrize(
    "path", ["../mine.py", "/mine.py", "link/mine.py", r"\u0000mine.py", "circle/mine.py"]
)
@pytest.mark.parametrize("key", ["oracle", "report_dir"])
def test_a_project_names_only_what_is_its_own(tmp_path: Path, key: str, path: str) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "link").symlink_to(tmp_path)
    (tmp_path / "p" / "circle").symlink_to("circle")
    found = written(tmp_path / "p", f'[tool.aggverify]\n{key} = "{path}"\n')
    with pytest.raises(InputError, match=f"{key} leads out of .*: say it on the command line"):
        read(found)


def test_what_lies_where_anybody_may_write_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    found = written(tmp_path, '[tool.aggverify]\nmode = "token_mean"\n')
    assert find(tmp_path / "mine").source == found
    tmp_path.chmod(0o1777)
    assert find(tmp_path / "mine").source is None
    assert find(tmp_path).source == found


ENGINE = """
from dataclasses import replace
from pathlib import Path
from aggverify.engines.mean import MEAN
Path(__file__).with_name("imported").touch()
ENGINE = replace(MEAN, name=f"{__name__}:ENGINE")
"""


@pytest.mark.parametrize("how", ["elsewhere", "link", "package", "installed", "found by a hook"])
def test_an_engine_of_somebody_elses_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whatever finds it: the path of Python, a link in the project, or a package there."""
    project, others = tmp_path / "p", tmp_path / "others"
    project.mkdir()
    others.mkdir()
    (others / "their_engine.py").write_text(ENGINE)
    named = "their_engine:ENGINE"
    if how == "elsewhere":
        monkeypatch.syspath_prepend(others)
    elif how == "link":
        (project / "their_engine.py").symlink_to(others / "their_engine.py")
    elif how == "package":
        (project / "package").mkdir()
        (project / "package" / "their_engine.py").symlink_to(others / "their_engine.py")
        named = "package.their_engine:ENGINE"
    elif how == "installed":
        named = "aggverify.engines.mean:MEAN"
    else:
        named = "nowhere_to_be_found:ENGINE"
    monkeypatch.chdir(project)
    found = written(project, f'[tool.aggverify]\nengine = "{named}"\n')
    with pytest.raises(InputError, match=r"engine '.*' does not lie in .*: say it on the command"):
        read(found)
    assert not list(tmp_path.rglob("imported"))
    assert read(found, named_options={"engine"}).values == {}


def test_an_engine_of_the_projects_own_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_projects_engine.py").write_text(ENGINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = written(tmp_path, '[tool.aggverify]\nengine = "my_projects_engine:ENGINE"\n')
    assert read(found).get("engine") == "my_projects_engine:ENGINE"
    assert (tmp_path / "imported").exists()


def test_what_the_person_says_need_not_be_the_projects_own(tmp_path: Path) -> None:
    found = written(tmp_path, '[tool.aggverify]\noracle = "../theirs.py"\nworld = 2\n')
    assert read(found, named_options={"oracle", "world"}).values == {"world": 2}


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[tool.aggverify]\noracle = "mine.py"\nreport_dir = "out"\n')
    found = read(path)
    assert found.get("oracle") == str(tmp_path / "mine.py")
    assert found.get("report_dir") == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('moed = "x"', "unknown key 'moed'; did you mean 'mode'"),
        ('mode = "token_men"', "unknown mode 'token_men'; did you mean 'token_mean'"),
        ('mode = "token_mean_legacy"', "not claimable: token_mean_legacy averages over ranks"),
        ("mode = 3", "mode must be a text or a list of texts, got 3"),
        ("world = '8'", "world must be an integer, got '8'"),
        ("world = true", "world must be an integer, got True"),
        ("world = 9", "world must be between 1 and 8, got 9"),
        (f"divisor = {10**400}", "divisor must be a finite number, got 1000"),
        ("divisor = inf", "divisor must be a finite number, got inf"),
        (f"max_examples = {10**400}", "max_examples must fit into 64 bits, got 1000"),
        ("max_examples = 2000000000", "max_examples must be between 1 and 1000000000, got 2000"),
        ("max_examples = -3", "max_examples must be between 1 and 1000000000, got -3"),
        (f"seed = {10**400}", "seed must fit into 64 bits, got 1000"),
        (f"world = -{10**400}", "world must fit into 64 bits, got -1000"),
        ("max_time = 1e300", "max_time must be between 0 and 1000000000, got 1e+300"),
        ("max_time = 0", "max_time must be more than 0, got 0"),
        (f"policy = {{group_size = {10**400}}}", "policy must fit into 64 bits, got 1000"),
        (f"mode = {['token_mean'] * 101}", "mode must be at most 100, got 101"),
        (f"claim = {['fan-out'] * 5000}", "claim must be at most 100, got 5000"),
        (f"oracle = '{'x' * 20_000}'", "oracle must be at most 10000 characters, got 20000"),
        ("max_time = nan", "max_time must be a finite number, got nan"),
        ('profile = "fast"', "unknown profile 'fast'"),
        ('engine = "summ"', "did you mean 'sum'"),
        ('convention = "slim"', "did you mean 'slime'"),
        ('claim = ["fanout"]', "did you mean 'fan-out'"),
        ('policy = {empty_units = "exclud"}', "did you mean 'exclude'"),
        ('policy = {empty_unit = "count"}', "did you mean 'empty_units'"),
        ('terms = {aux = "micro_mean"}', "unknown reading of aux 'micro_mean'; did you mean"),
        ("policy = 3", "policy must be a table of question = reading, got 3"),
    ],
)
def test_an_error_names_the_section_and_the_value(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, f"[tool.aggverify]\n{text}\n")
    with pytest.raises(InputError) as error:
        read(path)
    assert f"[tool.aggverify] in {path}: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("content", [b"[tool", b"\xff\xfe", b"x = 1\n" * 200_000])
def test_what_cannot_be_read_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read|has no"):
        read(path)
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "missing.toml")
    path.write_text("[project]\n")
    with pytest.raises(InputError, match=r"has no \[tool.aggverify\] section"):
        read(path)
    path.write_text("tool = 3\n")
    with pytest.raises(InputError, match="has no"):
        read(path)
    path.write_text("[tool]\naggverify = 3\n")
    with pytest.raises(InputError, match="must be a table of plain values, got 3"):
        read(path)


def test_options_go_before_the_file_and_the_file_before_the_project() -> None:
    project = {"mode": "sample_mean", "engine": "mean", "policy": {"empty_units": "exclude"}}
    declared = DESCRIPTION | {"declared": {"mode": "token_mean", "policy": {"group_size": 4}}}
    request = completed(Request("x.py", engine="sum", settings=project), declared)
    assert (request.modes, request.engine) == (("token_mean",), "sum")
    assert request.policy == {"empty_units": "exclude", "group_size": 4}
    alone = completed(Request("x.py", settings=project), DESCRIPTION)
    assert (alone.modes, alone.engine) == (("sample_mean",), "mean")


def test_a_projects_divisor_and_oracle_do_not_disturb_another_mode() -> None:
    project = {"divisor": 8.0, "oracle": "mine.py"}
    asked = completed(Request("x.py", modes=("token_mean",), settings=project), DESCRIPTION)
    assert (asked.divisor, asked.oracle) == (None, None)
    constant = completed(Request("x.py", modes=("constant",), settings=project), DESCRIPTION)
    assert constant.divisor == 8.0
    assert completed(Request("x.py", settings=project), DESCRIPTION).oracle == "mine.py"


def test_the_schemas_that_ship_are_the_tables() -> None:
    for name, text in settings_schema.rendered():
        assert (FOLDER / name).read_text(encoding="utf-8") == text
        jsonschema.Draft202012Validator.check_schema(json.loads(text))
    assert set(SCHEMA["properties"]) == {*KEYS, PROBE_POINTS}
    assert (SCHEMA["$id"], WHOLE["$id"]) == ("urn:aggverify:settings", "urn:aggverify:pyproject")
    assert WHOLE["properties"]["tool"]["properties"]["aggverify"]["$id"] == SCHEMA["$id"]


@pytest.mark.parametrize("before", ["", "[project]\nname = 'x'\n"])
@pytest.mark.parametrize("address", ["https://raw.example.org/c0/pyproject.json", "file:///p.json"])
def test_what_init_writes_fits_the_schema_and_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, address: str
) -> None:
    """As it is, and with every setting uncommented."""
    monkeypatch.setattr("aggverify.scaffold.origin.schema_url", lambda: address)
    path = written(tmp_path, before)
    told = CliRunner().invoke(config, ["init", str(path)])
    assert told.exit_code == 0, told
    text, line = path.read_text(), f"#:schema {address}"
    # A path of this machine is no line for a file that is committed.
    begins = not before and address.startswith("https")
    assert (text.startswith(f"{line}\n"), line in told.output) == (begins, not begins)
    assert text.startswith(before) and read(path).values == {}
    whole = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    settings = tomllib.loads(whole)["tool"]["aggverify"]
    assert set(settings) == set(KEYS)
    jsonschema.validate(settings, SCHEMA)
    jsonschema.validate(tomllib.loads(whole), WHOLE)
    validated("here", settings, KEYS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tool": {"aggverify": {"moed": 1}}}, WHOLE)


def test_the_documents_name_the_addresses_that_the_command_prints() -> None:
    told = CliRunner().invoke(config, ["schema", "--url"]).output.strip()
    assert told.endswith("/aggverify/schema/pyproject.json")
    assert json.loads(CliRunner().invoke(config, ["schema"]).output) == SCHEMA
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    assert all(name in page for name in ("#:schema", "schema --url", SCHEMA["$id"], WHOLE["$id"]))


def test_the_command_has_every_option_of_the_table_and_no_other() -> None:
    shown = {param.name: param for param in check.params if isinstance(param, click.Option)}
    assert list(shown) == [option.key for option in OPTIONS]
    for option in OPTIONS:
        assert shown[option.key].opts == [*filter(None, [option.short]), option.flag]
    text = " ".join(check.get_help(click.Context(check)).split())
    for default in ("[default: 8]", "[default: ci]", "[default: 0]", "[default: .aggverify]"):
        assert default in text


def test_the_request_has_a_field_for_what_is_not_the_commands_own() -> None:
    fields = {f.name: f for f in dataclasses.fields(Request)}
    named = {option.field for option in OPTIONS if option.field}
    assert named | {"target", "settings", "settings_source"} == set(fields)
    assert sorted(key for keys in GROUPS.values() for key in keys) == sorted(BY_KEY)
    assert {o.key for o in OPTIONS if not o.field} == {
        *("report", "github", "report_dir", "verbose", "quiet", "color", "list", "config"),
        *("baseline", "baseline_write", "replay_from", "replay_into"),
    }
    for option in OPTIONS:
        if option.field and option.kind is not OptionType.READINGS:
            assert fields[option.field].default == option.default, option.key


@pytest.mark.parametrize(
    ("given", "project", "expected"),
    [
        ({}, {}, (8, "ci", 0, None)),
        ({}, {"world": 4, "profile": "quick", "seed": 7, "max_time": 2.5}, (4, "quick", 7, 2.5)),
        ({"world": 2, "seed": 0}, {"world": 4, "seed": 7}, (2, "ci", 0, None)),
    ],
)
def test_an_option_goes_before_the_project_and_the_project_before_the_default(
    given: dict[str, Any], project: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = requested("x.py", given_options({"claim": (), "list": False, **given}), project)
    assert (found.max_world, found.profile, found.seed, found.max_time) == expected
    assert (found.modes, found.claims, found.oracle) == ((), frozenset(), None)


def test_what_is_repeated_on_the_command_line_is_put_together() -> None:
    given = {"mode": ("token_mean", "sample_mean"), "claim": ("poison",), "policy": ("a=b", "c=d")}
    found = requested("x.py", given_options(given), {"claim": ["fan-out"], "oracle": "own.py"})
    assert found.modes == ("token_mean", "sample_mean")
    assert found.policy == {"a": "b", "c": "d"}
    # What the project says of these waits for what the file says of itself.
    assert (found.claims, found.oracle) == (frozenset({"poison"}), None)
    assert completed(found, DESCRIPTION | {"declared": {}}).claims == {"poison", "fan-out"}
    strict = completed(found, DESCRIPTION | {"declared": {"strict": True, "without": "gathered"}})
    assert (strict.strict, strict.without) == (True, {"gathered"})
    assert not found.strict
    with pytest.raises(InputError, match="--policy takes QUESTION=READING, got 'a'"):
        given_options({"policy": ("a",)})


names = st.sampled_from(
    [
        "token_mean",
        "dapo",
        "bnpo",
        "vl_norm(1/2)",
        "vl_norm(",
        "sum",
        "mean",
        "slime",
        "ci",
        "quick",
        "fan-out",
        "",
    ]
)
numbers = st.integers(-2, 70) | st.floats(-2, 70) | st.booleans()
values = st.one_of(names, numbers, st.lists(names, max_size=2), st.none())
tables = st.dictionaries(
    st.sampled_from([*READINGS, "group_size", "other"]),
    st.sampled_from(
        ["count", "exclude", "yes", "present", "rollouts_over_group_size", "3", "0", 2]
    ),
    max_size=3,
)


@given(st.dictionaries(st.sampled_from([*KEYS, "other"]), values | tables, max_size=2))
@example({"adapter": "adapter.py", "mode": "its own"})
@example({"micro_batch_size": 2, "mode": ["bnpo", "dapo"]})
@example({"micro_batch_size": 2, "mode": "another"})
@example({"mode": "bnpo"})
@example({"mode": "token_mean_legacy(1024)"})
@example({"mode": "token_mean_legacy(1025)"})
def test_schema_and_reader_agree(given_values: dict[str, Any]) -> None:
    given_values.pop("report", None)  # formats are the command's to know
    fits = jsonschema.Draft202012Validator(SCHEMA).is_valid(given_values)
    # JSON Schema takes 3.0 for an integer, the reader does not.
    if any(isinstance(v, float) and v.is_integer() for v in given_values.values()):
        return
    try:
        validated("here", given_values, KEYS)
    except InputError:
        assert not fits, given_values
    else:
        assert fits, given_values
