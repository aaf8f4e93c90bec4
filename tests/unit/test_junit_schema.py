"""JUnit XML as Jenkins' xUnit plugin and GitLab read it: held to the plugin's own junit-10.xsd,
as pytest's source distribution carries it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from filelock import FileLock

from aggverify.errors import InputError
from aggverify.model import Document
from aggverify.report.document import stopped
from aggverify.report.formats import FORMATS
from tests import verdicts
from tests.unit.test_reports_hostile import HOSTILE

pytestmark = pytest.mark.network
CARRIES, INSIDE = "pytest==8.4.2", "testing/example_scripts/junit-10.xsd"


@pytest.fixture(scope="module")
def schema(pytestconfig: pytest.Config) -> Path:
    """The file; downloaded once, shared by all workers."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("junit")
    found = folder / Path(INSIDE).name
    with FileLock(folder / "lock"):
        if not found.is_file():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-binary=:all:", "--dest", str(folder), CARRIES]
            subprocess.run(command, check=True)
            [archive] = folder.glob("*.tar.gz")
            with tarfile.open(archive) as files:
                [name] = (name for name in files.getnames() if name.endswith(INSIDE))
                content = files.extractfile(name)
                assert content is not None
                found.write_bytes(content.read())
    return found


@pytest.mark.parametrize(
    "document",
    [
        verdicts.written(verdicts.verdict(HOSTILE, reports=2)),
        verdicts.written(verdicts.verdict(reports=0), verdicts.verdict(executed=0)),
        stopped((), InputError(f"no reducer {HOSTILE}")),
        stopped((), KeyboardInterrupt()),
    ],
    ids=["hostile", "two", "error", "interrupted"],
)
def test_every_service_can_read_it(document: Document, schema: Path) -> None:
    import xmlschema  # nothing else needs it

    known = xmlschema.XMLSchema(schema)
    root = ElementTree.fromstring(FORMATS["junit"].render(document))
    known.validate(root)
    cases = root.findall(".//testcase")
    assert int(root.get("tests", -1)) == len(cases)
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(names) == len(set(names)) or len(document.verdicts) > 1
    cases[0].set("status", "wrong")
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        known.validate(root)
