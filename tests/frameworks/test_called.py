"""Functions that reduce no losses: validators of arguments, and what merges logs, call by call."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aggverify.api.running import observe
from aggverify.checks.calls import CHECK
from aggverify.checks.calls import cases as cases_of
from aggverify.conventions import Offer, Site, by_shape, by_shape_or_name, convention
from aggverify.conventions.base import ADAPTED
from aggverify.conventions.calls import PerCallConvention
from aggverify.conventions.partition_cases import PartitionCase
from aggverify.conventions.partition_judging import mistake
from aggverify.conventions.sample_partitioner import SamplePartitioner
from aggverify.conventions.validated_arguments import Names
from aggverify.conventions.validation import Validation
from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.plan import plan
from aggverify.trainer.blame import NotKnown
from aggverify.trainer.contract import outcomes
from aggverify.world import Pool
from tests.choosing import LATER
from tests.conftest import EXAMPLES, Cli
from tests.frameworks import validators

SITE: Any = SimpleNamespace(case=SimpleNamespace(layout=SimpleNamespace(world_size=1)))
Function = Callable[..., Any]


def example(name: str) -> Function:
    found: Function = runpy.run_path(str(EXAMPLES / "validation" / f"{name}.py"))["validate_args"]
    return found


def found(function: Function, how: PerCallConvention, site: Site = SITE) -> set[str]:
    """The calls that it mistakes."""
    return {name for name, wrong in outcomes(function, how, site) if wrong}


def test_a_right_validator_is_right_and_a_wrong_one_is_told_what_it_accepts() -> None:
    assert found(example("aggregation"), Validation()) == set()
    accepted = found(example("broken/falsy_divisor"), Validation())
    assert {
        "loss_aggregation_divisor 0 with loss_aggregation 'constant'",
        "loss_aggregation_divisor nan with loss_aggregation 'constant'",
        "loss_aggregation_divisor None with loss_aggregation 'constant'",
        "loss_aggregation_divisor 4.0 with loss_aggregation 'sample_mean'",
        "calculate_per_token_loss with loss_aggregation 'constant'",
        "global_batch_size 9 of n_samples_per_prompt 4, no whole groups",
        "loss_aggregation_divisor 0, set after arguments were validated, and validated again",
    } <= accepted
    negative = "loss_aggregation_divisor -4.0 with loss_aggregation 'constant'"
    assert negative not in accepted


def test_slime_s_and_miles_whole_validators_through_the_adapters_that_ship() -> None:
    slime, miles = (
        convention(str(EXAMPLES / "validation" / f"{n}.py")) for n in ("slime", "miles")
    )
    assert isinstance(slime, Validation) and isinstance(miles, Validation)
    assert found(validators.miles_validate_args, miles) == set()
    assert found(validators.slime_validate_args, slime) == {
        "loss_aggregation 'token-avg', which does not exist",
        "loss_aggregation_divisor inf with loss_aggregation 'constant'",
        "loss_aggregation_divisor 0 in the file of custom_config_path",
    }
    with pytest.raises(NotKnown, match=r'radixark/miles .*it reads `not_yet` .*"others"'):
        found(validators.with_a_new_argument, miles)


def test_what_refuses_everything_is_told_what_is_right() -> None:
    def refuses(args: Any) -> None:
        raise SystemExit(2)  # as a parser's error does

    wrong = found(refuses, Validation())
    assert wrong == {call.name for call in Validation().calls if not call.refused}


OWN = Names(
    mode="agg",
    modes={"token_mean": "tok", "constant": "const"},
    divisor="div",
    per_token="",
    overrides="config",
    forbidden={"entropy": ("constant",)},
    others={"seed": 1},
)


def own(args: Any) -> None:
    if args.config:
        text = Path(args.config).read_text()
        args.div = float(text.partition(":")[2].strip(" }"))
    if args.agg not in ("tok", "const") or args.seed != 1:
        raise ValueError(args)
    if (args.agg == "const") != (args.div is not None and 0 < args.div < float("inf")):
        raise ValueError(args.div)
    if args.agg != "const" and args.div is not None:
        raise ValueError(args.div)
    if args.entropy and args.agg == "const":
        raise ValueError(args.entropy)


def test_names_are_the_framework_s() -> None:
    how = Validation(names=OWN)
    assert found(own, how) == set()
    said = {call.name for call in how.calls if call.refused}
    assert {"div 0 in the file of config", "entropy 0.01 with agg 'const'"} <= said
    assert not any("group" in name or "per_token" in name for name in said)

    def before_the_file(args: Any) -> None:
        own(SimpleNamespace(**{**vars(args), "config": None}))

    assert found(before_the_file, how) == {"div 0 in the file of config"}


def test_whole_groups_go_to_every_data_parallel_rank() -> None:
    """What the fork of miles refuses: half a prompt group on each of two ranks."""
    how = Validation(names=Names(shards="data_parallel_size"))
    right = example("aggregation")

    def whole(args: Any) -> None:
        right(args)
        each, left = divmod(args.global_batch_size, args.data_parallel_size)
        if args.loss_aggregation == "prompt_mean" and (left or each % args.n_samples_per_prompt):
            raise ValueError(f"{each} rollouts a rank are no whole groups")

    def never_two(args: Any) -> None:
        whole(args)
        assert args.data_parallel_size == 1

    dealt = "of n_samples_per_prompt 4 to data_parallel_size 2"
    assert found(whole, how) == set()
    assert found(right, how) == {f"global_batch_size 12 {dealt}"}
    assert found(never_two, how) == {f"global_batch_size 16 {dealt}"}


ADAPTER = """
ADAPTER = {
    "title": "Ours",
    "validates": {"mode": "agg", "divisor": "div", "forbidden": {"kl": ["constant"]}},
}


