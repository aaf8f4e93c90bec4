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

    A file that has the section is left as it is. A new file begins with the schema's address, for
    editors; for another file the line is printed.
    """
    import tomllib

    from aggverify.errors import InputError
    from aggverify.files import append
    from aggverify.scaffold.origin import schema_url

    text = file.read_text("utf-8") if file.exists() else ""
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is no TOML: {error}") from None
    if "aggverify" in known.get("tool", {}):
        raise InputError(f"{file} has [tool.aggverify] already")
    editors = f"#:schema {schema_url()}"
    begins = not text and "file:" not in editors  # a path of this machine is not committed
    before = f"{editors}\n\n" if begins else "\n" * bool(text)
    append(file, before + "\n".join(section()) + "\n")
    click.echo(f"written: [tool.aggverify] in {file}")
    if not begins:
        click.echo(f"for an editor's completion, its first line: {editors}")
    return 0


@config.command()
@click.option("--url", is_flag=True, help="The address of the whole file's schema, for editors.")
def schema(*, url: bool) -> None:
    """Print the JSON schema of the section."""
    from importlib.resources import files

    from aggverify.scaffold.origin import schema_url

    if url:
        click.echo(schema_url())
        return
    click.echo((files("aggverify") / "schema" / "settings.json").read_text("utf-8"), nl=False)


def section() -> Iterator[str]:
    """Yield the section's lines: each setting, commented out, below what it means."""
    from aggverify.cli import early
    from aggverify.execution.option_types import OptionType
    from aggverify.execution.options import BY_KEY, GROUPS, Where

    known = early.properties()
    yield "[tool.aggverify]"
    examples = {
        OptionType.TEXT: '"..."',
        OptionType.TEXTS: "[]",
        OptionType.NUMBER: "1.0",
        OptionType.INTEGER: "1",
        OptionType.READINGS: "{}",
        OptionType.FLAG: "true",
    }
    for heading, keys in GROUPS.items():
        options = [BY_KEY[key] for key in keys if BY_KEY[key].where is not Where.NOWHERE]
        for n, option in enumerate(options):
            if not n:
                yield from ("", f"# {heading}")
            yield f"# {option.help}"
            value = examples[option.kind]
            names, _ = early.accepted(known[option.key])
            if isinstance(option.default, str) and option.default:
                value = f'"{option.default}"'
            elif option.kind is OptionType.TEXT and names:
                value = f'"{names[0]}"'
            elif isinstance(option.default, int) and not isinstance(option.default, bool):
                value = str(option.default)
            yield f"# {option.key} = {value}"
