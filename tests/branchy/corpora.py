"""The reducers that nothing was tuned to, folder by folder in the order of writing.

Each folder was written without a look at the generator, and at what the ones before it had shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from tests.branchy import untuned
from tests.branchy.eighth import registry as eighth
from tests.branchy.eleventh import registry as eleventh
from tests.branchy.fresh import registry as fresh
from tests.branchy.later import registry as later
from tests.branchy.latest import registry as latest
from tests.branchy.ninth import registry as ninth
from tests.branchy.seventh import registry as seventh
from tests.branchy.sixth import registry as sixth
from tests.branchy.tenth import registry as tenth
from tests.branchy.thirteenth import registry as thirteenth
from tests.branchy.twelfth import registry as twelfth
from tests.branchy.unread import registry as unread
from tests.branchy.unread.base import Unread
from tests.branchy.untuned import Untuned


@dataclass(frozen=True, slots=True)
class Corpus:
    """Reducers that were written together."""

    name: str
    wrong: Sequence[Untuned]
    right: Sequence[Untuned]


def _corpus(name: str, entries: ModuleType) -> Corpus:
    return Corpus(name, entries.WRONG, entries.RIGHT)


CORPORA = (
    _corpus("untuned", untuned),
    _corpus("unread", unread),
    _corpus("fresh", fresh),
    _corpus("latest", latest),
    _corpus("later", later),
    _corpus("sixth", sixth),
    _corpus("seventh", seventh),
    _corpus("eighth", eighth),
    _corpus("ninth", ninth),
    _corpus("tenth", tenth),
    _corpus("eleventh", eleventh),
    _corpus("twelfth", twelfth),
    _corpus("thirteenth", thirteenth),
)
WRONG = tuple(entry for corpus in CORPORA for entry in corpus.wrong)
WITNESSED_WRONG = tuple(entry for entry in WRONG if isinstance(entry, Unread))
"""With a step on which each is wrong; those of the first folder have none."""
WITNESSED_RIGHT = tuple(e for corpus in CORPORA for e in corpus.right if isinstance(e, Unread))
