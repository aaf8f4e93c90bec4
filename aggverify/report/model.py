"""Moved: see `aggverify.model`."""

from aggverify.deprecated_names import renamed_in

__getattr__ = renamed_in(__name__, {"Document": "aggverify.model:Document"})
