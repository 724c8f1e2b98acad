"""The files in `explain/signatures`: each knows its own example, says what to do, and is there wherever Ondol is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explain.found_faults import find
from ondol.explain import signature
from ondol.explain.match import first_cause, scan
from ondol.explain.signature import Signature
from ondol.host import toml
from people import ROOT

SIGNATURES = signature.load()
FOLDER = ROOT / "src" / "ondol" / "explain" / "signatures"
by_id = pytest.mark.parametrize("known", SIGNATURES, ids=lambda known: known.id)


def test_no_fault_of_the_survey_is_missing() -> None:
    assert sorted(known.number for known in SIGNATURES if known.number) == list(range(1, 65))
    assert len({known.id for known in SIGNATURES}) == len(SIGNATURES) == len(list(FOLDER.iterdir()))


@by_id
def test_signature_knows_its_own_example(known: Signature) -> None:
    assert known.id in [match.signature.id for match in find(known.example)]


@by_id
def test_example_is_not_blamed_on_another_fault(known: Signature) -> None:
    hits = list(scan(known.example))
    cause = first_cause(hits)
    if known.warning:
        assert cause is None, "a warning explains no failure"
    else:
        assert cause is not None
        assert cause.signature.id == known.id
    # Beside it there may be what is true of any tool (a full disk, a stale handle), in the same chain of causes.
    others = [hit for hit in hits if hit.signature.id != known.id]
    assert all(hit.signature.tool == "any" and cause is not None and hit.chain == cause.chain for hit in others)


@by_id
def test_signature_leaves_no_reader_without_a_cure(known: Signature) -> None:
    for text in (known.meaning, known.cure):
        assert text.endswith((".", "`.")), text
        assert (
            text[0].isupper()
            or text.startswith("`")
            or text.split()[0] in {"pip", "uv", "torch", "vLLM", "uv's", "pip's"}
        )
    assert known.source


def test_what_is_not_the_caches_fault_is_not_healed() -> None:
    assert {known.kind for known in SIGNATURES if known.heals} == {"cache"}
    for name in (
        "disk-full",
        "network-name",
        "network-connection",
        "network-server",
        "no-such-version",
        "out-of-memory",
    ):
        (known,) = [known for known in SIGNATURES if known.id == name]
        assert known.kind != "cache"


PATTERNS = [pattern for known in SIGNATURES for pattern in (*known.match, *known.match_all)]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.regex.pattern[:60])
@given(data=st.data())
def test_needle_hides_no_line_that_the_pattern_matches(pattern: signature.Pattern, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(pattern.regex))
    assert pattern.needle in line


GOOD = {
    "id": '"broken"',
    "tool": '"uv"',
    "kind": '"cache"',
    "match": "['''some text''']",
    "meaning": '"It broke."',
    "cure": '"Mend it."',
    "source": '"us"',
    "example": '"some text"',
}


def file(**changes: str | None) -> str:
    fields = {**GOOD, **changes}
    return "\n".join(f"{name} = {value}" for name, value in fields.items() if value is not None)


KINDS = {"cache", "place", "network", "request", "killed", "bug"}
TEXTS = ("id", "tool", "kind", "meaning", "cure", "source", "example")
OTHERS = {"number": int, "window": int, "warning": bool, "heals": str, "match": list, "match_all": list, "unless": list}


def faults_in(name: str, text: str) -> Iterator[str]:
    """What is wrong with a signature file; whoever adds one is told here."""
    try:
        fields: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        yield f"cannot be read: {error}"
        return
    yield from (f"{field} is missing" for field in TEXTS if not str(fields.get(field, "")).strip())
    yield from (f"unknown field {field!r}" for field in fields if field not in (*TEXTS, *OTHERS))
    for field, wanted in (*((text, str) for text in TEXTS), *OTHERS.items()):
        if field in fields and type(fields[field]) is not wanted:
            yield f"{field} is {fields[field]!r}"
    if name != f"{fields.get('id')}.toml":
        yield f"its id is {fields.get('id')!r}"
    if fields.get("kind") not in KINDS:
        yield f"kind is {fields.get('kind')!r}"
    if fields.get("heals") and fields.get("kind") != "cache":
        yield "only a fault of kind 'cache' can be healed"
    if not fields.get("match") and not fields.get("match_all"):
        yield "neither match nor match_all"
    for field in ("match", "match_all", "unless"):
        for source in fields.get(field, []):
            yield from faults_in_pattern(source, needs_needle=field != "unless")


def faults_in_pattern(source: Any, *, needs_needle: bool) -> Iterator[str]:
    if not isinstance(source, str):
        yield f"{source!r} is not a pattern"
        return
    if re.search(r"(?<!\\)(?:\\\\)*\.[*+]|\(\?[a-zA-Z]", source):
        yield f"the pattern {source!r} has an unbounded gap or flags; write .{{0,200}}"
    try:
        re.compile(source)
    except re.error as error:
        yield f"the pattern {source!r}: {error}"
        return
    if needs_needle and len(signature.needle(source)) < 4:
        yield f"the pattern {source!r} holds less than four plain characters in a row"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_signature_file_is_written_as_its_module_says(path: Path) -> None:
    assert list(faults_in(path.name, path.read_text())) == []


def test_a_good_file_is_taken() -> None:
    assert list(faults_in("broken.toml", file())) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id = ", "cannot be read"),
        (file(meaning=None), "meaning is missing"),
        (file(kind='"weather"'), "kind is 'weather'"),
        (file(id='"other"'), "its id is 'other'"),
        (file(match=None), "neither match nor match_all"),
        (file(match="['''some (text''']"), "some (text"),
        (file(match="['''PermissionError.*tmp''']"), "unbounded gap"),
        (file(match="['''a|some text''']"), "plain characters"),
        (file(match="['''ab.{0,3}cd''']"), "plain characters"),
        (file(match="'''some text'''"), "match is"),
        (file(match="[7]"), "7 is not a pattern"),
        (file(number='"1"'), "number is '1'"),
        (file(kind='"place"', heals='"uv"'), "only a fault of kind 'cache'"),
        (file(matches="[]"), "unknown field 'matches'"),
    ],
)
def test_broken_file_is_refused(text: str, said: str) -> None:
    assert said in "; ".join(faults_in("broken.toml", text))


def test_signatures_are_found_in_a_zipped_program(tmp_path: Path) -> None:
    archive = tmp_path / "ondol.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in (ROOT / "src").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                made.write(path, path.relative_to(ROOT / "src"))
    program = "from ondol.explain import signature as s; print(len(s.load()), s.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    count, where = done.stdout.split()
    assert int(count) == len(SIGNATURES)
    assert where.startswith(str(archive))


def test_signatures_are_in_the_wheel() -> None:
    """Hatchling packs every file of the package that git does not ignore."""
    ignored = subprocess.run(
        ["git", "check-ignore", *map(str, FOLDER.iterdir())], cwd=ROOT, capture_output=True, text=True
    )
    assert ignored.stdout == ""
