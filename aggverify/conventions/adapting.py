"""An adapter between a function of any signature and the native one, as the text of a file.

What a parameter stands for is read off its name (``parameters.py``); one whose name says nothing
is left to the person, in a line that fails until they have said it.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aggverify.conventions.base import Offer
from aggverify.conventions.parameters import CHOICES, Role, role

_LONGEST = 100
_TAKEN = ("torch", "losses", "batch", "loss", "lengths", "rows", "mask", "reduce")
"""Names that the adapter uses itself."""
_PADDED = "torch.nn.utils.rnn.pad_sequence({}, batch_first=True)"
_PREAMBLE = (
    "lengths = [len(mask) for mask in batch.local_masks]",
    f"rows = {_PADDED.format('losses.split(lengths)')}",
    f"mask = {_PADDED.format('batch.local_masks')}.bool()",
)

_EXPRESSIONS: Mapping[Role, str] = {
    Role.BATCH: "batch",
    Role.TOKENS: "batch.num_tokens",
    Role.SAMPLES: "batch.num_rollouts",
    Role.GROUPS: "batch.num_groups",
    Role.DIVISOR: "batch.divisor",
    Role.WORLD: "batch.dp_size * batch.cp_size",
    Role.MICRO_BATCHES: "batch.num_microbatches",
    Role.LENGTHS: "batch.response_lengths",
    Role.TOTALS: "batch.total_lengths",
    Role.ROLLOUT_TOKENS: "list(torch.tensor(batch.rollout_tokens, device=losses.device))",
    Role.AXIS: "None",
    Role.CP_RANK: "batch.cp_rank",
    Role.CP_SIZE: "batch.cp_size",
    Role.CP_GROUP: "batch.cp_group",
    Role.DP_GROUP: "batch.dp_group",
    Role.DP_RANK: "batch.dp_rank",
    Role.CLIP: "0.2",
    Role.COEFFICIENT: "0.0",
}
_SHOWN = frozenset(
    {Role.TOKENS, Role.SAMPLES, Role.GROUPS, Role.DIVISOR, Role.WORLD, Role.MICRO_BATCHES}
    | {Role.CLIP, Role.COEFFICIENT}
)
"""Roles whose guess is said beside the argument."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an adapter imports the function from: a module by name, or a file beside it."""

    module: str | None
    file: str | None = None
    """The file's name, where its module's cannot be imported by name."""


def adaptable(offer: Offer) -> int:
    """How well the parameters are understood: 0 for not at all, else higher is better."""
    adapter = _Adapter(offer)
    if offer.why_not or not adapter.plain or not (adapter.has_losses or adapter.is_factory):
        return 0
    known = sum(role(p) is not None for p in adapter.given)
    return max(1 + 2 * known - 2 * len(adapter.unknown), 1)


def adapted(offer: Offer, origin: Origin) -> str:
    """The text of a file that offers ``reduce(losses, batch)`` through the function."""
    return "\n".join(_Adapter(offer).lines(origin)) + "\n"


