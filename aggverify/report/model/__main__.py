"""``schema/verdict.json``, printed."""

from aggverify.report.model import schema

print(schema(), end="")
