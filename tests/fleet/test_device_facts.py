"""Suites ask their device while they are imported: the process that collects must stay one that can be forked.

The torch here is a fake of one device that refuses to work in a fork of a process that touched it, as CUDA does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ondol.host import accelerator
from ondol.testing.facts.client import kept_file
from suites import Suite

pytestmark = pytest.mark.warm_pytest

FAKE = Path(__file__).parent.parent / "programs" / "fake_torch"
BEGINNING = """
import json, os, sys
from pathlib import Path
from ondol.testing.facts.client import Client
from ondol.fleet.threads import culprit
from ondol.testing.facts.stand_ins import StandIns

kept = os.environ.get("KEPT")
client = Client(Path(kept) if kept else None)
stand_ins = StandIns(client)
stand_ins.install()
import torch

def touchers():
    path = os.environ["TOUCHED"]
    return [int(line) for line in open(path)] if os.path.exists(path) else []
"""


@pytest.fixture
def touched(tmp_path: Path) -> Path:
    return tmp_path / "touched"


def run(touched: Path, program: str, **env: str) -> dict[str, object]:
    """What the program prints as JSON, in an interpreter that has the fake torch."""
    path = os.pathsep.join([str(FAKE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program],
        env={**os.environ, "PYTHONPATH": path, "TOUCHED": str(touched), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_questions_are_answered_without_touching_the_device(touched: Path) -> None:
    said = run(
        touched,
        """
p = torch.cuda.get_device_properties(0)
print(json.dumps({
    "available": torch.cuda.is_available(), "count": torch.cuda.device_count(), "current": torch.cuda.current_device(),
    "name": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability("cuda:0".count("x")),
    "units": p.multi_processor_count, "text": repr(p), "class": isinstance(p, torch.cuda._CudaDeviceProperties),
    "equal": p == torch.cuda.get_device_properties(), "initialised": torch.cuda.is_initialized(),
    "ours": os.getpid() in touchers(), "somebody": len(touchers()),
}))
""",
    )
    assert said == {
        "available": True,
        "count": 1,
        "current": 0,
        "name": "Fake H1",
        "capability": [9, 0],
        "units": 7,
        "text": "_CudaDeviceProperties(name='Fake H1', major=9, minor=0)",
        "class": True,
        "equal": True,
        "initialised": False,
        "ours": False,
        "somebody": 1,
    }


def test_a_capability_is_a_tuple_as_the_real_one(touched: Path) -> None:
    said = run(touched, "print(json.dumps({'newer': torch.cuda.get_device_capability() >= (9, 0)}))")
    assert said == {"newer": True}


def test_the_error_for_a_device_that_is_not_there_is_the_real_one(touched: Path) -> None:
    said = run(
        touched,
        """
try:
    torch.cuda.get_device_properties(5)
except AssertionError as error:
    print(json.dumps({"error": str(error)}))
""",
    )
    assert said == {"error": "Invalid device id"}


def test_after_the_fork_everything_is_the_real_thing(touched: Path) -> None:
    said = run(
        touched,
        """
from torch.cuda import get_device_name
torch.cuda.is_available()
pid = os.fork()
if pid == 0:
    torch.ones(2, device="cuda")
    ok = torch.cuda.mem_get_info()[0] == os.getpid() and get_device_name() == "Fake H1"
    ok = ok and torch.cuda.is_available.__code__.co_filename.endswith("cuda/__init__.py")
    os._exit(0 if ok and os.getpid() in touchers() else 1)
print(json.dumps({"child": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "parent": os.getpid() in touchers()}))
""",
    )
    assert said == {"child": 0, "parent": False}


def test_what_changes_by_itself_is_asked_every_time_and_the_rest_once(touched: Path) -> None:
    said = run(
        touched,
        """
for _ in range(3):
    torch.cuda.device_count(), torch.cuda.mem_get_info()
print(json.dumps({"asked": client.asked}))
""",
    )
    assert said == {"asked": 1 + 3}


def test_the_next_run_does_not_wait_for_the_helper(touched: Path, tmp_path: Path) -> None:
    program = """
