"""What the file of an adapter declares: what it claims, and what was only guessed."""

from __future__ import annotations

from typing import Any

from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import DIVISOR
from aggverify.conventions.parameters import COUNTS, Role, role


def claims(adapter: Adapter) -> dict[str, Any]:
    """Return what the adapter's file declares, as plain data."""
    found: dict[str, Any] = {}
    if (mode := _mode(adapter)) is not None:
        found["mode"] = mode
    if mode == "constant":
        found["divisor"] = DIVISOR if adapter.known.divisor is None else adapter.known.divisor
    if (engine := adapter.known.engine or _engine(adapter)) is not None:
        found["engine"] = engine
    if without := _without(adapter):
        found["without"] = list(without)
    return found


def assumed(adapter: Adapter) -> dict[str, str]:
    """Return what is known from names alone, or calls alone: what a person has to confirm."""
    found = {}
    for p in adapter.given:
        what = role(p)
        if p in adapter.known.found:
            found[p] = f"{adapter.expression(p)}, found by calling it"
        elif p not in adapter.known.arguments and what in COUNTS and what is not None:
            other = adapter.known.instead.get(p)
            found[p] = what.value + (f", not {other}" if other else "")
    if "mode" in adapter.known.found and adapter.known.mode is not None:
        found["mode"] = f"{adapter.known.mode}, found by calling it"
    return found


def _mode(adapter: Adapter) -> str | None:
    if adapter.mode is not None:
        return adapter.values_of(adapter.mode)[adapter.choices[0]]
    if adapter.divided:
        return "constant"
    return adapter.known.mode or ("token_mean" if adapter.is_megatron else None)


def _engine(adapter: Adapter) -> str | None:
    if adapter.is_factory:
        per_token = adapter.mode == "calculate_per_token_loss" and adapter.choices[0] is True
        return "megatron-token" if per_token else "megatron-sample"
    if adapter.is_megatron:
        return "megatron-token"
    return "mean" if Role.WORLD in adapter.roles else None


def _without(adapter: Adapter) -> tuple[str, ...]:
    """Return features that its inputs cannot show: with none of these roles, rows are rollouts."""
    if adapter.is_factory:
        several = () if Role.ROLLOUT_TOKENS in adapter.roles else ("fan-out",)
        return ("contiguous", "gathered", *several)
    whole = {Role.CP_SIZE, Role.CP_GROUP, Role.BATCH, Role.PLACE, Role.ROLLOUT_TOKENS}
    return () if whole & adapter.roles else ("context-parallel", "fan-out")
