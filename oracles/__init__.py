"""The truth: exact step scalars and token weights of every aggregation mode.

Import it as ``aggverify.oracles``. With a checkout on ``sys.path`` this folder can also be found as
``oracles``, where it would hide another package of that name: an import of ``oracles`` is passed on
to the next one, if there is any.
"""

from __future__ import annotations

if __name__ == "oracles":
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    from pathlib import Path

    _here = Path(__file__).resolve()
    _elsewhere = [p for p in sys.path if Path(p, "oracles", "__init__.py").resolve() != _here]
    for _finder in sys.meta_path:
        _spec = _finder.find_spec(__name__, _elsewhere if _finder is PathFinder else None)
        if _spec and _spec.loader and (not _spec.origin or Path(_spec.origin).resolve() != _here):
            break
    else:
        raise ModuleNotFoundError(
            "No module named 'oracles'; it is aggverify.oracles", name="oracles"
        )
    # An import statement returns what sys.modules holds once this module has run.
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
else:
    from .errors import OracleError
    from .evaluate import scalar, scalars, weights
    from .modes import FAMILIES, LEGACY, MODES, NAMES, PAIRED, Mode, family, mode, translated
    from .objectives import OBJECTIVES, Objective, objective, value_and_weights
    from .policy import DEFAULT_POLICY, Policy
    from .second_road import scalar_mp
    from .step import Sample, Step

    __all__ = [
        "DEFAULT_POLICY",
        "FAMILIES",
        "LEGACY",
        "MODES",
        "NAMES",
        "OBJECTIVES",
        "PAIRED",
        "Mode",
        "Objective",
        "OracleError",
        "Policy",
        "Sample",
        "Step",
        "family",
        "mode",
        "objective",
        "scalar",
        "scalar_mp",
        "scalars",
        "translated",
        "value_and_weights",
        "weights",
    ]
