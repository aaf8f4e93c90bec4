"""``replay``: only what got through its steps is fixed, and it is the right reducer's."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from aggverify.checks import Finding
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase, stored_case
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from tests.conftest import Cli

RIGHT = """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, torch.zeros_like(losses)).sum() / batch.num_tokens
"""
WRONG = RIGHT.replace("batch.num_tokens", "batch.num_microbatches / batch.num_tokens")
RAISES = "def reduce(losses, batch):\n    return losses.sum() / batch.num_tokns\n"
ONE_ARGUMENT = "def reduce(losses):\n    return losses.sum()\n"
NOTHING = "def reduce(losses, batch):\n    return None\n"
REFUSES = RIGHT.replace(
    "    mask", '    if batch.num_microbatches > 1:\n        raise ValueError("one only")\n    mask'
)
KINDS = ("independent_of_micro_batches", "AGV202"), ("repeats_bit_for_bit", "AGV407")


def kept(
    folder: Path,
    text: str,
    check: str,
    code: str,
    name: str = "r.py",
    step: str = "1/1 1/11",
    strict: bool = False,
) -> StoredCase:
    """A finding, each sample a micro-batch, of ``folder/NAME``, stored as the command does."""
    (folder / name).write_text(text)
    samples = parse_step(step)
    cells = " ".join(map(str, range(len(samples.samples))))
    case = Case(samples, Layout(parse_micro_batches(cells)), plain_losses(samples))
    with contextlib.chdir(folder):
        claim = Claim(name, "reduce", "native", "sum", "token_mean", strict=strict)
        subject = Subject.of(claim)
        found = stored_case(subject, Finding(code, check, "", case, "token_mean"))
        store.write(found, folder / ".aggverify")
    return found


@pytest.mark.parametrize(("check", "code"), KINDS)
@pytest.mark.parametrize("text", [RAISES, NOTHING, ONE_ARGUMENT], ids=["typo", "none", "arity"])
def test_what_cannot_run_a_step_is_not_fixed(
    cli: Cli, tmp_path: Path, text: str, check: str, code: str
) -> None:
    case = kept(tmp_path, text, check, code)
    ran = cli("replay", case.id)
    said = ran.out + ran.err
    assert "FIXED" not in said, ran
    assert (ran.code, said.split()[0]) in [(2, "ERROR"), (1, "FAILED")], ran
    if text is RAISES:
        assert "AttributeError: 'MicroBatch' object has no attribute 'num_tokns'" in said
        assert "line 2, in reduce" in said, "the candidate's own traceback"


@pytest.mark.thorough
def test_fixed_failed_and_refused(cli: Cli, tmp_path: Path) -> None:
    case = kept(tmp_path, RIGHT, *KINDS[0])
    ran = cli("replay", case.id)
    assert (ran.code, ran.out) == (
        0, f"FIXED   case {case.id}: AGV202 Result depends on the split into micro-batches\n"
    )  # fmt: skip
    (tmp_path / "r.py").write_text(WRONG)
    ran = cli("replay", case.id)
    assert (ran.code, ran.out.split()[:3]) == (1, ["FAILED", "case", f"{case.id}:"])
    (tmp_path / "r.py").write_text(REFUSES)
    ran = cli("replay", case.id)
    assert ran.code != 0 and "FIXED" not in ran.out, ran
    assert ran.out.startswith(f"REFUSED case {case.id}: the reducer refuses several micro-batches")
    assert "'one only' (it was AGV202" in ran.out


def test_a_hazard_stays_one(cli: Cli, tmp_path: Path) -> None:
    multiplied = "torch.where(mask, losses, torch.zeros_like(losses))"
    text = RIGHT.replace(multiplied, "(losses * mask)")
    kind = "masked_nans_never_matter", "AGV123"
    hazard, strict = (kept(tmp_path, text, *kind, step="1/01", strict=s) for s in (False, True))
    ran = cli("replay", hazard.id)
    assert (ran.code, ran.out.split()[0]) == (0, "HAZARD"), ran
    ran = cli("replay", strict.id)
    assert (ran.code, ran.out.split()[0]) == (1, "FAILED"), ran


def test_each_case_finds_its_own_reducer(cli: Cli, tmp_path: Path) -> None:
    """Two reducers with the same finding; also from a folder below the project's."""
    (tmp_path / "pyproject.toml").touch()
    wrong = kept(tmp_path, WRONG, *KINDS[0], name="wrong.py")
    right = kept(tmp_path, RIGHT, *KINDS[0], name="right.py")
    assert wrong.id != right.id
    assert cli("replay", wrong.id).code == 1
    assert cli("replay", right.id).code == 0
    below = tmp_path / "below"
    below.mkdir()
    with contextlib.chdir(below):
        assert store.found_again(wrong) == str(tmp_path / "wrong.py")


