"""Renamed: see `aggverify.execution.option_types`."""

from aggverify.deprecated_names import renamed_in

__getattr__ = renamed_in(__name__, {"Kind": "aggverify.execution.option_types:OptionType"})
