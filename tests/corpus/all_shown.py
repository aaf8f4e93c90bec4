"""Every reducer an explanation may name, in one module for one template process."""

from __future__ import annotations

from tests.corpus import everything, showcase

for source in (everything, showcase):
    for name, value in vars(source).items():
        if callable(value):
            globals()[name] = value
