"""torch.compile in ranks: what it is given runs eagerly, unless compiled ranks are asked for.

Compiling takes seconds in every fresh rank, and its import as long again. Eagerly, as torch itself
does when dynamo is disabled, the same code gives the same result at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import FunctionType
from typing import Any

from aggverify.world.candidate_errors import Breach


class NoCompiler(Breach):
    """torch.compile does not work here, whatever it is given."""

    name = "no compiler"


class Compiling:
    """Takes the place of ``torch.compile`` in this process; made before the candidate is loaded."""

    def __init__(self, *, for_real: bool) -> None:
        import torch

        self.for_real, self.used = for_real, False
        # One process for each rank is enough, and only then can it be waited for.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        if not for_real:
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
        self._compile = torch.compile

        @functools.wraps(torch.compile)
        def compile_(model: Any = None, **options: Any) -> Any:
            return self._given(model, **options)

        torch.compile = compile_  # type: ignore[assignment]

    def _given(self, model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda given: self._given(given, **options)
        compiled = self._compile(model, **options) if self.for_real else model
        if isinstance(model, FunctionType):
            return self._noted(compiled)
        self.used = True  # a module: when it is called is not seen
        return compiled

    def _noted(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, noting that it is called.

        A file may import compiled code that is none of the reducer's.
        """

        @functools.wraps(compiled)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.used = True
            return compiled(*args, **kwargs)

        return called

    def blame(self) -> None:
        """Raise NoCompiler if not even the simplest function can be compiled here."""
        if not self.for_real:
            return
        import torch

        try:
            self._compile(_double)(torch.ones(2, dtype=torch.float64, device="cpu"))
        except Exception as error:
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            raise NoCompiler(f"torch.compile does not work here: {message:.300}") from None


def _double(x: Any) -> Any:
    return x + x
