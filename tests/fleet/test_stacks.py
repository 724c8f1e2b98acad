"""A dump in which nobody finds the line that hung: 18 frames of pytest, 45 native ones without a name."""

from __future__ import annotations

import shutil

import pytest

from ondol.fleet import stacks

PYTEST = "".join(f'  File "/v/site-packages/_pytest/runner.py", line {n} in step\n' for n in range(9))
DUMP = f"""Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/u/suite/test_h.py", line 8 in test_crash
{PYTEST}  File "/v/site-packages/ondol/fleet/worker/worker.py", line 200 in _protocol
  File "/usr/bin/pytest", line 1 in <module>

Extension modules: numpy (total: 1)

Thread 1 (LWP 7):
#0  0x01 in pause () from /lib/libc.so.6
#1  0x02 in ?? ()
#2  0x03 in ?? () from /lib/libdriver.so
#3  0x04 in main ()
"""


def test_the_frames_of_the_suite_come_first_and_the_rest_is_folded() -> None:
    assert (
        stacks.readable(DUMP)
        == """Fatal Python error: Segmentation fault

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/u/suite/test_h.py", line 8 in test_crash
  [… 9 frames of pytest …]

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Extension modules: numpy (total: 1)

Thread 1 (LWP 7):
#0  0x01 in pause () from /lib/libc.so.6
  [… 2 frames without symbols …]
#3  0x04 in main ()"""
    )


@pytest.mark.parametrize("text", ["", "\n", "no stack at all", '  File "<string>", line 1 in f'])
def test_what_is_no_dump_comes_back_as_it_is(text) -> None:
    assert stacks.readable(text) == text.strip("\n")


@pytest.mark.fault
def test_a_hang_and_a_crash_show_the_test_before_anything_else(suite) -> None:
    suite.write(
        test_h="""
        import ctypes, pytest, threading, time
        def waits(): time.sleep(600)
        @pytest.mark.ondol(timeout=5)
        def test_hangs():
            threading.Thread(target=threading.Event().wait, daemon=True).start(); waits()
        def test_crashes(): ctypes.string_at(0)
        """
    )
    native = ["--ondol-native-stacks=20"] if shutil.which("gdb") else []
    result = suite.pytest("--ondol-retries=0", "--ondol-grace=0.1", *native)
    for name in ("waits", "test_crashes"):
        (item,) = [i for i in result.record.items if i.nodeid.endswith({"waits": "hangs"}.get(name, name))]
        dump = item.attempts[-1].dump.splitlines()
        frames = [line for line in dump if line.startswith("  File ")]
        assert any(f"in {name}" in line for line in frames[:2]), dump
        assert not [line for line in frames if "/_pytest/" in line or "/pluggy/" in line]
        assert sum("frames of pytest" in line for line in dump) == 1
        assert not [n for n, line in enumerate(dump) if "?? (" in line and "?? (" in dump[n - 1]]
