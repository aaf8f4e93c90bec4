"""What a candidate's module has that may be the reducer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Offer:
    """Something of the candidate's module that can be called and might be the reducer.

    ``name`` may be dotted, where the person has named an attribute of an object.
    """

    name: str
    parameters: tuple[str, ...]
    """In order; ``*args`` and ``**kwargs`` with their stars."""
    required: tuple[str, ...] = ()
    """Those without a default."""
    keyword_only: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of parameters that are annotated as Literal, the texts that they can be."""
    own: bool = True
    """Whether the file makes it, and does not only import it."""
    why_not: str = ""
    """Why a call of it can give no loss, as what follows its name; "" where it may."""
    owner: str = ""
    """Of a method, the class whose object has to be built; its parameters are without ``self``."""
    needs: tuple[str, ...] = ()
    """What that class cannot be built without."""

    @property
    def shown(self) -> str:
        """``name(parameters)``."""
        return f"{self.name}({', '.join(self.parameters)})"

    @property
    def unbound(self) -> Offer:
        """As it stands in its class."""
        if not self.owner:
            return self
        parameters, required = ("self", *self.parameters), ("self", *self.required)
        return replace(self, parameters=parameters, required=required)

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many positional arguments and no others."""
        if set(self.required) & set(self.keyword_only):
            return False
        named = (p for p in self.parameters if not p.startswith("*"))
        most = sum(p not in self.keyword_only for p in named)
        several = any(p.startswith("*") and not p.startswith("**") for p in self.parameters)
        return len(self.required) <= count and (count <= most or several)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Offer:
        """Rebuild an offer from ``dataclasses.asdict``, what is left out by its default."""
        lists = {"parameters", "required", "keyword_only", "needs"} & data.keys()
        values = {name: tuple(own) for name, own in data.get("values", {}).items()}
        return Offer(**{**data, **{name: tuple(data[name]) for name in lists}, "values": values})
