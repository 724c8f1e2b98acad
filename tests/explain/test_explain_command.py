"""`ondol explain` as people and CI jobs use it: what it prints, what it ends with, what it reads."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from explain import suite
from ondol.cli import main
from ondol.explain.signature import load

TORN = "error: Failed to install: rich\n  cause: The wheel is invalid: Metadata field Name not found\n"
ORDINARY = suite.ROOT / "tests" / "logs" / "ordinary"


class Said:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"{self.status}\n{self.out}\n{self.err}"


def ondol(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    status = main.main(["explain", *arguments])
    return Said(status, *capsys.readouterr())


def test_the_first_line_says_it(tmp_path: Path, log: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nightly.log"
    path.write_text(log)
    said = ondol(capsys, str(path))
    assert said.status == 0
    lines = said.out.split("\n")
    assert lines[0] == "25 tests failed: 22 from triton-foreign-key-dir, 1 from disk-full, 2 match nothing known."
    assert "triton-foreign-key-dir (triton): 22 tests" in lines
    assert f"{path}:" in said.out
    assert "ondol run --" in said.out
    assert "tile-ai/TileOPs#1615" in said.out
    assert "… and 17 more (--all)" in said.out
    assert "2 tests failed and match nothing known" in said.out
    assert said.out.count("belongs to another user") == 1


def test_one_fault_is_said_in_one_sentence(nightly: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "suite"
    suite.write(folder, own_faults=False)
    path = tmp_path / "nightly.log"
    path.write_text(suite.run(folder))
    said = ondol(capsys, str(path), "--all")
    assert said.out.startswith("21 tests failed from one fault: triton-foreign-key-dir.\n")
    assert said.out.count("::test_fwd[") == 21
    assert "more (--all)" not in said.out


def test_log_that_matches_nothing_does_not_look_explained(capsys: pytest.CaptureFixture[str]) -> None:
    said = ondol(capsys, str(ORDINARY / "pytest-assertions.log"))
    assert said.status == 1
    assert said.out.startswith("Nothing known explains this: 14 tests failed, and match nothing known.")
    said = ondol(capsys, str(ORDINARY / "compile-error.log"))
    assert (said.status, said.out) == (1, "Nothing known explains this.\n")


def test_warning_alone_does_not_end_with_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("UserWarning: Error reading persistent compilation cache entry for 'jit_f': x\n" * 3)
    said = ondol(capsys, str(path))
    assert said.status == 1
    assert f"jax-bad-entry: 3 times, first in {path}:1" in said.out


def test_json_has_every_name(tmp_path: Path, log: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nightly.log"
    path.write_text(log)
    said = json.loads(ondol(capsys, str(path), "--json").out)
    assert said["failed"] == 25
    first = said["faults"][0]
    assert (first["id"], first["tool"], first["kind"], len(first["tests"])) == (
        "triton-foreign-key-dir",
        "triton",
        "place",
        22,
    )
    assert first["log"] == str(path)
    assert first["line"].startswith("PermissionError: ")
    assert len(said["unexplained"]) == 2
    assert set(said) == {"format", "failed", "faults", "unexplained", "warnings", "troubles"}


@pytest.mark.parametrize("kind", ["log", "xml"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_file_is_read(
    nightly: Path, log: str, tmp_path: Path, kind: str, packed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = log.encode() if kind == "log" else b"\xef\xbb\xbf" + (nightly / "junit.xml").read_bytes()
    path = tmp_path / "a name that says nothing"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert ondol(capsys, str(path)).out.startswith("25 tests failed: 22 from triton-foreign-key-dir")


def test_log_of_powershell_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(TORN.replace("\n", "\r\n").encode("utf-16"))
    assert "uv-torn-archive" in ondol(capsys, str(path)).out


def test_shards_are_added_up(tmp_path: Path, log: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "one.log", tmp_path / "two.log"]
    for path in paths:
        path.write_text(log)
    said = ondol(capsys, *map(str, paths), "--all")
    assert said.out.startswith(
        "50 tests failed: 44 from triton-foreign-key-dir, 2 from disk-full, 4 match nothing known."
    )
    assert f"{paths[1]}: tests/ops/test_mamba.py::test_fwd[0]" in said.out


def run(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    env = {"PYTHONPATH": str(suite.ROOT / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-m", "ondol", "explain", *arguments], input=data, capture_output=True, check=False, env=env
    )


@pytest.mark.parametrize("arguments", [(), ("-",)])
@pytest.mark.parametrize("packed", [False, True])
def test_pipe_is_read(arguments: tuple[str, ...], packed: bool) -> None:
    data = TORN.encode() + b"\xff\xfe not text \x00\n"
    done = run(*arguments, data=gzip.compress(data) if packed else data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"uv-torn-archive (uv): seen 1 time, in no test" in done.stdout
    assert b"stdin:2" in done.stdout


def test_nothing_on_a_terminal_is_not_waited_for() -> None:
    primary, secondary = pty.openpty()
    env = {"PYTHONPATH": str(suite.ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "ondol", "explain"],
        stdin=secondary,
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=60,
    )
    os.close(primary)
    os.close(secondary)
    assert done.returncode == 2
    assert "there is no log to explain" in done.stderr
    assert "hint: ondol explain LOG" in done.stderr


def test_output_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(TORN * 1000)
    shell = f'{sys.executable} -m ondol explain "{path}" --json | head -c 1'
    env = {"PYTHONPATH": str(suite.ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"], capture_output=True, text=True, check=False, env=env
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/at/all.log"], "cannot read the log /nowhere/at/all.log"),
        (["/tmp"], "/tmp is a directory"),
        (["-", "-"], "standard input can be read only once"),
        (["--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_mistake_is_explained(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = ondol(capsys, *arguments)
    assert result.status == 2
    assert said in result.err


def test_half_a_gzip_file_is_no_bug_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(TORN.encode() * 10000)[:200])
    said = ondol(capsys, str(path))
    assert said.status == 2
    assert f"{path} is not a whole gzip file" in said.err


def test_zip_archive_of_the_ci_system_is_not_read_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logs.zip"
    path.write_bytes(b"PK\x03\x04rest")
    said = ondol(capsys, str(path))
    assert said.status == 2
    assert f"unzip -p {path} | ondol explain" in said.err


def test_evidence_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("progress 10%\r\x1b[2J\x07tar: No space left on device\x9b31m: '/x'\n")
    said = ondol(capsys, str(path))
    assert "No space left on device" in said.out
    assert not any(letter in said.out for letter in "\x1b\x07\x9b\r")


def test_empty_log_is_unexplained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    assert ondol(capsys, str(path)).status == 1


def test_list_leaves_no_fault_out(capsys: pytest.CaptureFixture[str]) -> None:
    said = ondol(capsys, "--list").out
    assert len(said.splitlines()) == len(load())
    listed = json.loads(ondol(capsys, "--list", "--json").out)["faults"]
    assert [entry["id"] for entry in listed] == [known.id for known in load()]
    assert {"meaning", "cure", "source", "kind", "number"} <= set(listed[0])


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["explain", "--help"])
    assert "gh run view --log-failed | ondol explain" in capsys.readouterr().out


def test_one_line_of_gigabytes_does_not_fill_the_memory() -> None:
    from ondol.explain import log_file

    class Endless(io.RawIOBase):
        left = 200

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.left -= 1
            buffer[:] = b"x" * len(buffer)
            return len(buffer) if self.left > 0 else 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_file, "_LONGEST_LINE", 1000)
        with log_file.open_log("-", io.BufferedReader(Endless())) as log:
            assert sum(len(part.text) for part in log.parts()) <= 1000
