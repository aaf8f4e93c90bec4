"""``aggverify config``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click


@click.group()
def config() -> None:
    """Settings of a project for all its reducers: [tool.aggverify] in pyproject.toml."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), default="pyproject.toml")
def init(file: Path) -> int:
    """Add [tool.aggverify] to FILE (pyproject.toml), every setting as a comment with its meaning.

    A file that has the section is left as it is.
    """
    import tomllib

    from aggverify.errors import InputError
    from aggverify.files import append

    text = file.read_text("utf-8") if file.exists() else ""
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is no TOML: {error}") from None
    if "aggverify" in known.get("tool", {}):
        raise InputError(f"{file} has [tool.aggverify] already")
    append(file, "\n" * bool(text) + "\n".join(section()) + "\n")
    click.echo(f"written: [tool.aggverify] in {file}")
    return 0


@config.command()
def schema() -> None:
    """Print the JSON schema of the section, for editors."""
    from importlib.resources import files

    click.echo((files("aggverify") / "schema" / "settings.json").read_text("utf-8"), nl=False)


def section() -> Iterator[str]:
    """The section's lines: each setting, commented out, below what it means."""
    from aggverify.execution.kinds import Kind
    from aggverify.execution.options import BY_KEY, GROUPS, Where

    yield "[tool.aggverify]"
    examples = {
        Kind.TEXT: '"..."',
        Kind.TEXTS: "[]",
        Kind.NUMBER: "1.0",
        Kind.INTEGER: "1",
        Kind.READINGS: "{}",
        Kind.FLAG: "true",
    }
    for heading, keys in GROUPS.items():
        options = [BY_KEY[key] for key in keys if BY_KEY[key].where is not Where.NOWHERE]
        for n, option in enumerate(options):
            if not n:
                yield from ("", f"# {heading}")
            yield f"# {option.help}"
            value = examples[option.kind]
            if isinstance(option.default, str) and option.default:
                value = f'"{option.default}"'
            elif isinstance(option.default, int) and not isinstance(option.default, bool):
                value = str(option.default)
            yield f"# {option.key} = {value}"
