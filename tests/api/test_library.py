"""What a person imports: its names, and what each does on right and wrong reducers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest
from hypothesis.strategies import SearchStrategy

import aggverify
from aggverify import oracles, strategies
from aggverify.api.targets import target_text
from aggverify.errors import AggverifyError, InputError
from aggverify.report.formats import FORMATS
from aggverify.report.formatting import number
from tests.conftest import EXAMPLES
from tests.unit.test_reports import RED

T = TypeVar("T")
RIGHT = str(EXAMPLES / "native" / "sum" / "token_mean.py")
WRONG = str(EXAMPLES / "broken" / "micro_batch_token_mean.py")
SUMS = """
import torch
import torch.distributed as dist

def reduce(losses, batch):
    tokens = sum(mask.sum() for mask in batch.local_masks).reshape(1)
    if True:
        dist.all_reduce(tokens, group=batch.dp_group)
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / tokens[0].clamp(min=1)
"""
TWO_MICRO_BATCHES = aggverify.Layout((((0,), (1,)),))

NAMES = {
    "Case", "Document", "Layout", "MicroBatch", "Observation", "PolicyBatch", "Pool", "Sample",
    "Step", "TrainContext", "Verdict", "__version__", "assert_invariant",
    "check_case", "check_reducer", "conformance", "load_verdict", "observe",
    "parametrize_with_checks", "parse_step", "probe", "probe_log_probs", "verify",
}  # fmt: skip


def module_level(losses, batch):  # type: ignore[no-untyped-def]
    """Found by its name."""


half = partial(module_level, batch=None)
named = lambda losses, batch: losses.sum()  # noqa: E731


def test_the_names_are_stable() -> None:
    assert set(aggverify.__all__) == NAMES
    assert all(getattr(aggverify, name) is not None for name in NAMES)
    assert set(strategies.__all__) == {"Space", "cases", "layouts", "steps", "telling_apart"}
    with pytest.raises(AttributeError, match="no attribute 'verfiy'"):
        _ = aggverify.verfiy


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'hypothesis', 'click', 'rich'}"
    code = f"import sys, aggverify; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_step_is_observed(shared_pool: aggverify.Pool) -> None:
    look = partial(aggverify.observe, mode="token_mean", pool=shared_pool)
    right = look(RIGHT, "1/1 1/11", TWO_MICRO_BATCHES)
    assert right.conforms and right.worst is None
    assert right.expected == (Fraction(1, 3),) * 3
    wrong = look(WRONG, "1/1 1/11", TWO_MICRO_BATCHES)
    assert (wrong.weights, wrong.conforms, wrong.worst) == ((0.5, 0.25, 0.25), False, 0)
    assert "sample 0, response token 0: 1/2    expected 1/3 x 3/2    <- beyond" in str(wrong)
    drawn = wrong._repr_html_()
    assert '<td class="expected">1/3</td>' in drawn and "× 3/4" in drawn
    assert "does not conform" in drawn and 'class="title bad"' in drawn
    assert 'class="title good"' in right._repr_html_()
    exact = oracles.scalar("token_mean", right.case.step, right.case.losses)
    assert right.expected_value == exact
    assert right.value is not None and wrong.value is not None
    assert float(right.value) == pytest.approx(float(exact), rel=1e-15)
    assert f"reported loss {number(float(wrong.value))}, expected {exact}" in str(wrong)


def test_collectives_are_seen_with_the_ranks_that_issued_them(
    shared_pool: aggverify.Pool, tmp_path: Path
) -> None:
    file = tmp_path / "sums.py"
    file.write_text(SUMS)
    layout = aggverify.Layout((((0,),), ((1,),)))
    seen = aggverify.observe(str(file), "1/1 1/11", layout, mode="token_mean", pool=shared_pool)
    assert seen.conforms
    own = [[call.call for call in trace if call.place] for trace in seen.traces]
    assert own == [["all_reduce int64[1] SUM"]] * 2
    assert "ranks 0,1: all_reduce int64[1] SUM (sums.py:8)" in str(seen)
    assert "all_reduce int64[1] SUM (sums.py:8)" in seen._repr_html_()


@pytest.mark.thorough
def test_collectives_are_seen_where_ranks_part(shared_pool: aggverify.Pool, tmp_path: Path) -> None:
    layout = aggverify.Layout((((0,),), ((1,),)))
    file = tmp_path / "sums.py"
    file.write_text(SUMS.replace("if True", "if batch.dp_rank == 0"))
    apart = aggverify.observe(str(file), "1/1 1/11", layout, mode="token_mean", pool=shared_pool)
    assert apart.fault is not None and apart.conforms is False
    assert "rank 0: all_reduce int64[1] SUM of ranks 0,1 (sums.py:8)" in str(apart)


def test_an_observation_without_a_mode_expects_nothing(
    shared_pool: aggverify.Pool, tmp_path: Path
) -> None:
    file = tmp_path / "mean.py"
    file.write_text("def reduce(losses, batch):\n    return losses.sum() / batch.num_tokens\n")
    bare = aggverify.observe(str(file), "1/1 1/11", pool=shared_pool)
    assert (bare.mode, bare.expected, bare.conforms) == (None, None, None)
    assert bare.weights == pytest.approx((1 / 3,) * 3)
    assert "reported loss" in str(bare) and "expected" not in str(bare).partition("\n")[2]
    drawn = bare._repr_html_()
    assert ">1/3<" in drawn and "→" not in drawn and "nothing is expected" in drawn


def test_a_reducer_that_raises_is_an_observation(
    shared_pool: aggverify.Pool, tmp_path: Path
) -> None:
    file = tmp_path / "raises.py"
    file.write_text("def reduce(losses, batch):\n    raise ValueError('<b>not today\\x1b[31m')\n")
    seen = aggverify.observe(str(file), "1/11", mode="token_mean", pool=shared_pool)
    assert (seen.weights, seen.conforms) == (None, False)
    assert "no result: rank 0: ValueError: <b>not today" in str(seen) and "\x1b" not in str(seen)
    assert "&lt;b&gt;not today" in seen._repr_html_()


@pytest.mark.thorough
def test_a_wrong_reducer_is_an_assertion_error(shared_pool: aggverify.Pool) -> None:
    few = partial(aggverify.check_reducer, profile="quick", max_examples=1, pool=shared_pool)
    with pytest.raises(AssertionError, match="AGV202") as raised:
        few(WRONG, exit_first=True)
    assert "  reproduce    aggverify replay" in str(raised.value)


@pytest.mark.exhaustive
def test_verdicts_are_those_of_the_document(shared_pool: aggverify.Pool) -> None:
    [right] = aggverify.verify(RIGHT, mode="token_mean", profile="quick", pool=shared_pool)
    assert (right.mode, right.fails) == ("token_mean", False)
    aggverify.check_reducer(RIGHT, mode="token_mean", profile="quick", pool=shared_pool)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"moed": "token_mean"}, "unknown option 'moed' (accepted: mode, "),
        ({"report": "json"}, "unknown option 'report'"),
        ({"max_examples": "many"}, "max_examples must be an integer, got 'many'"),
        ({"mode": 3}, "mode must be a text or a list of texts, got 3"),
    ],
)
def test_what_is_no_option_is_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as raised:
        aggverify.verify(RIGHT, **options)
    assert words in str(raised.value)


def test_a_stored_verdict_is_read(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(FORMATS["json"].render(RED))
    assert aggverify.load_verdict(path) == aggverify.load_verdict(str(path)) == RED
    path.write_text("{}")
    with pytest.raises(InputError):
        aggverify.load_verdict(path)
    with pytest.raises(InputError, match="no such file"):
        aggverify.load_verdict(tmp_path / "nowhere.json")


def test_a_missing_file_is_an_error(shared_pool: aggverify.Pool) -> None:
    with pytest.raises(AggverifyError, match=r"no such file: nowhere\.py"):
        aggverify.verify("nowhere.py", pool=shared_pool)


def test_objects_that_ranks_can_import_are_targets() -> None:
    for name, value in (("module_level", module_level), ("half", half), ("named", named)):
        assert target_text(value) == f"{__name__}:{name}"
    assert target_text("r.py:f") == "r.py:f"


def test_objects_that_ranks_cannot_import_are_refused() -> None:
    def inner() -> None: ...

    for value in (inner, lambda: None, partial(inner)):
        with pytest.raises(InputError, match="no name at the top of a module"):
            target_text(value)
    with pytest.raises(InputError, match="something callable, got 3"):
        target_text(3)  # type: ignore[arg-type]


def test_what_was_defined_in_no_file_says_so() -> None:
    code = (
        "from aggverify.api.targets import target_text\n"
        "def reduce(losses, batch): ...\n"
        "try: target_text(reduce)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "reduce was defined in no file (__main__)" in done.stdout, done.stderr
    assert "%%writefile" in done.stdout


def of_the_step(case: aggverify.Case) -> list[float]:
    """The token mean, whatever the layout."""
    tokens = case.step.num_unmasked
    return [m / tokens if tokens else 0.0 for s in case.step.samples for m in s.loss_mask]


def of_the_rank(case: aggverify.Case) -> list[float]:
    """The token mean, over as many data-parallel ranks again."""
    return [w / case.layout.dp_size for w in of_the_step(case)]


def test_weights_of_a_persons_own_are_held_to_the_layout_and_the_mode() -> None:
    aggverify.assert_invariant(of_the_step, mode="token_mean", max_examples=50)
    aggverify.assert_invariant(of_the_step, max_examples=50)
    with pytest.raises(AssertionError, match="1/4, expected 1/2") as raised:
        aggverify.assert_invariant(of_the_rank)
    assert "dp=2 cp=1 micro-batches=1" in str(raised.value)
    with pytest.raises(AssertionError, match=r"expected 1/\d+ \(sample_mean\)"):
        aggverify.assert_invariant(of_the_step, mode="sample_mean")
    with pytest.raises(InputError, match=r"an array of shape \(0,\)"):
        aggverify.assert_invariant(lambda case: [])


@hypothesis.settings(max_examples=20)
@hypothesis.given(strategies.cases())
def test_strategies_are_ordinary_ones(case: aggverify.Case) -> None:
    assert len(case.losses) == case.step.num_response_tokens
    assert sum(len(cell) for _, _, cell in case.layout.cells()) == len(case.step.samples)


@pytest.mark.thorough
def test_the_smallest_of_everything_is_one_token_on_one_rank() -> None:
    def smallest(
        strategy: SearchStrategy[T], wanted: Callable[[T], bool] = lambda drawn: True
    ) -> T:
        quiet = hypothesis.settings(database=None, derandomize=True, max_examples=500)
        return hypothesis.find(strategy, wanted, settings=quiet)

    one = aggverify.parse_step("1/1")
    assert replace(smallest(strategies.cases()), losses=(0.0,)).step.num_response_tokens == 1
    assert smallest(strategies.cases()).layout == aggverify.Layout.trivial(1)
    assert smallest(strategies.steps()).num_response_tokens == 1
    assert smallest(strategies.layouts(one)) == aggverify.Layout.trivial(1)
    split = smallest(strategies.cases(), lambda case: case.layout.cp_size > 1)
    assert (split.layout.world_size, len(split.step.samples)) == (2, 1)
    several = smallest(strategies.cases(), lambda case: case.layout.num_microbatches > 1)
    assert (several.layout.num_microbatches, several.layout.world_size) == (2, 1)
    assert [s.response_length for s in several.step.samples] == [1, 1]
    ragged = smallest(strategies.steps(), lambda s: len({x.num_unmasked for x in s.samples}) > 1)
    assert sum(sample.response_length for sample in ragged.samples) <= 3


def test_from_an_event_loop_and_from_threads_one_after_another(
    shared_pool: aggverify.Pool,
) -> None:
    async def inside() -> aggverify.Observation:
        return aggverify.observe(RIGHT, "1/11", mode="token_mean", pool=shared_pool)

    seen = [asyncio.run(inside())]

    def look() -> None:
        seen.append(aggverify.observe(RIGHT, "1/11", mode="token_mean", pool=shared_pool))

    for _ in range(2):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert [s.conforms for s in seen] == [True] * 3


@pytest.mark.thorough
def test_within_a_notebook(tmp_path: Path) -> None:
    """A running event loop, a main module of no file, and streams that are no files."""
    code = f"""
