"""The values of an adapter's keys, each checked; errors name file and key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, get_args

from aggverify.conventions.adapter_convention import ModeValue, known_modes
from aggverify.conventions.adapter_misuses import are_texts, is_misuse, spoiling
from aggverify.conventions.base import LogRule, Misuse
from aggverify.conventions.features import UNUSUAL
from aggverify.conventions.log_forms import FORMS
from aggverify.conventions.partition_cases import Promises
from aggverify.conventions.rows import Kind, RowForm
from aggverify.conventions.run_against import RunAgainst
from aggverify.conventions.validated_arguments import Names
from aggverify.engines import engine
from aggverify.errors import InputError, shown, unknown
from aggverify.oracles import MODES

NAME = "ADAPTER"
VALIDATES, MERGES, DEALS = "validates", "merges_logs", "deals"
_TABLES = frozenset({"modes", "forbidden", "others"})
_FORMS = {
    "rows": ("flat", *get_args(Kind)),
    "side": ("right", "left"),
    "width": ("micro-batch", "step"),
}


class AdapterValues:
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
            self._known(key, "mode", found, known_modes())
        return found

    def run_against(self) -> tuple[RunAgainst, ...]:
        value = self._data.get("run_against", [])
        right = isinstance(value, list) and all(are_texts(v) and len(v) == 3 for v in value)
        what = "a list of [package or owner/repository, version or revision, date]"
        self._check("run_against", what, right)
        return tuple(RunAgainst(*one) for one in value)

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
            self._known("engine", "mode", modes, known_modes())
        return {name: tuple(modes) for name, modes in value.items()}

    def mode_values(self) -> dict[str, ModeValue] | None:
        value = self._data.get("modes")
        if value is None:
            return None
        plain = isinstance(value, dict) and all(
            isinstance(name, str | bool | None) for name in value.values()
        )
        self._check("modes", "a table of mode: what the function calls it", plain)
        self._known("modes", "mode", value, known_modes())
        return dict(value)

    def logs(self) -> LogRule:
        given = self._data.get("logs", "engine")
        known: Mapping[Any, LogRule] = {rule: rule for rule in get_args(LogRule)}
        self._check("logs", " or ".join(known), isinstance(given, str) and given in known)
        return known[given]

    def rows(self) -> RowForm | None:
        chosen = {}
        for key, accepted in _FORMS.items():
            chosen[key] = self._data.get(key, accepted[0])
            self._check(key, " or ".join(accepted), chosen[key] in accepted)
        if chosen["rows"] == "flat":
            return None
        return RowForm(chosen["rows"], chosen["side"], chosen["width"])

    def gradient_of(self) -> str:
        value = self.text("gradient_of", "")
        self._check(
            "gradient_of", "the name of call's second parameter", value in ("", *value.split())
        )
        if value and self.texts("terms"):
            raise self._wrong("gradient_of", "left out where there are terms, which are losses")
        return value

    def names(self) -> Names:
        """Return what a framework calls the arguments that choose how losses are aggregated."""
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
        right = bool(modes) and given.get("mode") != ""
        self._check(VALIDATES, "a table with what names the mode, and modes", right)
        return Names(**given | {"forbidden": {name: tuple(m) for name, m in forbidden.items()}})

    def forms(self) -> tuple[str, ...]:
        """Return the forms of logs that are merged."""
        found = self.texts(MERGES)
        self._known(MERGES, "form of logs", found, FORMS)
        self._check(MERGES, "one form of logs at least", bool(found))
        return found

    def promises(self) -> Promises:
        """Return what a dealer is for."""
        given, known = self._data[DEALS], {f.name for f in fields(Promises)}
        right = isinstance(given, dict) and given.keys() <= known
        self._check(DEALS, f"a table with keys of {', '.join(sorted(known))}", right)
        others = given.get("others", {})
        right = isinstance(others, dict) and are_texts([*others])
        right = right and isinstance(given.get("whole_groups", True), bool)
        self._check(DEALS, "whole_groups: True or False, and others: a table of arguments", right)
        return Promises(**given)

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
            self._known("misuses", "mode", own := tuple(one.get("modes", ())), known_modes())
            found.append(Misuse(one["call"], one["call"], spoiling(one), own))
        return tuple(found)
