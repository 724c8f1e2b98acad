"""On a real GPU: what the helper answers is what the real function says, question by question."""

from __future__ import annotations

import json
import subprocess
import sys

QUESTIONS = """
import json, os
import torch
from triton.runtime import driver

def told(function, *arguments):
    try:
        value = function(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    if type(value).__name__.endswith(("DeviceProperties", "Attributes")):
        names = [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]
        return [repr(value), isinstance(value, torch._C._CudaDeviceProperties), {n: str(getattr(value, n)) for n in names}]
    return [type(value).__name__, str(value)]

said = {}
for name in (
    "is_available", "device_count", "current_device", "get_device_name", "get_device_capability",
    "get_device_properties", "get_arch_list", "get_gencode_flags", "is_bf16_supported", "is_tf32_supported",
):
    said[name] = told(getattr(torch.cuda, name))
for device in (0, 7, "cuda", "cuda:0", torch.device("cuda", 0), "nonsense"):
    said[f"name of {device!r}"] = told(torch.cuda.get_device_name, device)
    said[f"properties of {device!r}"] = told(torch.cuda.get_device_properties, device)
said["peer"] = told(torch.cuda.can_device_access_peer, 0, 0)
said["total memory"] = told(lambda: torch.cuda.mem_get_info()[1])
for name in ("is_available", "device_count", "current_accelerator", "current_device_index"):
    said["accelerator " + name] = told(getattr(torch.accelerator, name))
said["triton"] = told(driver.active.utils.get_device_properties, 0)
said["target"] = told(driver.active.get_current_target)
first = torch.cuda.get_device_properties(0)
said["equal"] = [first == torch.cuda.get_device_properties(0)]
opened = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
print(json.dumps({"said": said, "initialised": torch.cuda.is_initialized(),
                  "opened": [path for path in opened if path.startswith("/dev/nvidia")]}))
"""
WITH_FACTS = """
from ondol.testing.facts.client import Client
from ondol.testing.facts.stand_ins import StandIns

StandIns(Client(None)).install()
"""


def asked(program: str) -> dict:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_answer_is_what_the_real_function_says() -> None:
    real, ours = asked(QUESTIONS), asked(WITH_FACTS + QUESTIONS)
    assert ours["said"] == real["said"]
    assert real["initialised"]
    assert not ours["initialised"]
    assert ours["opened"] == []


SUITE = """
import pytest, torch, triton
from triton.runtime import driver

TARGET = driver.active.get_current_target()
UNITS = driver.active.utils.get_device_properties(0)["multiprocessor_count"]

@pytest.mark.skipif(torch.cuda.get_device_capability() < (8, 0), reason="too old")
def test_on_the_device():
    assert torch.ones(3, device="cuda").sum().item() == 3
    assert driver.active.get_current_target() == TARGET
    assert driver.active.utils.get_device_properties(0)["multiprocessor_count"] == UNITS
    assert torch.cuda.get_device_properties(0).multi_processor_count == UNITS
"""


def test_a_suite_that_asks_at_import_is_forked(suite) -> None:
    suite.write(test_asking=SUITE)
    result = suite.pytest(devices="cuda")
    assert result.record.counts() == {"passed": 1}, result.output[-3000:]
    assert "forked from the collected session" in result.output
