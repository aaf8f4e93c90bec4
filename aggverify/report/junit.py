"""JUnit XML: one test case per check and mode."""

from __future__ import annotations

from xml.etree import ElementTree

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from aggverify.codes.state import State
from aggverify.model import CheckRecord, Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model


def render(document: Document) -> str:
    """Return the document as XML: failure, error or skipped as a CI service counts them."""
    document = harmless(document)  # control characters would be no XML at all
    root = JUnitXml("aggverify")
    if document.error:
        root.add_testsuite(_unjudged(document.error))
    for verdict in document.verdicts:
        root.add_testsuite(_suite(verdict))
    root.update_statistics()
    tree = ElementTree.fromstring(root.tostring())
    # Jenkins' schema counts what was skipped in the suites alone.
    tree.attrib.pop("skipped", None)
    raw: bytes = ElementTree.tostring(tree, encoding="utf-8", xml_declaration=True)
    return raw.decode() + "\n"


def _suite(verdict: Verdict) -> TestSuite:
    mode = verdict.mode_name
    suite = TestSuite(f"{verdict.target} · {verdict.function} · {mode}")
    for name in ("convention", "engine", "seed", "executed"):
        suite.add_property(name, str(getattr(verdict, name)))
    cases = [_case(verdict, check, mode) for check in verdict.checks]
    if verdict.incomplete:
        cut = TestCase("everything_planned_was_judged", "aggverify")
        cut.result = [Error(view_model.summary(verdict), "incomplete")]
        cases.append(cut)
    if not verdict.executed:
        nothing = TestCase("something_was_tested", "aggverify")
        nothing.result = [Error("no case was executed: there is no verdict", "untested")]
        cases.append(nothing)
    if verdict.engine_in_question:
        question = TestCase("engine_is_said", "aggverify")
        question.result = [Error(view_model.assumption(verdict), "question")]
        cases.append(question)
    suite.add_testcases(cases)
    return suite


def _case(verdict: Verdict, check: CheckRecord, mode: str) -> TestCase:
    case = TestCase(f"{check.name}[{mode}]", f"aggverify.{verdict.function}")
    case.result = list(filter(None, [_result(verdict, check)]))
    if check.state in (State.HAZARD, State.WAIVED):
        case.system_out = _findings(verdict, check)
    return case


def _result(verdict: Verdict, check: CheckRecord) -> Error | Failure | Skipped | None:
    if check.state in (State.OK, State.HAZARD, State.WAIVED):
        return None
    if check in verdict.not_judged and not verdict.fails:
        return Error(view_model.state(check), "untested")
    if check.state is not State.FAILED:
        return Skipped(view_model.state(check))
    found = _found(verdict, check)
    titles = "; ".join(f"{f.code} {f.title}" for f in found)
    failure = Failure(titles or "failed", " ".join(dict.fromkeys(f.code for f in found)))
    failure.text = _findings(verdict, check)
    return failure


def _found(verdict: Verdict, check: CheckRecord) -> list[FindingRecord]:
    return [finding for finding in verdict.findings if finding.check == check.name]


def _findings(verdict: Verdict, check: CheckRecord) -> str:
    return "\n\n".join(_failure_text(verdict, finding) for finding in _found(verdict, check))


def _failure_text(verdict: Verdict, finding: FindingRecord) -> str:
    lines = [f"Case {finding.id}: {finding.code} {finding.title}", *view_model.facts(finding)]
    lines += [f"{label}: {what}" for label, what in view_model.explanation(finding)]
    lines += [*view_model.trace(finding), f"Reproduce: {view_model.replay(finding)}"]
    return "\n".join([*lines, f"Explain: aggverify explain {finding.code}"])


def _unjudged(message: str) -> TestSuite:
    suite = TestSuite("aggverify")
    case = TestCase("could_be_judged", "aggverify")
    error = Error(message.partition("\n")[0], "error")
    error.text = message
    case.result = [error]
    suite.add_testcase(case)
    return suite
