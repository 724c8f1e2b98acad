"""Ondol works while a benchmark runs, and the numbers are Ondol's: seed 000's A24."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from people import Program

#: Works for half a second of its own processor time, and counts what Ondol did meanwhile. It begins when Ondol waits for
#: it: on a busy machine a command runs before Ondol has come so far, or before what filled the room has died.
BENCHMARK = """
import json, os, time
def seen():
    status = open(f"/proc/{os.getppid()}/status").read()
    switches = [int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line]
    return {"switches": sum(switches), "processes": sorted(others())}
def others():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getppid() and int(name) != os.getpid() and fields[0] != "Z":
            yield int(name)
def asleep():
    return not list(others()) and open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] == "S"
while not asleep():
    time.sleep(0.001)
before = seen()
start = time.process_time()
while time.process_time() < start + 0.5:
    pass
print(json.dumps([before, seen()]))
"""


@pytest.mark.parametrize("option", ["--frozen", "--require-warm"])
def test_ondol_sleeps_and_has_no_helper_while_the_command_measures(
    program: Program, store_path: Path, tmp_path: Path, option: str
) -> None:
    (tmp_path / "benchmark.py").write_text(BENCHMARK)
    words = ["--store", str(store_path), option, "--", program.python, str(tmp_path / "benchmark.py")]
    done = program.ondol("run", *words)
    assert done.returncode == 0, done
    before, after = json.loads(done.stdout)
    assert before == after, "not once did it get the processor"
    assert after["processes"] == []
