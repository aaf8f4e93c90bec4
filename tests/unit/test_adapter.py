"""The adapter that is printed where nothing can be called: for signatures as frameworks have them,
it is a file that gives the mode's scalar; what it cannot know it asks for in a line that fails."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from aggverify import oracles
from aggverify.conventions import MicroBatch, Offer
from aggverify.conventions.adapter_claims import claims
from aggverify.conventions.adapter_draft import Adapter, adaptable, best
from aggverify.conventions.adapter_forms import CallForms
from aggverify.conventions.adapter_text import ImportSource, adapted
from aggverify.conventions.parameters import CHOICES, Role, role
from aggverify.steps.notation import parse_step
from aggverify.trainer.callables import offers
from aggverify.trainer.loading import load
from tests.adapted import SIGNATURES, VERL, Signature

STEP = parse_step("2/1 3/101; 5/11 1/1011 7/00")
LOSSES = [float(n + 1) for n in range(STEP.num_response_tokens)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def loaded(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    sys.modules.pop(name, None)
    return load({"path": str(path)})


def adapter_of(folder: Path, source: str, origin: ImportSource | None = None) -> str:
    found = best([o for o in offers(loaded(folder, "theirs", source)) if o.own])
    assert found is not None
    return adapted(found, origin or ImportSource("theirs", "theirs.py"))


def micro_batch(divisor: float | None) -> MicroBatch:
    """The whole step on one rank."""
    masks = [torch.tensor(list(s.loss_mask)) for s in STEP.samples]
    totals = {g: sum(STEP.samples[i].num_unmasked for i in m) for g, m in STEP.groups.items()}
    tokens = [s.num_unmasked for s in STEP.samples]
    return MicroBatch(
        loss_masks=masks,
        original_masks=masks,
        local_masks=masks,
        response_lengths=[s.response_length for s in STEP.samples],
        total_lengths=[s.prompt_length + s.response_length for s in STEP.samples],
        rollout_ids=[s.rollout for s in STEP.samples],
        group_ids=[s.group for s in STEP.samples],
        rollout_tokens=tokens,
        group_tokens=[totals[s.group] for s in STEP.samples],
        step_rollout_tokens=tokens,
        num_rollouts=STEP.num_rollouts,
        num_groups=STEP.num_groups,
        num_tokens=sum(tokens),
        num_microbatches=1,
        divisor=divisor,
        dp_rank=0,
        dp_size=1,
        cp_rank=0,
        cp_size=1,
        gathered=False,
        dp_group=None,
        cp_group=None,
    )


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.name)
def test_it_gives_the_mode_s_scalar(folder: Path, signature: Signature) -> None:
    (folder / "zigzag.py").write_text(
        "def local_masks(t, l, masks): return masks\n"
        "def masked_sums(x, masks):\n"
        "    parts = x.split([len(m) for m in masks])\n"
        "    return [(p * m).sum() for p, m in zip(parts, masks)]\n"
    )
    text = adapter_of(folder, signature.source)
    made = loaded(folder, "made", text)
    claims = made.AGGVERIFY
    assert claims.get("engine", "") == signature.engine
    if "mode" in claims:
        assert oracles.translated(claims["mode"]).mode == signature.mode
    divisor = claims.get("divisor")
    losses = torch.tensor(LOSSES, dtype=torch.float64, requires_grad=True)
    out = made.reduce(losses, micro_batch(divisor))
    loss = float((out[0] if isinstance(out, tuple) else out).detach())
    engine = {"megatron-sample": STEP.num_rollouts, "megatron-token": micro_batch(None).num_tokens}
    exact = oracles.scalar(signature.mode, STEP, LOSSES, divisor=divisor)
    assert loss == pytest.approx(float(exact) * engine.get(signature.engine, 1), rel=1e-12)
    assert max(map(len, text.splitlines())) <= 100


def test_what_its_name_does_not_say_is_asked_for(folder: Path) -> None:
    source = "def loss_fn(losses, mask, config, flavour, scale=1.0):\n    return losses.sum()\n"
    text = adapter_of(folder, source)
    with pytest.raises(NotImplementedError, match="say below what CONFIG and FLAVOUR is"):
        loaded(folder, "made", text)
    said = "".join(line for line in text.splitlines(True) if not line.startswith("raise "))
    made = loaded(folder, "made", said)
    assert (made.CONFIG, made.FLAVOUR) == (None, None)
    assert float(made.reduce(torch.ones(len(LOSSES)), micro_batch(None))) == len(LOSSES)
    assert "scale" not in text


@pytest.mark.parametrize("name", ["reduce", "torch", "losses", "rows"])
def test_a_name_that_the_adapter_uses_itself_is_another_there(folder: Path, name: str) -> None:
    made = loaded(folder, "made", adapter_of(folder, f"def {name}(loss, mask): return loss.sum()"))
    assert float(made.reduce(torch.ones(len(LOSSES)), micro_batch(None))) == len(LOSSES)


def test_a_file_that_cannot_be_imported_by_name_is_by_its_place(folder: Path) -> None:
    (folder / "it's-odd\".py").write_text("def f(loss, mask): return loss.sum()\n")
    text = adapter_of(folder, "def f(loss, mask): ...", ImportSource(None, "it's-odd\".py"))
    assert float(
        loaded(folder, "made", text).reduce(torch.ones(len(LOSSES)), micro_batch(None))
    ) == len(LOSSES)


@pytest.mark.parametrize(
    "hostile",
    [
        Offer("f\nimport os", ("loss", "mask"), ("loss", "mask")),
        Offer("f", ("loss", "mask): import os\ndef g(x"), ("loss",)),
        Offer("class", ("loss", "mask"), ("loss", "mask")),
        Offer("f" * 101, ("loss", "mask"), ("loss", "mask")),
        Offer("f", ("*args", "**kwargs")),
        Offer("f", ("x1", "x2"), ("x1", "x2")),
        Offer("f", ("loss", "mask"), why_not="is a class"),
    ],
)
def test_what_cannot_be_written_down_gets_none(hostile: Offer) -> None:
    assert adaptable(hostile) == 0
    assert best([hostile]) is None


def test_the_modes_are_those_of_a_literal(folder: Path) -> None:
    source = """
