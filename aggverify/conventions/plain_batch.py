"""A micro-batch as the script of a finding makes it, by torch alone: what a reducer usually asks
for, also once it is mended, and what this one asks for beside that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from textwrap import dedent

from aggverify.conventions.base import PlainSite

_WIDTH = 84
_PADDED = """\
def padded(x, side="right", width="micro-batch"):
    parts = x.split([int(seen.sum()) for seen in shown]) if torch.is_tensor(x) else x
    most = max(len(s[1]) for s in samples) if width == "step" else max(map(len, parts))
    by = [(0, most - len(part))[:: 1 if side == "right" else -1] for part in parts]
    return torch.stack([torch.nn.functional.pad(*each) for each in zip(parts, by)])"""
_SELDOM = frozenset(
    {
        *("mask", "group_rollouts", "index", "cp_kind", "mode", "per_token", "dp_cp_group"),
        *("num_samples", "num_valid_samples", "rank_samples", "rank_tokens", "step_width"),
        "rank_width",
        *("window_masks", "step_masks", "local_positions", "padded", "rows"),
    }
)
"""What few reducers ask for."""
_LOCAL = "[mask[seen] for mask, seen in zip(masks, shown)]"


def batch_of(site: PlainSite, *, told: bool = False, rows: bool = False) -> str:
    """The lines that make ``batch``. ``told``: it has the mode; ``rows``: it is asked for them."""
    more = frozenset({"rows"} if rows else ()) | frozenset({"mode"} if told else ())
    asked = asked_of_batch(site.texts) if site.texts is not None else None
    left_out = frozenset() if asked is None else _SELDOM - asked - more
    given = (*_fields(site), ("mode", "MODE" if told else "None"))
    values = [f"{n}={value}" for n, value in given if n not in left_out]
    lines, room = [""], _WIDTH
    for value in ["**counts", *values]:
        if len(lines[-1]) + len(value) > room:
            lines.append("")
        lines[-1] += f"{value}, "
    inner = "\n".join(f"    {line.rstrip()}" for line in lines)
    made = f"batch = SimpleNamespace(\n{inner.rstrip(',')})"
    return made if {"padded", "rows"} <= left_out else f"{_PADDED}\n{made}"


def asked_of_batch(texts: Sequence[str]) -> frozenset[str] | None:
    """What functions ask of their ``batch``; None where one of them hands it on as a whole."""
    found: set[str] = set()
    for text in texts:
        try:
            tree = ast.parse(dedent(text))
        except (SyntaxError, ValueError, RecursionError):
            return None
        inside = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        direct = [node for node in inside if _is_batch(node.value)]
        if len(direct) < sum(map(_is_batch, ast.walk(tree))):
            return None
        found |= {node.attr for node in direct}
    return frozenset(found)


def _is_batch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "batch"


def _fields(site: PlainSite) -> Iterator[tuple[str, str]]:
    """Every attribute of ``MicroBatch`` but the step's own counts, by its expression."""
    counted, layout = site.counted, site.case.layout
    gathered = layout.cp_size > 1 and layout.cp_kind == "gathered"
    yield "loss_masks", "masks"
    yield "original_masks", f"[torch.tensor(s[{site.original}]) for s in group]"
    yield "local_masks", _LOCAL
    yield "mask", f"torch.cat({_LOCAL})"
    yield "response_lengths", "[len(s[1]) for s in group]"
    yield "total_lengths", "[s[0] + len(s[1]) for s in group]"
    yield "rollout_ids", "[s[2] for s in group]"
    yield "rollout_tokens", "[s[3] for s in group]"
    yield "group_ids", "[s[4] for s in group]"
    yield "group_tokens", "[s[5] for s in group]"
    yield "group_rollouts", "[len({r[2] for r in samples if r[4] == s[4]}) for s in group]"
    yield "num_microbatches", "len(cells[d])"
    yield "index", "cells[d].index(cell)"
    yield "divisor", repr(site.divisor)
    yield "gathered", str(gathered)
    yield "cp_kind", repr(layout.cp_kind)
    yield "per_token", str(site.per_token)
    yield from (("dp_rank", "d"), ("dp_size", "DP"), ("cp_rank", "c"), ("cp_size", "CP"))
    yield from (("dp_group", "dp_group"), ("cp_group", "cp_group"))
    yield "dp_cp_group", "dist.group.WORLD"
    yield "num_samples", "len(samples)"
    yield "num_valid_samples", f"sum(any(s[{counted}]) for s in samples)"
    yield "rank_samples", "sum(map(len, cells[d]))"
    yield "rank_tokens", f"sum(sum(samples[i][{counted}]) for k in cells[d] for i in k)"
    yield "rank_width", "max(samples[i][0] + len(samples[i][1]) for k in cells[d] for i in k)"
    yield "step_width", "max(len(s[1]) for s in samples)"
    yield "window_masks", "[[torch.tensor(samples[i][1]) for i in k] for k in cells[d]]"
    yield "step_masks", "[torch.tensor(s[1]) for s in samples]"
    yield "local_positions", "[seen.nonzero().flatten() for seen in shown]"
    yield "padded", "padded"
    yield "rows", f"lambda x, **how: (padded(x, **how), padded({_LOCAL}, **how))"
