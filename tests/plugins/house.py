"""A framework's own convention, engine, mode, check and report, as it would ship them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from aggverify.checks import Check, Finding
from aggverify.checks.spaces import alone
from aggverify.codes import Code, Explanation
from aggverify.conventions import Output
from aggverify.engines.mean import MEAN
from aggverify.oracles import Mode
from aggverify.oracles.modes.formula import loss_sum
from aggverify.report.formats import Format


@dataclass(frozen=True)
class House:
    """``house_loss(row, keep, house_tokens, ranks)``, once for every sample."""

    name: str = "house"
    title: str = "House, a loss for each row"
    usual_name: str = "house_loss"
    signature: str = "def house_loss(row, keep, house_tokens, ranks) -> Tensor"
    returns: str = "a floating-point tensor of one element"
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: dict = field(
        default_factory=lambda: dict.fromkeys(
            ("contiguous", "context-parallel", "gathered", "rejection", "validates-arguments"),
            "House has whole rows",
        )
    )
    notes: tuple = ()
    parameters: tuple = ()
    misuses: tuple = ()

    def modes(self, offer):
        return ("house_half",)

    def recognises(self, offer):
        return offer.parameters == ("row", "keep", "house_tokens", "ranks")

    def default_engine(self, mode):
        return "house-mean"

    def why_not(self, mode, engine, claimed):
        return None if engine == "house-mean" else "House trains as house-mean does"

    def bind(self, function, module, site):
        import torch

        samples = site.case.step.samples
        tokens = sum(site.counted(n) for n in range(len(samples)))
        layout = site.case.layout

        def call(k, losses):
            members = layout.micro_batches[site.dp_rank][k]
            masks = [torch.tensor(list(samples[i].loss_mask), dtype=torch.bool) for i in members]
            rows = losses.split([len(mask) for mask in masks])
            parts = [
                function(r, m, tokens, layout.world_size) for r, m in zip(rows, masks, strict=True)
            ]
            return Output(sum(parts))

        return call


def _weights(step, policy, divisor):
    tokens = sum(s.num_original for s in step.samples)
    return [Fraction(1, 2 * max(tokens, 1))] * len(step.samples)


def _scalar(rows, policy, divisor):
    return loss_sum(rows) / (2 * max(sum(row.tokens for row in rows), 1))


CODE = Code(
    "AGV950",
    "A weight is above one",
    "low",
    explanation=Explanation("House has no use for it.", "Divide by something."),
)


def _judge(subject, executions):
    [ran] = executions
    if ran.weights is None or not (ran.weights > 1).any():
        return None
    return Finding(CODE.code, CHECK.name, "a weight is above 1", ran.case, subject.mode)


CONVENTION = House()
ENGINE = replace(MEAN, name="house-mean", title="as House does: mean over ranks")
HALF = Mode("house_half", "sum l*m / (2 * M_step)", "House", _weights, _scalar)
CHECK = Check(
    name="house_weights_are_small",
    title="no weight is above one",
    space=alone,
    judge=_judge,
    project=lambda case: case.trivial,
    max_examples=4,
    codes=(CODE,),
)
REPORT = Format("House's line", "house.txt", "house_pkg")


def render(document):
    said = {True: "bad", False: "good"}
    return " ".join(f"{v.convention}:{v.mode}:{said[v.fails]}" for v in document.verdicts)
