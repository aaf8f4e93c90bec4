"""Names, comments and docstrings of the code have no retired word either."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT
from tests.quality.words import PACKAGE, RETIRED

IN_CODE = ("say", "saying", "tell", "telling")
"""Retired there only: a message may ask people to say something."""
WORDS = {
    *IN_CODE,
    *(line.partition("->")[0] for line in RETIRED.read_text(encoding="utf-8").splitlines()),
}
PHRASES = re.compile(
    r"what becomes of|\bof its own(?= (?:that|and|for|to|in)\b|[,.:;)]|$)", re.IGNORECASE
)
_MAY_HAVE = re.compile("|".join((*WORDS, "becomes", "of its")), re.IGNORECASE)
KEPT = {
    ("aggverify/checks/base.py", "nothing_to_say"),
    ("aggverify/checks/base.py", "telling"),
    ("aggverify/codes/base.py", "says"),
    ("aggverify/diagnosis/clues.py", "says"),
    ("aggverify/generation/strategies.py", "telling_apart"),
}
"""Keys of TOML files, a strategy that others import, and old names of fields, which warn."""
_QUOTED = re.compile(r"``[^`]*``|`[^`\n]*`|\"[^\"\n]*\"")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Use = tuple[int, str]
"""A line, and what of it is retired."""


def uses(source: str) -> list[Use]:
    """Retired words of a file, by line."""
    if not _MAY_HAVE.search(source):
        return []  # parsing all files takes seconds
    tree = ast.parse(source)
    return sorted({*_names(tree), *_docstrings(tree), *_comments(source)})


def _names(tree: ast.AST) -> Iterator[Use]:
    """Names that are defined here: those of others' code are theirs."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _of_name(name, node.lineno)
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield from _of_name(name, node.lineno)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield from _of_name(name, node.lineno)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield from _of_name(name, node.lineno)
            case ast.MatchStar(name=str(name)):
                yield from _of_name(name, node.lineno)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    yield from _of_name(alias.asname or "", alias.lineno)


def _of_name(name: str, line: int) -> Iterator[Use]:
    if WORDS.intersection(part.lower() for part in _PART.findall(name)):
        yield line, name


def _docstrings(tree: ast.AST) -> Iterator[Use]:
    """Also those of fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for line in body if isinstance(body, list) else ():
            match line:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield from _of_prose(text, line.lineno)


def _comments(source: str) -> Iterator[Use]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _of_prose(token.string, token.start[0])


def _of_prose(text: str, line: int) -> Iterator[Use]:
    bare = " ".join(_QUOTED.sub("CODE", text).split())
    yield from ((line, word) for word in re.findall(r"[a-z]+", bare.lower()) if word in WORDS)
    yield from ((line, phrase[0]) for phrase in PHRASES.finditer(bare))


def _files() -> Iterator[tuple[str, Path]]:
    """The package and the oracles, which the package has as a link."""
    every = {path.resolve() for room in (PACKAGE, ROOT / "oracles") for path in room.rglob("*.py")}
    yield from ((path.relative_to(ROOT).as_posix(), path) for path in sorted(every))


@cache
def everywhere() -> list[tuple[str, int, str]]:
    """Every use in the code, with its file."""
    return [
        (name, line, what)
        for name, path in _files()
        for line, what in uses(path.read_text(encoding="utf-8"))
    ]


def test_no_retired_word_is_left_in_the_code() -> None:
    assert [use for use in everywhere() if (use[0], use[2]) not in KEPT] == []


def test_what_is_kept_is_still_there() -> None:
    assert {(name, what) for name, _, what in everywhere()} >= KEPT


def test_no_file_has_a_retired_word_in_its_name() -> None:
    assert [name for name, _ in _files() if WORDS.intersection(re.split(r"[/_.]", name))] == []


EXAMPLE = '''"""Whoever comes first has a process of its own."""
from theirs import told as NotTold
class Said: ...
def tell(beside, *, says_it=1):  # nobody reads ``told``
    self.all_alike = file.tell()
    """What "said" is, and `tells` are; what becomes of
    it."""
    return foretold, untold, f"{telling}"
'''


def test_retired_words_are_noticed_wherever_they_are() -> None:
    assert uses(EXAMPLE) == [
        (1, "of its own"),
        (1, "whoever"),
        (2, "NotTold"),
        (3, "Said"),
        (4, "beside"),
        (4, "nobody"),
        (4, "says_it"),
        (4, "tell"),
        (5, "all_alike"),
        (6, "what becomes of"),
    ]