def call(validate, args):
    return validate(args, strict=True)
"""


def test_an_adapter_has_a_table_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    path.write_text(ADAPTER)
    how = convention(str(path))
    assert isinstance(how, Validation)
    assert (how.name, how.title, how.names.divisor) == (str(path), "Ours", "div")
    assert how.names.forbidden == {"kl": ("constant",)}
    strict: list[bool] = []

    def validate(args: Any, strict: bool, told: list[bool] = strict) -> None:
        told.append(strict)

    how.calls[0].make(validate, SITE)
    assert strict == [True]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{'mood': 'agg'}", "a table with keys of"),
        ("{'mode': 3}", "a table of texts"),
        ("{'modes': {'token_men': 1}}", "token_mean"),
        ("{'forbidden': {'kl': 'constant'}}", "lists of modes"),
        ("{'mode': ''}", "what names the mode"),
    ],
)
def test_a_table_that_cannot_be_is_refused(tmp_path: Path, said: str, told: str) -> None:
    path = tmp_path / "ours.py"
    path.write_text(f"ADAPTER = {{'validates': {said}}}\n\ndef call(validate, args): ...\n")
    with pytest.raises(InputError, match=told):
        convention(str(path))


def test_nothing_else_is_run_and_nobody_takes_a_reducer_for_one() -> None:
    subject = Subject.of(Claim("v.py", "validate_args", "validation", "sum"))
    assert [entry.check.name for entry in plan(subject).entries] == [CHECK.name]
    reducer = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
    assert CHECK.name not in {entry.check.name for entry in plan(reducer).entries}
    assert not any(isinstance(how, PerCallConvention) for how in by_shape())


@pytest.mark.covers(convention="log-reducer")
def test_logs_are_merged(shared_pool: Pool) -> None:
    module = "tests.frameworks.log_reducers"
    with opened(shared_pool, {"module": module}) as template:
        ranks = Executor(template)
        for name, codes in {
            "means": [None, None],
            "one_count": ["AGV505", "AGV505"],
            "truncated": ["AGV504", None],
        }.items():
            subject = Subject.of(Claim(f"{module}:{name}", name, "log-reducer", "sum"))
            cases = list(cases_of(subject))
            assert [case.layout.world_size for case in cases] == [1, 4]
            done = ranks.run(subject, [CHECK.variants(case)[0] for case in cases])
            found = [CHECK.judge(subject, [ran]) for ran in done]
            assert [finding and finding.code for finding in found] == codes
            if name == "truncated":
                signs = found[0].signs if found[0] else ()
                mixed = {"accepts legacy: a normalised log after legacy ones"}
                mixed |= {"accepts normalised: a legacy log after normalised ones"}
                assert mixed <= {*signs}


@pytest.mark.covers(convention="dealer")
@pytest.mark.parametrize(
    ("name", "some", "none_of"),
    [
        ("broken/strided", {"4 groups of 2 for 2 ranks", "3 groups for 2 ranks"}, "1 ranks"),
        ("broken/drops_the_rest", {"3 groups for 2 ranks", "2 groups for 4 ranks"}, "balanced"),
        ("broken/over_budget", {"micro-batches of at most 14 tokens, for 2 ranks"}, "groups"),
    ],
)
def test_what_deals_prompt_groups(name: str, some: set[str], none_of: str) -> None:
    right, wrong = (
        runpy.run_path(str(EXAMPLES / "dealer" / f"{file}.py"))["split_train_data_by_dp"]
        for file in ("whole_groups", name)
    )
    assert found(right, SamplePartitioner()) == set()
    mistaken = found(wrong, SamplePartitioner())
    assert some <= mistaken and not [call for call in mistaken if none_of in call]


def test_an_adapter_says_what_a_dealer_promises(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    call = "\n\ndef call(deal, args, data, dp_size): return deal(data)\n"
    path.write_text(f"ADAPTER = {{'deals': {{'whole_groups': False, 'others': {{'x': 1}}}}}}{call}")
    how = convention(str(path))
    assert isinstance(how, SamplePartitioner) and not any(call.refused for call in how.calls)
    deal = next(how.promises.deals())
    assert (args := deal.args(how.promises)).x == 1 and args.loss_aggregation == "sample_mean"
    path.write_text(f"ADAPTER = {{'deals': {{'groups': 2}}}}{call}")
    with pytest.raises(InputError, match="deals must be a table with keys of others, whole_groups"):
        convention(str(path))


@pytest.mark.parametrize(
    ("out", "wrong"),
    [
        ([[0, 1], [2, 3]], None),
        ([{"partition": [2, 3]}, (0, 1)], None),
        ([[0, 1]], "returns 1 shards, and there are 2 ranks"),
        ("no", "a shard is no list of sample indices, nor a mapping with one as its partition"),
        ([[0, 1], [2]], "sample 3 is on no rank"),
        ([[0, 1], [2, 3, 1]], "sample 1 is dealt 2 times, to ranks [0, 1]"),
        ([[0, 1], [2, 3, 4]], "sample 4 does not exist"),
        ([[0, 1, 2, 3], []], "ranks have [4, 0] samples: they train as many each"),
        ([[0, 2], [1, 3]], "group 0 is split: rank 0 has 1 of its samples"),
        (
            [{"partition": [0, 1], "micro_batch_indices": [[0]]}, [2, 3]],
            "rank 0: the micro-batches have the positions [0] of 2 samples",
        ),
        (
            [
                {"partition": [0, 1], "micro_batch_indices": [[0, 1]]},
                {"partition": [2, 3], "micro_batch_indices": [[0], [1]]},
            ],
            "ranks have [1, 2] micro-batches: as many each",
        ),
    ],
)
def test_what_is_wrong_with_a_deal(out: Any, wrong: str | None) -> None:
    assert mistake(PartitionCase("", (0, 0, 1, 1), 2), out, whole_groups=True) == wrong


def test_an_adapter_says_which_logs_there_are(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    call = "\n\ndef call(merge, logs, ctx): return merge(logs)\n"
    path.write_text(f"ADAPTER = {{'merges_logs': ['legacy']}}{call}")
    how = convention(str(path))
    assert isinstance(how, PerCallConvention)
    assert {call.name.split(":")[0] for call in how.calls} == {"legacy logs", "legacy"}
    assert not any("normalised" in call.name for call in how.calls)
    path.write_text(f"ADAPTER = {{'merges_logs': ['new']}}{call}")
    with pytest.raises(InputError, match="legacy, normalised"):
        convention(str(path))


SLIME = EXAMPLES / "log_reducer"


@pytest.mark.parametrize(
    ("adapter", "name", "text"),
    [
        ("slime_per_rollout", "reduce_train_step_metrics", "PASS  every call is refused"),
        LATER("slime_per_token", "reduce_train_step_metrics", "PASS  every call is refused"),
        LATER("slime_per_rollout", "over_tokens", "AGV505"),
        LATER("slime_per_token", "over_tokens", "AGV505"),
        LATER("slime_per_token", "by_position", "compare every log's keys"),
    ],
)
def test_slime_s_function_is_called_by_keyword_in_both_of_its_modes(
    cli: Cli, adapter: str, name: str, text: str
) -> None:
    target, how = f"tests.frameworks.log_reducers:{name}", SLIME / f"{adapter}.py"
    ran = cli("check", target, "--convention", "log-reducer", "--adapter", how)
    assert ran.code == (not text.startswith("PASS")), ran
    assert text in ran.out
    other = cli("check", target, "--convention", "validation", "--adapter", how)
    assert other.code == 2 and "give it or --convention" in other.err, other


@pytest.mark.parametrize(
    ("name", "how"),
    [("args", "validation"), ("logs, ctx", "log-reducer"), ("args, data, dp_size", "dealer")],
)
def test_who_may_be_one_is_told_how_to_say_so(name: str, how: str) -> None:
    offer = Offer("f", tuple(name.split(", ")))
    assert [found.name for found in by_shape_or_name(offer)] == [how]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "how", "code"),
    [
        LATER("validation/aggregation.py", "validation", ""),
        ("validation/broken/falsy_divisor.py", "validation", "AGV504"),
        ("log_reducer/means.py", "log-reducer", ""),
        LATER("log_reducer/broken/one_count.py", "log-reducer", "AGV505"),
        LATER("log_reducer/broken/truncated.py", "log-reducer", "AGV504"),
        LATER("dealer/whole_groups.py", "dealer", ""),
        ("dealer/broken/strided.py", "dealer", "AGV505"),
    ],
)
def test_the_whole_check_and_a_replay(
    cli: Cli, tmp_path: Path, file: str, how: str, code: str
) -> None:
    ran = cli("check", EXAMPLES / file, "--convention", how, "--report", "json,html,md,junit")
    assert ran.code == bool(code), ran
    assert (f"  {code}  " if code else "PASS  every call is refused or answered") in ran.out
    assert (" · engine " not in ran.out and "! " not in ran.out) or code
    if code:
        [case] = (tmp_path / ".aggverify" / "cases").glob("*.json")
        assert cli("replay", case, EXAMPLES / file).code == 1
        right = {"validation": "aggregation", "log-reducer": "means", "dealer": "whole_groups"}
        folder = EXAMPLES / Path(file).parts[0]
        assert cli("replay", case, folder / f"{right[how]}.py").code == 0


def test_what_runs_steps_says_that_it_reduces_none(
    cli: Cli, tmp_path: Path, shared_pool: Pool
) -> None:
    file = EXAMPLES / "validation" / "aggregation.py"
    told = "reduces no losses (a validator of arguments)"
    ran = cli("snapshot", "record", file, "--convention", "validation", "--force")
    assert (ran.code, ran.out) == (2, "") and told in ran.err, ran
    with pytest.raises(InputError, match=re.escape(told)):
        observe(f"{file}", "2/11", convention="validation", pool=shared_pool)


@pytest.mark.thorough
def test_an_adapter_s_validator_is_replayed_through_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(ADAPTER)
    (tmp_path / "v.py").write_text("def check_all(args, strict):\n    assert args.agg\n")
    said = ("v.py:check_all", "--adapter", "ours.py")
    ran = cli("check", *said)
    assert ran.code == 1 and "accepted: div 0 with agg 'constant'" in ran.out, ran
    [case] = (tmp_path / ".aggverify" / "cases").glob("*.json")
    assert cli("replay", case, *said).code == 1
    assert ADAPTED in case.read_text()