torch.cuda.get_device_capability()
asked = client.asked
client.close()
print(json.dumps({"asked": asked}))
"""
    kept = str(tmp_path / "cache" / "facts.json")
    assert run(touched, program, KEPT=kept) == {"asked": 1}
    assert run(touched, program, KEPT=kept) == {"asked": 0}
    (tmp_path / "cache" / "facts.json").write_text('{"format": 1, "answers"')
    assert run(touched, program, KEPT=kept) == {"asked": 1}


@pytest.mark.parametrize(
    "variable", ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HSA_OVERRIDE_GFX_VERSION", "TRITON_OVERRIDE_ARCH"]
)
def test_answers_are_kept_for_one_numbering_of_the_devices(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two models in a machine, device 0 is one of them or the other."""
    monkeypatch.setattr(accelerator, "here", lambda: accelerator.Accelerators("nvidia-580", ("A", "B")))
    before = kept_file(tmp_path)
    assert before is not None
    assert kept_file(tmp_path) == before
    monkeypatch.setenv(variable, "1,0")
    assert kept_file(tmp_path) != before


def test_answers_are_not_kept_for_devices_that_changed_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "here", lambda: accelerator.Accelerators("nvidia-580", ("A", "B")))
    monkeypatch.setattr(accelerator, "nvidia_models", lambda: ["A", "B"])
    before = kept_file(tmp_path)
    monkeypatch.setattr(accelerator, "nvidia_models", lambda: ["B", "A"])
    assert kept_file(tmp_path) != before


def test_a_helper_that_dies_leaves_the_question_to_the_real_function(touched: Path) -> None:
    said = run(
        touched,
        """
client.start()
client._helper.kill()
name = torch.cuda.get_device_name()
print(json.dumps({"name": name, "ours": os.getpid() in touchers(), "why": bool(client.broken)}))
""",
    )
    assert said == {"name": "Fake H1", "ours": True, "why": True}


def test_the_line_that_touched_the_device_is_named(touched: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest_like.py").write_text('import torch\n\nREF = torch.ones(2, device="cuda")\n')
    said = run(
        touched,
        f"""
sys.path.insert(0, {str(tmp_path)!r})
import conftest_like
print(json.dumps({{"line": culprit(stand_ins.touched, {str(tmp_path)!r}, ["/torch/"])}}))
""",
    )
    assert said == {"line": 'conftest_like.py:3 (REF = torch.ones(2, device="cuda"))'}


ASKING = """
import os, pytest, torch

CAPABILITY = torch.cuda.get_device_capability()
PROPERTIES = torch.cuda.get_device_properties(0)

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no device")
@pytest.mark.parametrize("n", range(3))
def test_on_the_device(n):
    assert CAPABILITY == torch.cuda.get_device_capability() == (9, 0)
    assert PROPERTIES.total_memory == torch.cuda.get_device_properties().total_memory
    assert torch.ones(2, device="cuda")
    with open(os.environ["LOG"], "a") as log:
        log.write(f"{os.getpid()} {os.getppid()}\\n")
"""


def with_fake_torch(suite: Suite, touched: Path) -> Suite:
    suite.variables = {"TOUCHED": str(touched), "PYTHONPATH": os.pathsep.join([str(suite.path), str(FAKE)])}
    return suite


def test_a_suite_that_asks_at_import_runs_on_forked_workers(suite: Suite, touched: Path) -> None:
    with_fake_torch(suite, touched).write(test_asking=ASKING)
    result = suite.pytest("--ondol-device-facts=on", devices="sim:2")
    assert result.record.counts() == {"passed": 3}, result.output
    assert result.record.run.mode.startswith("forked"), result.record.run.mode


def test_without_facts_the_same_suite_must_be_spawned(suite: Suite, touched: Path) -> None:
    with_fake_torch(suite, touched).write(test_asking=ASKING)
    result = suite.pytest("--ondol-device-facts=off", devices="sim:1")
    assert result.record.counts() == {"passed": 3}, result.output
    assert result.record.run.mode.startswith("spawned"), result.record.run.mode


def test_a_tensor_made_at_import_is_noticed_with_its_line_and_the_run_goes_on(suite: Suite, touched: Path) -> None:
    with_fake_torch(suite, touched).write(
        conftest='import torch\n\nREFERENCE = torch.ones(2, device="cuda")\n', test_asking=ASKING
    )
    result = suite.pytest("--ondol-device-facts=on", devices="sim:1")
    assert result.record.counts() == {"passed": 3}, result.output
    mode = result.record.run.mode
    assert mode.startswith("spawned"), mode
    assert 'conftest.py:3 (REFERENCE = torch.ones(2, device="cuda"))' in mode
