"""Finding faults in logs: through every kind of noise, in logs of any size, and nothing in ordinary ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from explain.found_faults import Match, find
from ondol.explain import match, noise
from ondol.explain.match import first_cause, judge, scan
from ondol.explain.signature import load
from people import ROOT

ORDINARY = sorted((ROOT / "tests" / "logs" / "ordinary").glob("*.log"))
KEY = "ZOBLEQ4V2LXJDQ2SWSIVWDMGXI2DQVWBDKQ7CM5FJ4FBBRQTZH4A"
FOREIGN = f"PermissionError: [Errno 13] Permission denied: '/ci-cache/triton/{KEY}/tmp.pid_17388_1a82e68f'"
SHORT = settings(max_examples=60, deadline=None)


def ids(text: str) -> list[str]:
    return [found.signature.id for found in find(text)]


def places(found: list[Match]) -> list[tuple[str, int, int]]:
    return [(one.signature.id, one.line_number, one.count) for one in found]


@pytest.mark.parametrize("log", ORDINARY, ids=lambda path: path.stem)
def test_cache_is_not_blamed_for_an_ordinary_failure(log: Path) -> None:
    text = log.read_text()
    assert len(text.splitlines()) >= 3
    network = "network" in log.stem
    assert judge(text).kind == ("network" if network else "unknown")
    assert {found.signature.kind for found in find(text)} <= ({"network", "request"} if network else set())


def test_the_corpus_is_read() -> None:
    """Were the folder empty, the test above would pass for ever."""
    assert len(ORDINARY) >= 15


WRAPPED = [
    f"E   torch._inductor.exc.InductorError: {FOREIGN}",
    f"torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n{FOREIGN}",
    f"{FOREIGN}\n\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: compile failed",
    f"{FOREIGN}\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError: no",
    f"  [Previous line repeated 4 more times]\n{FOREIGN}",
    f"(EngineCore_DP0 pid=488) ERROR 04-11 14:49:58 [core.py:871] {FOREIGN}",
    f'{{"log":"{FOREIGN}\\n","stream":"stderr"}}',
    f"::error file=tests/x.py,line=3::{FOREIGN}",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_wrapping_does_not_hide_the_first_cause(text: str) -> None:
    cause = first_cause(list(scan(text)))
    assert cause is not None
    assert cause.signature.id == "triton-foreign-key-dir"


def test_later_exception_is_not_taken_for_the_cause() -> None:
    text = f"{FOREIGN}\nDuring handling of the above exception, another exception occurred:\nOSError: [Errno 28] No space left on device"
    assert judge(text).signature.id == "triton-foreign-key-dir"  # type: ignore[union-attr]


UV_CHAIN = "error: Failed to install: rich\n  Caused by: Failed to deserialize cache entry\n  Caused by: No space left on device (os error 28)"


@pytest.mark.parametrize("prefix", ["", "2026-03-14T04:00:12.1234567Z ", "db-init-1  | ", "#7 1.234 "])
def test_last_link_of_a_chain_of_causes_is_not_the_first_cause(prefix: str) -> None:
    text = "\n".join(prefix + line for line in UV_CHAIN.split("\n"))
    assert judge(text).kind == "place"


def test_two_chains_are_not_taken_for_one() -> None:
    text = (
        f"{UV_CHAIN}\nerror: Failed to install: idna\n  Caused by: The wheel is invalid: Metadata field Name not found"
    )
    assert judge(text).signature.id == "disk-full"  # type: ignore[union-attr]
    torn_first = "\n".join(text.split("\n")[3:] + text.split("\n")[:3])
    assert judge(torn_first).signature.id == "uv-torn-archive"  # type: ignore[union-attr]


def test_warning_of_a_tool_is_not_taken_for_the_cause_of_a_failure() -> None:
    text = "W1115 05:44:12.612178 41 torch/_inductor/codecache.py:1487] fx graph cache unable to load compiled graph\nAssertionError"
    assert judge(text).kind == "unknown"
    assert ids(text) == ["inductor-bad-entry-stays"]


def test_parts_far_from_each_other_make_no_fault() -> None:
    frame, error = (
        '  File "/x/triton/runtime/cache.py", line 79, in get_group',
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1",
    )
    assert ids("\n".join([frame, *["x"] * 100, error])) == ["triton-torn-json"]
    assert ids("\n".join([error, *["x"] * 100, frame])) == ["triton-torn-json"]
    assert ids("\n".join([frame, *["x"] * 200, error])) == []


def test_parts_are_counted_once() -> None:
    frame, error = "triton/runtime/cache.py", "JSONDecodeError: Expecting value: line 1 column 1"
    assert places(find([frame, error, error, frame, error])) == [("triton-torn-json", 2, 2)]


examples = st.sampled_from([known.example for known in load()])
texts = st.lists(st.one_of(examples, st.text(max_size=80)), max_size=6).map("\n".join)


@SHORT
@given(st.binary(max_size=3000))
def test_no_bytes_stop_the_search(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    assert find(text) == find(text.split("\n"))
    judge(text)


@SHORT
@given(texts, st.integers(1, 400))
@example(UV_CHAIN, 40)
def test_result_does_not_depend_on_how_the_log_arrives(text: str, size: int) -> None:
    whole, verdict = places(find(text)), judge(text)
    assert places(find(text.split("\n"))) == whole
    assert places(find(line + "\n" for line in text.split("\n"))) == whole
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(match, "_BLOCK", size)
        assert places(find(text)) == whole
        assert judge(text) == verdict


PREFIXES = [
    "2026-03-14T04:00:12.1234567Z ",
    "2026-03-14T04:00:12.123456Z 00O ",
    "[2026-03-14 04:00:12] ",
    "E   ",
    "gw0 | ",
    "web-1  | ",
    "[rank3]: ",
    "12: ",
]


@SHORT
@given(examples, st.sampled_from(PREFIXES), st.data())
def test_noise_of_the_ci_system_hides_no_fault(text: str, prefix: str, data: st.DataObject) -> None:
    lines = []
    for line in text.split("\n"):
        at = data.draw(st.integers(0, len(line)))
        colour = data.draw(
            st.sampled_from(
                ["\x1b[31m", "\x1b[0;1;38;5;196m", "\x1b[0K", "\x1b]8;;http://x\x07", "\x1b_bk;t=17\x07", "\x1b(B"]
            )
        )
        lines.append(prefix + line[:at] + colour + line[at:])
    noisy, plain = find(lines), find(text)
    assert places(noisy) == places(plain)
    assert judge("\n".join(lines)).kind == judge(text).kind


@pytest.mark.parametrize("prefix", ["", *(prefix for prefix in PREFIXES if prefix != "E   ")])
def test_evidence_is_shown_without_the_noise(prefix: str) -> None:
    assert noise.bare(prefix + "E   " + FOREIGN) == FOREIGN


@SHORT
@given(st.integers(0, match.MAX_LINE * 3), st.integers(0, 100_000))
@example(match.MAX_LINE - len(FOREIGN) // 2, 100_000)
def test_fault_in_a_very_long_line_is_found(before: int, after: int) -> None:
    (found,) = find("first\n" + "x" * before + FOREIGN + "y" * after)
    assert places([found]) == [("triton-foreign-key-dir", 2, 1)]
    assert len(found.line) <= match.MAX_LINE


def test_count_and_first_place_are_right() -> None:
    assert places(find("\n".join(["a", FOREIGN, "b", FOREIGN, FOREIGN]))) == [("triton-foreign-key-dir", 2, 3)]


#: What makes a careless pattern explode: its own beginnings, again and again, and never the end.
_ADVERSARY = """
import sys
from ondol.explain.match import Scanner, MAX_LINE
from ondol.explain.signature import load
signatures = load()
scanner = Scanner(signatures)
lines = 0
for known in signatures:
    for pattern in (*known.match, *known.match_all):
        for filler in ("", "'", "/", "a", "a/", " ", "0", "(", "ab2/cd2.", "\\\\"):
            piece = pattern.needle + filler * 3
            for line in (piece * (MAX_LINE // len(piece)), pattern.needle + filler * MAX_LINE, "/" * 3000 + pattern.needle * 50 + filler * 3000):
                scanner.block(line[:MAX_LINE], 1)
                lines += 1
print(lines)
"""


def test_no_pattern_explodes_on_a_hostile_line() -> None:
    """A catastrophic pattern would need years for one of these lines; the limit is only there to end the test then."""
    done = subprocess.run([sys.executable, "-c", _ADVERSARY], capture_output=True, text=True, timeout=240, check=True)
    assert int(done.stdout) > 1000


@pytest.mark.parametrize("prefix", ["", "2026-11-15T20:00:00.1234567Z "])
def test_a_long_path_that_breaks_the_line_of_a_cause_does_not_hide_the_fault(prefix: str) -> None:
    """uv 0.13 breaks a cause at about 100 columns: caches with long paths were never healed."""
    lines = [
        "error: Failed to install: alpha-1.0-py3-none-any.whl (alpha==1.0)",
        "  cause: failed to open file",
        f"         `/ci-cache/{'long/' * 20}uv/archive-v0/1yrZwxExbmLjJb9-/alpha-1.0.dist-info/RECORD`:",
        "         No such file or directory (os error 2)",
        "something else",
    ]
    (found,) = find("\n".join(prefix + line for line in lines))
    assert (found.signature.heals, found.line_number) == ("uv", 2)
    unbroken = [lines[0], "  cause: " + " ".join(line.strip() for line in lines[1:4]).removeprefix("cause: ")]
    assert find("\n".join(unbroken))[0].signature.id == found.signature.id


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (
            f"E   FileNotFoundError: [Errno 2] No such file or directory: '/c/{KEY}/tmp.pid_4_5f0d/k.ttir'",
            "triton-tmp-gone",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/c/k.ttir.tmp.pid_4_5'", "triton-tmp-gone"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/c/k.tmp.pid_4_5' -> '/c/k'", "triton-rename-race"),
        ("RuntimeError: set_device failed with code 507899", "ascend-device-lost"),
        ("aclrtSetDevice failed, error code: 507899", "ascend-device-lost"),
        ("ImportError: /c/lib.so: undefined symbol: build_gemm_graph", "graph-symbol-missing"),
        ("flock: cannot open lock file /tmp/l: Permission denied", "flock-cannot-open"),
    ],
)
def test_fault_that_a_seed_met_is_known(line: str, known: str) -> None:
    assert ids(line) == [known]


@pytest.mark.parametrize(
    "line", ["AssertionError: assert 507899 == 1", "undefined symbol: build_graph", "flock: failed"]
)
def test_what_only_looks_like_it_is_not_blamed(line: str) -> None:
    assert ids(line) == []


def test_network_file_system_that_no_log_tells_of_is_not_blamed() -> None:
    """A file of an entry that is gone: on a local disk somebody removed it."""
    (known,) = [one for one in load() if one.id == "triton-not-yet-visible"]
    assert "somebody removed it" in known.meaning