@dataclass(frozen=True)
class _Adapter:
    offer: Offer

    @property
    def plain(self) -> bool:
        """Whether every name can be written into a file as it is."""
        names = [*self.offer.name.split("."), *(p.strip("*") for p in self.offer.parameters)]
        return all(
            n.isidentifier() and not keyword.iskeyword(n) and len(n) <= _LONGEST for n in names
        )

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Parameters that are passed: those it needs, and those whose meaning is known."""
        named = (p for p in self.offer.parameters if not p.startswith("*"))
        needed = self.offer.required
        return tuple(
            p
            for p in named
            if p in needed or (role(p) not in (None, Role.AXIS) and self._says(role(p), p))
        )

    def _says(self, what: Role | None, parameter: str) -> bool:
        """Whether an optional parameter is worth passing."""
        return what is not Role.MODE or parameter in CHOICES

    @cached_property
    def roles(self) -> frozenset[Role | None]:
        return frozenset(map(role, self.given))

    @property
    def has_losses(self) -> bool:
        return bool(self.roles & {Role.LOSSES, Role.ADVANTAGES})

    @property
    def is_factory(self) -> bool:
        """Whether it gives a function of the losses, as slime's and miles' does."""
        return not self.has_losses and {Role.MASK, Role.LENGTHS} <= self.roles

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parameters whose names say nothing that one could pass."""
        chosen = (p for p in self.given if role(p) is None or self._no_choice(p))
        return tuple(chosen)

    def _no_choice(self, parameter: str) -> bool:
        return role(parameter) is Role.MODE and parameter not in CHOICES

    @property
    def mode(self) -> str | None:
        """The parameter that says the mode, if its values are known."""
        return next((p for p in self.given if p in CHOICES), None)

    @property
    def divided(self) -> bool:
        """Whether a fixed divisor is all it can have."""
        return Role.DIVISOR in self.roles and self.mode is None

    @property
    def in_rows(self) -> bool:
        """Whether losses and masks are padded rows, rather than one after the other."""
        return Role.MASK in self.roles and Role.LENGTHS not in self.roles

    @property
    def is_megatron(self) -> bool:
        first, *others = self.given or ("",)
        return role(first) is Role.MASK and any(p.startswith("output") for p in others)

    @property
    def called(self) -> str:
        """The name it has in the adapter."""
        head, dot, rest = self.offer.name.partition(".")
        return (f"own_{head}" if head in _TAKEN else head) + dot + rest

    def lines(self, origin: Origin) -> Iterator[str]:
        whose = origin.file or origin.module
        yield f'"""How a trainer calls {self.offer.name} of {whose}, as aggverify knows it."""'
        yield ""
        yield from self._imports(origin)
        yield ""
        yield from self._unknown_lines()
        yield from self._mode_lines()
        yield "AGGVERIFY = {"
        yield from (f"    {claim}," for claim in self._claims())
        yield "}"
        yield ""
        yield ""
        yield "def reduce(losses, batch):"
        yield from (f"    {line}" for line in self._call())

    def _imports(self, origin: Origin) -> Iterator[str]:
        head = self.offer.name.partition(".")[0]
        name = self.called.partition(".")[0]
        if origin.module is not None:
            yield "import torch"
            yield ""
            yield f"from {origin.module} import {head}" + ("" if head == name else f" as {name}")
            return
        yield "import importlib.util"
        yield "import pathlib"
        yield ""
        yield "import torch"
        yield ""
        yield f"_path = pathlib.Path(__file__).with_name({origin.file!r})"
        yield '_spec = importlib.util.spec_from_file_location("_adapted", _path)'
        yield "_module = importlib.util.module_from_spec(_spec)"
        yield "_spec.loader.exec_module(_module)"
        yield f"{name} = _module.{head}"

    def _unknown_lines(self) -> Iterator[str]:
        if not self.unknown:
            return
        names = " and ".join(p.upper() for p in self.unknown)
        yield f'raise NotImplementedError("say below what {names} is, then delete this line")'
        yield from (f"{p.upper()} = None" for p in self.unknown)

    def _mode_lines(self) -> Iterator[str]:
        if self.divided:
            yield "DIVISOR = 16.0  # yours"
        if self.mode is None:
            return
        first, *others = CHOICES[self.mode]
        yield f"{self.mode.upper()} = {_written(first)}"
        yield f"# or {', '.join(map(_written, others))}"
        divided = [n for n, mode in CHOICES[self.mode].items() if mode == "constant"]
        yield from (f'# ({_written(n)} with "divisor": 16.0, or yours, below)' for n in divided)

    def _claims(self) -> Iterator[str]:
        if self.mode is not None:
            said, values = self.mode.upper(), CHOICES[self.mode]
            if all(isinstance(value, bool) for value in values):
                yield f'"mode": "{values[True]}" if {said} else "{values[False]}"'
            else:
                yield f'"mode": {said}'
        elif self.divided:
            yield from ('"mode": "constant"', '"divisor": DIVISOR')
        elif self.is_megatron:
            yield '"mode": "token_mean"'
        if self.is_factory and self.mode == "calculate_per_token_loss":
            yield f'"engine": "megatron-token" if {self.mode.upper()} else "megatron-sample"'
        elif (engine := self._engine()) is not None:
            yield f'"engine": "{engine}"'
        if without := self._without():
            yield f'"without": [{", ".join(map(repr, without))}]'.replace("'", '"')

    def _engine(self) -> str | None:
        if self.is_factory:
            return "megatron-sample"
        if self.is_megatron:
            return "megatron-token"
        return "mean" if Role.WORLD in self.roles else None

    def _without(self) -> tuple[str, ...]:
        """What its inputs cannot show it: rows are whole samples, one a rollout."""
        if self.is_factory:
            several = () if Role.ROLLOUT_TOKENS in self.roles else ("fan-out",)
            return ("contiguous", "gathered", *several)
        if {Role.CP_SIZE, Role.CP_GROUP, Role.BATCH, Role.ROLLOUT_TOKENS} & self.roles:
            return ()
        return ("context-parallel", "fan-out")

    def _call(self) -> Iterator[str]:
        if self.in_rows:
            yield from _PREAMBLE
        several = self.is_megatron or Role.ADVANTAGES in self.roles
        head = f"loss = {self.called}(" if several else f"return {self.called}("
        if self.is_factory:
            head = f"return {self.called}("
        yield head
        yield from (f"    {argument}" for argument in self._arguments())
        yield ")(losses)" if self.is_factory else ")"
        if several:
            yield "return loss[0] if isinstance(loss, tuple) else loss"

    def _arguments(self) -> Iterator[str]:
        in_order = [p for p in self.offer.parameters if not p.startswith("*")]
        for n, parameter in enumerate(self.given):
            # By position as long as none before it is left out: it may be positional only.
            place = in_order[n] == parameter and parameter not in self.offer.keyword_only
            required = parameter in self.offer.required
            name = "" if place and required else f"{parameter}="
            what = role(parameter)
            said = f"  # {what.value}" if what in _SHOWN and what is not None else ""
            yield f"{name}{self._expression(parameter)},{said}"

    def _expression(self, parameter: str) -> str:
        what = role(parameter)
        if parameter in self.unknown or what is None or what is Role.MODE:
            return parameter.upper()
        if what is Role.DIVISOR and self.divided:
            return "DIVISOR"
        return _EXPRESSIONS.get(what) or self._tensor(what)

    def _tensor(self, what: Role) -> str:
        """Losses, masks, and what stands in for them."""
        if what is Role.MASK:
            return "mask" if self.in_rows else "batch.loss_masks"
        values = "rows" if self.in_rows else "losses"
        if what is Role.ADVANTAGES:
            return f"-{values}"
        return f"torch.zeros_like({values})" if what is Role.LOG_PROBS else values


def _written(value: str | bool) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def best(offers: Sequence[Offer]) -> Offer | None:
    """The offer whose parameters are understood best; the last of equals, as the one on top."""
    scored = [(adaptable(offer), n, offer) for n, offer in enumerate(offers)]
    found = max(scored, key=lambda entry: entry[:2], default=None)
    return found[2] if found is not None and found[0] else None
