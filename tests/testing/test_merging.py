"""What several tests of one subject say together."""

from __future__ import annotations

from dataclasses import fields, replace

from aggverify.report.model import Tried
from aggverify.testing.merging import widest


def test_the_largest_of_everything_is_that_of_any_test() -> None:
    numbers = [field.name for field in fields(Tried) if field.name != "dtypes"]
    least = Tried(**dict.fromkeys(numbers, 1), dtypes={"float64": ("one rank",)})
    parts = [replace(least, **{name: n + 2}) for n, name in enumerate(numbers)]
    parts[0] = replace(parts[0], dtypes={"float64": ("cp",), "bfloat16": ("one rank",)})
    found = widest(parts)
    assert [getattr(found, name) for name in numbers] == list(range(2, len(numbers) + 2))
    assert found.dtypes == {"bfloat16": ("one rank",), "float64": ("cp", "one rank")}
