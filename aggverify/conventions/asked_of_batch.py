"""What functions ask of their ``batch``, read off their code."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from textwrap import dedent

from aggverify.files import parsed


def asked_of_batch(
    texts: Sequence[str] | None, *, handed_to: Set[str] = frozenset()
) -> frozenset[str] | None:
    """What functions ask of their ``batch``, and of whatever else; None where one of them hands it
    on to something that is neither one of them nor of these names."""
    try:
        trees = [parsed(dedent(text)) for text in texts or ()]
    except SyntaxError:
        return None
    nodes = [node for tree in trees for node in ast.walk(tree)]
    known = {f.name for f in nodes if isinstance(f, ast.FunctionDef) and _takes_a_batch(f)}
    read = [node for node in nodes if isinstance(node, ast.Attribute)]
    told = sum(_is_batch(node.value) for node in read)
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        if _name(call.func) in known | handed_to:
            told += sum(map(_is_batch, (*call.args, *(word.value for word in call.keywords))))
    everywhere = sum(map(_is_batch, nodes))
    return frozenset(node.attr for node in read) if told == everywhere > 0 else None


def _name(called: ast.expr) -> str:
    """A function's, or a method's."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _takes_a_batch(function: ast.FunctionDef) -> bool:
    return any(word.arg == "batch" for word in function.args.args)


def _is_batch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "batch" and isinstance(node.ctx, ast.Load)
