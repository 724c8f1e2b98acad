"""JUnit XML of a run, in the dialect that Jenkins, GitLab and GitHub actions read: one testcase per item, earlier
attempts as `rerunFailure` or `flakyFailure` (as Maven's surefire spells them), device and worker as properties.
"""

import re
import time
from xml.etree import ElementTree

from ondol.fleet import known
from ondol.fleet.messages import NodeOut
from ondol.fleet.record import MUTED, AttemptRecord, ItemRecord, RunRecord
from ondol.fleet.verdict import Verdict

#: XML 1.0 cannot hold these at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SKIPS = {Verdict.SKIPPED.value, Verdict.XFAILED.value, Verdict.NOT_RUN.value}
_ERRORS = {
    verdict.value
    for verdict in (Verdict.ERROR, Verdict.CRASHED, Verdict.TIMEOUT, Verdict.CACHE_FAULT, Verdict.DEVICE_LOST)
}


def clean(text: str) -> str:
    return _FORBIDDEN.sub(lambda match: f"#x{ord(match[0]):02X}", text)


def render(record: RunRecord) -> str:
    counts = record.counts()
    seconds = sum(a.seconds for item in record.items for a in item.attempts)
    totals = {
        "tests": str(len(record.items) + len(record.fatal) + len(record.expired)),
        "failures": str(counts.get("failed", 0)),
        "errors": str(sum(counts.get(name, 0) for name in _ERRORS) + len(record.fatal) + len(record.expired)),
        "skipped": str(sum(counts.get(name, 0) for name in (*_SKIPS, MUTED))),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "ondol", **totals})
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.first))
    suite = ElementTree.SubElement(root, "testsuite", {"name": "ondol", "timestamp": stamp, **totals})
    properties = ElementTree.SubElement(suite, "properties")
    _property(properties, "mode", record.run.mode)
    _property(properties, "complete", "true" if record.complete else "false")
    for quarantine in record.quarantines:
        _property(properties, f"quarantine.{quarantine.device}", quarantine.why)
    for node in (node for node in record.nodes if isinstance(node, NodeOut)):
        _property(properties, f"node.{node.node}", node.why)
    for item in record.items:
        _case(suite, item)
    found = [("collection", fatal.file, fatal.why) for fatal in record.fatal]
    for kind, file, why in [*found, *(("known", known.FILE, why) for why in record.expired)]:
        name = {"classname": "", "name": clean(file), "file": clean(file), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", name)
        ElementTree.SubElement(case, "error", {"type": kind, "message": clean(why)})
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _property(parent: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(parent, "property", {"name": name, "value": clean(value)})


def names(nodeid: str) -> tuple[str, str, str]:
    """Class name, name and file, as plain pytest's JUnit has them."""
    path, _, rest = nodeid.partition("::")
    # Brackets of a parametrised test may hold `::` themselves.
    head, bracket, parameters = rest.partition("[")
    *classes, name = head.split("::")
    module = path.removesuffix(".py").replace("/", ".")
    return clean(".".join([module, *classes])), clean(name + bracket + parameters), clean(path)


def _case(suite: ElementTree.Element, item: ItemRecord) -> None:
    classname, name, path = names(item.nodeid)
    seconds = sum(a.seconds for a in item.attempts)
    attributes = {"classname": classname, "name": name, "file": path, "time": f"{seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    properties = ElementTree.SubElement(case, "properties")
    _property(properties, "verdict", item.verdict)
    _property(properties, "attempts", str(len(item.attempts)))
    if item.attempts:
        _property(properties, "device", item.attempts[-1].device or "cpu")
        _property(properties, "worker", item.attempts[-1].worker)
    if item.flaky:
        _property(properties, "flaky", item.why)
    for kind, what in (pair for a in item.attempts for pair in a.dirt):
        _property(properties, f"dirt.{kind}", what)
    _result(case, item)
    for attempt in item.attempts[:-1]:
        _attempt(case, "flakyFailure" if item.flaky else "rerunFailure", attempt)
    if item.attempts:
        _output(case, item.attempts[-1])


def _result(case: ElementTree.Element, item: ItemRecord) -> None:
    if item.muted:
        message = clean(f"{item.verdict}, which is known ({item.known}): {item.why}")
        ElementTree.SubElement(case, "skipped", {"type": MUTED, "message": message})
    elif item.verdict in _SKIPS:
        ElementTree.SubElement(case, "skipped", {"type": item.verdict, "message": clean(item.why)})
    elif item.verdict == Verdict.FAILED.value or item.verdict in _ERRORS:
        tag = "failure" if item.verdict == Verdict.FAILED.value else "error"
        element = ElementTree.SubElement(case, tag, {"type": item.verdict, "message": clean(item.why)})
        element.text = clean(_details(item.attempts[-1])) if item.attempts else clean(item.why)


def _attempt(case: ElementTree.Element, tag: str, attempt: AttemptRecord) -> None:
    message = f"attempt {attempt.number} on {attempt.device or 'cpu'}: {attempt.reason}"
    element = ElementTree.SubElement(case, tag, {"type": attempt.outcome, "message": clean(message)})
    ElementTree.SubElement(element, "stackTrace").text = clean(_details(attempt))


def _details(attempt: AttemptRecord) -> str:
    return "\n".join(part for part in (attempt.reason, attempt.text, attempt.dump) if part)


def _output(case: ElementTree.Element, attempt: AttemptRecord) -> None:
    for tag, word in (("system-out", "stdout"), ("system-err", "stderr")):
        text = "\n".join(text for name, text in attempt.output.items() if word in name)
        if text:
            ElementTree.SubElement(case, tag).text = clean(text)