from typing import Literal, Optional

def agg(losses, mask, n_samples,
        reduction: Optional[Literal["seq-mean-token-mean", "other"]] = None):
    ...
"""
    [offer] = [o for o in offers(loaded(folder, "literal", source)) if o.own]
    assert offer.values == {"reduction": ("seq-mean-token-mean", "other")}
    adapter = Adapter(offer)
    assert (adapter.mode, adapter.choices) == ("reduction", ("seq-mean-token-mean",))
    assert claims(adapter)["mode"] == "sample_mean"


def test_packed_losses_go_with_where_they_end() -> None:
    named = ("losses", "loss_mask", "cu_seqlens")
    adapter = Adapter(Offer("f", named, named))
    assert adapter.shape is CallForms.FLAT and not adapter.unknown
    assert adapter.expression("cu_seqlens") == "batch.cu_seqlens"


def test_the_function_that_is_understood_best_is_taken(folder: Path) -> None:
    helpers = """
def masked_sum(values, mask, axis=None): ...
def clip(x, low, high): ...
"""
    assert "return agg_loss(" in adapter_of(folder, helpers + VERL.source)
    assert "return agg_loss(" in adapter_of(folder, VERL.source + helpers)


def test_every_name_has_one_role_and_every_choice_a_mode() -> None:
    assert role("Loss_Mask") is Role.MASK
    assert role("nothing") is None
    assert role("current_token_losses") is role("per_token_loss") is Role.LOSSES
    assert role("sampling_per_token_logps") is role("current_logprobs") is Role.LOG_PROBS
    assert role("cu_seqlens") is Role.ENDS
    for parameter, choices in CHOICES.items():
        assert role(parameter) is Role.MODE
        assert set(choices.values()) <= set(oracles.MODES)