@pytest.mark.parametrize("package", [False, True])
def test_a_module_that_a_case_names_lies_in_the_project_too(
    package: bool,
    cli: Cli,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever imports find it; nothing is imported to see that."""
    (tmp_path / "pyproject.toml").touch()
    case = kept(tmp_path, RIGHT, *KINDS[0])
    stored = store.read(case.id, tmp_path / ".aggverify").to_json()
    stored["claim"]["target"] = "found_by_import:reduce"
    (tmp_path / ".aggverify" / "cases" / "sent.json").write_text(json.dumps(stored))
    name = "found_by_import/__init__.py" if package else "found_by_import.py"
    theirs = tmp_path_factory.mktemp("theirs")
    for where in (theirs, tmp_path):
        (where / name).parent.mkdir(exist_ok=True)
        imported = where / "imported"
        (where / name).write_text(f"open({str(imported)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(theirs)
    (tmp_path / name).rename(tmp_path / "put_away")
    ran = cli("replay", "sent")
    assert (ran.code, "does not lie in the project" in ran.err) == (2, True), ran
    assert not (theirs / "imported").exists()
    (tmp_path / "put_away").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    store.check_trusted(store.read("sent", Path(".aggverify")), "sent", Path(".aggverify"))


def test_a_case_from_elsewhere_runs_nothing_unasked(
    cli: Cli, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A case is data that anybody may have written, and what it names would be imported."""
    theirs = tmp_path_factory.mktemp("theirs")
    for folder in (theirs, tmp_path):
        (folder / "pyproject.toml").touch()
    case = kept(theirs, RIGHT, *KINDS[0])
    stored, target = store.read(case.id, theirs / ".aggverify").to_json(), str(theirs / "r.py")
    stored["claim"]["target"] = target
    for where in (tmp_path / "sent.json", tmp_path / ".aggverify" / "cases" / "sent.json"):
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(json.dumps(stored))
    nothing = {**stored, "claim": {**stored["claim"], "target": "\0/r.py"}}
    (tmp_path / ".aggverify" / "cases" / "nothing.json").write_text(json.dumps(nothing))
    for name, trust in (("nothing", ()), ("nothing", ("--trust-target",))):
        ran = cli("replay", name, *trust)
        assert (ran.code, "internal error" in ran.err) == (2, False), ran
    for name, why in (("sent.json", "the case lies in"), ("sent", "does not lie in the project")):
        ran = cli("replay", name)
        assert (ran.code, why in ran.err, target in ran.err) == (2, True, True), ran
    assert cli("replay", "sent", "--trust-target").code == 0
    links = tmp_path / ".aggverify"
    links.rename(tmp_path / "elsewhere")
    links.symlink_to(tmp_path / "elsewhere")
    ran = cli("replay", "sent")
    assert (ran.code, f"{links.name} is a link" in ran.err) == (2, True), ran
    links.unlink()
    (tmp_path / "elsewhere").rename(links)
    assert cli("replay", "sent.json", target).code == 0


NOTE = "the ranks print: aggverify replay CASE shows what rank 0 printed"
LOUD = WRONG.replace("    mask", "    print({}, flush=True)\n    mask", 1)
FLOOD = LOUD.format('("x" * 99 + "\\n") * 20_000')


def test_what_rank_0_prints_is_shown(cli: Cli, tmp_path: Path) -> None:
    text = LOUD.format('"::error::", batch.num_tokens, file=__import__("sys").stderr')
    found = kept(tmp_path, text, *KINDS[0])
    ran = cli("replay", found.id)
    assert ran.code == 1
    _, shown = ran.out.split("rank 0 printed:\n")
    # As often as it is called: two micro-batches, then the step as one.
    assert shown == 3 * "  | \N{REPLACEMENT CHARACTER}:error:: 3\n"


@pytest.mark.thorough
def test_of_megabytes_the_beginning_and_the_end_are_shown(cli: Cli, tmp_path: Path) -> None:
    found = kept(tmp_path, FLOOD, *KINDS[0])
    ran = cli("replay", found.id)
    assert ran.code == 1 and len(ran.out) < 20_000
    dropped = 3 * (20_000 * 100 + 1) - 2 * 8_000
    assert f"  | … {dropped:,} bytes dropped …\n" in ran.out


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", [LOUD.format('"here"'), WRONG, FLOOD], ids=["few", "none", "much"])
def test_check_names_the_command_that_shows_it(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.py").write_text(text)
    brief = ("--profile", "quick", "--world", "2", "--max-examples", "2")
    ran = cli("check", "r.py", "--mode", "token_mean", *brief)
    assert ran.code == 1 and ran.out.count(NOTE) == (text != WRONG)
    assert {path.name for path in tmp_path.iterdir()} <= {"r.py", ".aggverify", "__pycache__"}


@pytest.mark.thorough
def test_a_check_without_a_case_shows_how_what_ranks_print_begins(cli: Cli, tmp_path: Path) -> None:
    right = "def reduce(losses, batch):\n    print()\n    print('n is', batch.num_tokens)\n"
    right += "    return losses[batch.mask.bool()].sum() / max(batch.num_tokens, 1)\n"
    (tmp_path / "r.py").write_text(right)
    brief = ("--profile", "quick", "--world", "2", "--max-examples", "2")
    ran = cli("check", "r.py", "--mode", "token_mean", *brief)
    assert ran.code == 0 and NOTE not in ran.flat
    assert "the ranks print, which is captured: rank 0 began with 'n is " in ran.flat
