"""An adapter's file as the parent reads it: as text, never imported; errors name file and key."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from aggverify.conventions.adapter_convention import AdapterConvention, known_modes, takes
from aggverify.conventions.adapter_functions import CALL, MERGE, loaded
from aggverify.conventions.adapter_values import (
    DEALS,
    MERGES,
    NAME,
    VALIDATES,
    AdapterValues,
)
from aggverify.conventions.features import FEATURES
from aggverify.conventions.log_reducer import LogReducer
from aggverify.conventions.sample_partitioner import SamplePartitioner
from aggverify.conventions.validation import Validation
from aggverify.errors import InputError, shown, unknown
from aggverify.files import contents, parsed

MAX_BYTES = 1 << 18
Adapted = AdapterConvention | Validation | LogReducer | SamplePartitioner


def declared(path: str, name: str | None = None) -> Adapted:
    """Return the convention of an adapter's file, under the framework's name or the file's own.

    Raises InputError for what cannot be read or used.
    """
    try:
        text = contents(Path(path), MAX_BYTES)
        if len(text) > MAX_BYTES:
            raise InputError(f"{path} is larger than an adapter can be ({MAX_BYTES} bytes)")
    except OSError as error:
        raise InputError(f"cannot read the adapter {path}: {error.strerror}") from None
    return _declared(text, path, name)


@lru_cache(maxsize=64)
def _declared(text: bytes, path: str, name: str | None) -> Adapted:
    try:
        tree = parsed(text)
    except SyntaxError as error:
        raise InputError(f"the adapter {path} is not Python: {error}") from None
    data = _data(tree, path)
    read, absolute = AdapterValues(path, data), str(Path(path).absolute())
    kind = next((kind for kind in _CALLED if kind in data), None)
    gradient_of = read.gradient_of()
    parameters = _CALLED[kind][0] if kind else takes(gradient_of, read.texts("terms"))
    _check_call(tree, path, parameters, second=gradient_of)
    if kind is not None:
        how = _CALLED[kind][1](read, lambda: loaded(absolute))
        notes, title = (*how.notes, *read.texts("notes")), read.text("title", how.title)
        how = replace(how, name=name or path, title=title, notes=notes)
        # Its call passes what it likes, by name too.
        return replace(how, run_against=read.run_against(), parameters=())
    if read.logs() == MERGE:
        _check_call(tree, path, ("logs", "ctx"), MERGE)
    return AdapterConvention(
        name=name or path,
        path=absolute,
        title=read.text("title", Path(path).stem),
        usual_name=read.text("function", ""),
        recognised_by=read.texts("parameters"),
        of_a_class=read.flag("of_a_class"),
        named=read.flag("named"),
        engines=read.engines(),
        mode_values=read.mode_values(),
        only=read.texts("only"),
        never=read.reasons("never", known_modes()),
        always_wrong=read.reasons("always_wrong", known_modes()),
        whole_groups=read.reasons("whole_groups", known_modes()),
        terms=read.texts("terms"),
        gradient_of=gradient_of,
        rows=read.rows(),
        not_claimed=read.reasons("not_claimed", FEATURES),
        named_by=read.reasons("told_by", FEATURES),
        unusual=read.unusual(),
        misuses=read.misuses(),
        notes=read.texts("notes"),
        fixed=read.texts("fixed"),
        unread=read.text("unread", ""),
        run_against=read.run_against(),
        logs=read.logs(),
    )


def _data(tree: ast.Module, path: str) -> Mapping[str, Any]:
    """Return what is assigned to ADAPTER, if that is plain data."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(_is_name(t) for t in node.targets):
            value: ast.expr | None = node.value
        elif isinstance(node, ast.AnnAssign) and _is_name(node.target):
            value = node.value
        else:
            continue
        try:
            found = None if value is None else ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise InputError(
                f"{path}, line {node.lineno}: {NAME} must be plain data, written out: it is read, "
                f"not run"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
            raise InputError(f"{path}: {NAME} must be a dict of texts, got {shown(found)}")
        if others := found.keys() - _KEYS:
            raise InputError(f"{path}: {NAME}: {unknown('key', min(others), _KEYS)}")
        return found
    raise InputError(f"{path} has no {NAME} = {{...}}: it is no adapter")


def _is_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == NAME


def _check_call(
    tree: ast.Module, path: str, takes: Sequence[str], name: str = CALL, second: str = ""
) -> None:
    """Raise InputError unless the file has such a function; ``second``: a name that must be so."""
    tuple_text = f"({', '.join(takes)})"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            own = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            if len(own) == len(takes) and second in ("", own[1]):
                return
            raise InputError(f"{path}, line {node.lineno}: {name} takes {tuple_text}")
    raise InputError(f"{path} has no def {name}{tuple_text}")


_KEYS = (
    *(
        "title",
        "function",
        "parameters",
        "of_a_class",
        "named",
        "engine",
        "modes",
        "only",
        "never",
        "always_wrong",
        "whole_groups",
    ),
    *("terms", "gradient_of", "rows", "side", "width", "not_claimed", "unusual", "misuses"),
    *("notes", "fixed", "unread", "logs", "told_by", "run_against"),
    *(VALIDATES, MERGES, DEALS),
)


_Made = Callable[[AdapterValues, Callable[[], Any]], Validation | LogReducer | SamplePartitioner]
_CALLED: Mapping[str, tuple[tuple[str, ...], _Made]] = {
    VALIDATES: (
        ("function", "args"),
        lambda read, call: Validation(
            names=read.names(), validate=call, path=str(Path(read.path).absolute())
        ),
    ),
    MERGES: (
        ("function", "logs", "ctx"),
        lambda read, call: LogReducer(forms=read.forms(), reduce=call),
    ),
    DEALS: (
        ("function", "args", "data", "dp_size"),
        lambda read, call: SamplePartitioner(promises=read.promises(), deal=call),
    ),
}
"""Adapters of functions that reduce no losses: what their ``call`` takes, and what they are."""
