"""``schema/verdict.json``, printed."""

from aggverify.model import schema

print(schema(), end="")