import asyncio, io, sys
class Stream(io.TextIOBase):
    def __init__(self): self.told = []
    def write(self, text): self.told.append(text); return len(text)
    def fileno(self): raise io.UnsupportedOperation("fileno")
async def cell():
    import aggverify
    seen = aggverify.observe({RIGHT!r}, "1/1 1/11", mode="token_mean")
    def reduce(losses, batch): ...
    try:
        aggverify.observe(reduce, "1/1")
    except aggverify.api.targets.InputError as error:
        print(error)
    print(seen.conforms, len(seen._repr_html_()) > 100)
kept, sys.stdout, sys.stderr = sys.stdout, Stream(), Stream()
asyncio.run(cell())
kept.write("".join(sys.stdout.told))
kept.write("".join(sys.stderr.told))
"""
    done = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, cwd=tmp_path
    )
    assert "cannot import it: assign it to one" in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("True True\n"), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_within_a_process_group() -> None:
    code = f"""
import tempfile, torch, torch.distributed as dist, aggverify
with tempfile.NamedTemporaryFile() as file:
    dist.init_process_group("gloo", init_method=f"file://{{file.name}}", rank=0, world_size=1)
    seen = aggverify.observe({RIGHT!r}, "1/1 1/11", {TWO_MICRO_BATCHES!r}, mode="token_mean")
    mine = torch.ones(1)
    dist.all_reduce(mine)
    print(seen.conforms, mine.item())
    dist.destroy_process_group()
"""
    code = code.replace("Layout(", "aggverify.Layout(")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True 1.0\n", done.stderr


@pytest.mark.exhaustive
def test_a_stored_case_fails_until_it_is_fixed(tmp_path: Path, shared_pool: aggverify.Pool) -> None:
    [verdict] = aggverify.verify(WRONG, pool=shared_pool, profile="quick", world=2, max_examples=2)
    case = next(finding.case for finding in verdict.findings)
    assert isinstance(case, dict)
    with pytest.raises(AssertionError, match=r"FAILED  case "):
        aggverify.check_case(case, pool=shared_pool)
    fixed = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"
    aggverify.check_case(case, str(fixed), pool=shared_pool)
    with pytest.raises(InputError, match="schema"):
        aggverify.check_case({})
