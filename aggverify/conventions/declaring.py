"""An adapter's file as the parent reads it: as text, never imported; errors name file and key."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from aggverify.conventions.adapter_functions import CALL, MERGE, loaded
from aggverify.conventions.base import FEATURES, UNUSUAL, LogRule, Misuse
from aggverify.conventions.declared import TAKES, Declared, Rows, Told
from aggverify.conventions.declared_misuses import are_texts, is_misuse, line, spoiling
from aggverify.conventions.log_forms import FORMS
from aggverify.conventions.log_reducer import LogReducer
from aggverify.conventions.validated_arguments import Names
from aggverify.conventions.validation import Validation
from aggverify.engines import engine
from aggverify.errors import InputError, shown, unknown
from aggverify.files import contents
from aggverify.oracles import LEGACY, MODES

MAX_BYTES = 1 << 18
NAME = "ADAPTER"
VALIDATES, MERGES = "validates", "merges_logs"


def declared(path: str, name: str | None = None) -> Declared | Validation | LogReducer:
    """The convention of an adapter's file, under the framework's name or the file's own; raises
    InputError for what cannot be read or used."""
    try:
        text = contents(Path(path), MAX_BYTES)
        if len(text) > MAX_BYTES:
            raise InputError(f"{path} is larger than an adapter can be ({MAX_BYTES} bytes)")
    except OSError as error:
        raise InputError(f"cannot read the adapter {path}: {error.strerror}") from None
    return _declared(text, path, name)


@lru_cache(maxsize=64)
def _declared(text: bytes, path: str, name: str | None) -> Declared | Validation | LogReducer:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"the adapter {path} is not Python: {error}") from None
    data = _data(tree, path)
    read, absolute = _Reading(path, data), str(Path(path).absolute())
    kind = next((kind for kind in _CALLED if kind in data), None)
    _check_call(tree, path, _CALLED[kind][0] if kind else (*TAKES, *read.texts("terms")))
    if kind is not None:
        how = _CALLED[kind][1](read, lambda: loaded(absolute))
        notes, title = (*how.notes, *read.texts("notes")), read.text("title", how.title)
        return replace(how, name=name or path, title=title, notes=notes)
    if read.logs() == MERGE:
        _check_call(tree, path, ("logs", "ctx"), MERGE)
    return Declared(
        name=name or path,
        path=absolute,
        title=read.text("title", Path(path).stem),
        usual_name=read.text("function", ""),
        recognised_by=read.texts("parameters"),
        named=read.flag("named"),
        engines=read.engines(),
        told=read.told(),
        only=read.texts("only"),
        never=read.reasons("never", _modes()),
        always_wrong=read.reasons("always_wrong", _modes()),
        whole_groups=read.reasons("whole_groups", _modes()),
        terms=read.texts("terms"),
        rows=read.rows(),
        not_claimed=read.reasons("not_claimed", FEATURES),
        unusual=read.unusual(),
        misuses=read.misuses(),
        notes=read.texts("notes"),
        logs=read.logs(),
    )


def _data(tree: ast.Module, path: str) -> Mapping[str, Any]:
    """What is assigned to ADAPTER, if that is plain data."""
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


def _check_call(tree: ast.Module, path: str, takes: Sequence[str], name: str = CALL) -> None:
    told = f"({', '.join(takes)})"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            if len(node.args.posonlyargs) + len(node.args.args) == len(takes):
                return
            raise InputError(f"{path}, line {node.lineno}: {name} takes {told}")
    raise InputError(f"{path} has no def {name}{told}")


_KEYS = (
    *(
        "title",
        "function",
        "parameters",
        "named",
        "engine",
        "modes",
        "only",
        "never",
        "always_wrong",
        "whole_groups",
    ),
    *("terms", "rows", "side", "width", "not_claimed", "unusual", "misuses", "notes", "logs"),
    *(VALIDATES, MERGES),
)


class _Reading:
    """The values of the keys, each checked."""

    def __init__(self, path: str, data: Mapping[str, Any]) -> None:
        self.path, self._data = path, data

    def _wrong(self, key: str, what: str) -> InputError:
        return InputError(
            f"{self.path}: {NAME}: {key} must be {what}, got {shown(self._data[key])}"
        )

    def _check(self, key: str, what: str, right: bool) -> None:
        if not right:
            raise self._wrong(key, what)

    def text(self, key: str, usual: str) -> str:
        value = self._data.get(key, usual)
        self._check(key, "a text", isinstance(value, str))
        return str(value)

    def flag(self, key: str) -> bool:
        value = self._data.get(key, False)
        self._check(key, "True or False", isinstance(value, bool))
        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key, [])
        self._check(key, "a list of texts", are_texts(value))
        found = tuple(value)
        if key == "only":
            self._known(key, "mode", found, _modes())
        return found

    def reasons(self, key: str, names: Collection[str]) -> dict[str, str]:
        value = self._data.get(key, {})
        right = isinstance(value, dict) and are_texts([*value, *value.values()])
        self._check(key, "a table of name: reason", right)
        self._known(key, key.replace("_", " "), value, names)
        return dict(value)

    def _known(self, key: str, what: str, given: Any, names: Collection[str]) -> None:
        for name in given:
            if name not in names:
                raise InputError(f"{self.path}: {NAME}: {key}: {unknown(what, name, names)}")

    def engines(self) -> dict[str, tuple[str, ...]]:
        given = self._data.get("engine", {})
        given = [given] if isinstance(given, str) else given
        value: Any = dict.fromkeys(given, ()) if are_texts(given) else given
        right = isinstance(value, dict) and all(map(are_texts, value.values()))
        self._check("engine", "an engine, a list of them or a table of engine: modes", right)
        for name, modes in value.items():
            if ":" in name:
                raise self._wrong("engine", "one that is known (yours: --engine module:OBJECT)")
            try:
                engine(name)
            except InputError as error:
                raise InputError(f"{self.path}: {NAME}: {error}") from None
            self._known("engine", "mode", modes, _modes())
        return {name: tuple(modes) for name, modes in value.items()}

    def told(self) -> dict[str, Told] | None:
        value = self._data.get("modes")
        if value is None:
            return None
        plain = isinstance(value, dict) and all(
            isinstance(said, str | bool | None) for said in value.values()
        )
        self._check("modes", "a table of mode: what the function calls it", plain)
        self._known("modes", "mode", value, _modes())
        return dict(value)

    def logs(self) -> LogRule:
        given = self._data.get("logs", "engine")
        known: Mapping[Any, LogRule] = {rule: rule for rule in get_args(LogRule)}
        self._check("logs", " or ".join(known), isinstance(given, str) and given in known)
        return known[given]

    def rows(self) -> Rows | None:
        chosen = {}
        for key, accepted in _FORMS.items():
            chosen[key] = self._data.get(key, accepted[0])
            self._check(key, " or ".join(accepted), chosen[key] in accepted)
        if chosen["rows"] == "flat":
            return None
        return Rows(chosen["side"], chosen["width"])

    def names(self) -> Names:
        """What a framework calls the arguments that say how losses are aggregated."""
        given, known = self._data[VALIDATES], {f.name for f in fields(Names)}
        right = isinstance(given, dict) and given.keys() <= known
        self._check(VALIDATES, f"a table with keys of {', '.join(sorted(known))}", right)
        tables = {key: given[key] for key in _TABLES & given.keys()}
        right = all(isinstance(table, dict) and are_texts([*table]) for table in tables.values())
        right = right and are_texts([given[key] for key in given.keys() - _TABLES])
        self._check(VALIDATES, f"a table of texts, {' and '.join(sorted(_TABLES))} tables", right)
        forbidden = tables.get("forbidden", {})
        self._check(VALIDATES, "lists of modes", all(map(are_texts, forbidden.values())))
        modes = [*tables.get("modes", MODES), *(m for own in forbidden.values() for m in own)]
        self._known(VALIDATES, "mode", modes, MODES)
        right = bool(modes) and bool(given.get("mode", NAME))
        self._check(VALIDATES, "a table with what says the mode, and modes", right)
        return Names(**given | {"forbidden": {name: tuple(m) for name, m in forbidden.items()}})

    def forms(self) -> tuple[str, ...]:
        """The forms of logs that are merged."""
        found = self.texts(MERGES)
        self._known(MERGES, "form of logs", found, FORMS)
        self._check(MERGES, "one form of logs at least", bool(found))
        return found

    def unusual(self) -> frozenset[str]:
        found = self.texts("unusual")
        self._known("unusual", "unusual feature", found, sorted(UNUSUAL))
        return frozenset(found)

    def misuses(self) -> tuple[Misuse, ...]:
        value = self._data.get("misuses", [])
        right = isinstance(value, list) and all(map(is_misuse, value))
        form = "a list of {call: sentence, with: {parameter: value}, nan: and short: parameters}"
        self._check("misuses", form, right)
        found = []
        for one in value:
            self._known("misuses", "mode", modes := tuple(one.get("modes", ())), _modes())
            found.append(Misuse(one["call"], one["call"], spoiling(one), modes, line(one)))
        return tuple(found)


def _modes() -> tuple[str, ...]:
    return (*MODES, LEGACY.name)


_Made = Callable[[_Reading, Callable[[], Any]], Validation | LogReducer]
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
}
"""Adapters of functions that reduce no losses: what their ``call`` takes, and what they are."""
_TABLES = frozenset({"modes", "forbidden", "others"})
_FORMS = {"rows": ("flat", "padded"), "side": ("right", "left"), "width": ("micro-batch", "step")}
