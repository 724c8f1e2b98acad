"""Real Triton's autotuning on a driver that is not there: results are shared where that is wanted and right, only there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from people import ROOT, Program
from real.tool_lives import DAMAGES, Run

pytestmark = [pytest.mark.real, pytest.mark.warm]

H200 = ("nvidia-580.159.04", "NVIDIA H200")
CONFIGURATIONS = 3


class Machine:
    """A machine with this GPU, as far as Ondol and Triton can tell."""

    def __init__(self, program: Program, driver: Path, store: Path) -> None:
        self.program, self.driver, self.store = program, driver, store

    def env(self, fastest: int, env: dict[str, str]) -> dict[str, str]:
        driver = str(self.driver)
        return {"TRITON_LIBCUDA_PATH": driver, "LD_LIBRARY_PATH": driver, "FASTEST": str(fastest), **env}

    def plain(self, cache: Path, fastest: int = 0, **env: str) -> Run:
        environment = self.env(fastest, {"TRITON_CACHE_DIR": str(cache), **env})
        return Run(self.program.run([self.program.python, f"{self.program.programs}/tuned_kernel.py"], env=environment))

    def job(self, *options: str, fastest: int = 0, gpu: tuple[str, str] = H200, **env: str) -> Run:
        python, programs = self.program.python, self.program.programs
        ondol = [python, f"{programs}/on_a_gpu.py", *gpu, "run", "--store", str(self.store), *options, "--"]
        return Run(self.program.run([*ondol, python, f"{programs}/tuned_kernel.py"], env=self.env(fastest, env)))

    def tuned(self) -> list[dict[str, str]]:
        listed = json.loads(self.program.ondol("store", "ls", "--store", str(self.store), "--json").stdout)["entries"]
        return [entry for entry in listed if entry["fingerprint"].startswith("tuned-")]


@pytest.fixture(scope="module")
def tuned(program: Program, public: Path) -> tuple[Machine, Run]:
    """A machine whose store holds the result of one job, and what that job said."""
    driver = public / "driver-of-autotuning"
    driver.mkdir()
    source = ROOT / "tests" / "programs" / "fake_libcuda.c"
    build = ["gcc", "-shared", "-fPIC", "-o", str(driver / "libcuda.so.1"), "-Wl,-soname,libcuda.so.1", str(source)]
    subprocess.run(build, check=True)
    store = public / "store-of-autotuning"
    assert program.ondol("store", "init", str(store)).returncode == 0
    machine = Machine(program, driver, store)
    return machine, machine.job("--triton-autotune", fastest=1)


@pytest.fixture
def machine(tuned: tuple[Machine, Run], tmp_path: Path) -> Machine:
    """The same, with a copy of the store."""
    copy = tmp_path / "store"
    subprocess.run(["cp", "-a", tuned[0].store, copy], check=True)
    return Machine(tuned[0].program, tuned[0].driver, copy)


def test_no_job_measures_again(tuned: tuple[Machine, Run], machine: Machine) -> None:
    cold = tuned[1]
    assert (cold.status, cold.made, cold.said["answer"]) == (0, CONFIGURATIONS, 128), cold
    assert len(machine.tuned()) == 1
    warm = machine.job("--triton-autotune", fastest=2)
    assert (warm.made, warm.reused, warm.said["answer"]) == (0, 1, 128), warm
    by_variable = machine.job(ONDOL_TRITON_AUTOTUNE="1", fastest=2)
    assert (by_variable.made, by_variable.reused) == (0, 1)


def test_choice_is_not_fixed_for_jobs_that_did_not_ask(machine: Machine) -> None:
    """Whoever keeps no results measures, whatever the store holds."""
    left = machine.job(fastest=2)
    assert (left.made, left.reused, left.said["answer"]) == (CONFIGURATIONS, 0, 256), left
    assert len(machine.tuned()) == 1


H100 = ("nvidia-580.159.04", "NVIDIA H100")


@pytest.mark.parametrize("kept", [{"KEPT": "1"}, {"TRITON_CACHE_AUTOTUNING": "1"}], ids=["program", "user"])
def test_results_that_are_kept_anyway_are_not_measured_again(machine: Machine, kept: dict[str, Any]) -> None:
    """Without an option: plain Triton finds them again in its own cache, so a job must not be slower than that."""
    cold = machine.job(fastest=2, gpu=H100, **kept)
    assert (cold.made, cold.said["answer"]) == (CONFIGURATIONS, 256), cold
    assert len(machine.tuned()) == 2
    warm = machine.job(fastest=0, gpu=H100, **kept)
    assert (warm.made, warm.reused, warm.said["answer"]) == (0, 1, 256), warm
    here = machine.job(fastest=0, **kept)
    assert (here.made, here.reused, here.said["answer"]) == (0, 1, 128), here


def test_results_are_not_shared_by_a_job_that_switched_it_off(machine: Machine) -> None:
    off = "--no-triton-autotune"
    dropped = machine.job(off, fastest=2, KEPT="1")
    assert (dropped.made, dropped.reused, dropped.said["answer"]) == (CONFIGURATIONS, 0, 256), dropped
    machine.job(off, fastest=2, gpu=H100, KEPT="1")
    assert len(machine.tuned()) == 1


def test_adopted_cache_keeps_its_results(machine: Machine, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert machine.plain(cache, fastest=2, KEPT="1").made == CONFIGURATIONS
    python, programs = machine.program.python, machine.program.programs
    adopt = ["store", "adopt", "--store", str(machine.store), "--tool", "triton", str(cache)]
    adopted = machine.program.run([python, f"{programs}/on_a_gpu.py", *H100, *adopt])
    assert adopted.returncode == 0, adopted.stderr
    assert len(machine.tuned()) == 2
    warm = machine.job(fastest=0, gpu=H100, KEPT="1")
    assert (warm.made, warm.reused, warm.said["answer"]) == (0, 1, 256), warm


@pytest.mark.parametrize("gpu", [H100, ("nvidia-590.1.1", "NVIDIA H200")])
def test_result_of_another_model_or_driver_is_not_taken(machine: Machine, gpu: tuple[str, str]) -> None:
    """Both are the compile target sm_90: Triton's own key cannot tell them apart."""
    other = machine.job("--triton-autotune", fastest=2, gpu=gpu)
    assert (other.made, other.said["answer"]) == (CONFIGURATIONS, 256), other
    assert len(machine.tuned()) == 2


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--triton-autotune", "--frozen"], {}),
        (["--triton-autotune", "--require-warm"], {}),
        (["--frozen"], {"KEPT": "1"}),
        (["--require-warm"], {}),  # it asks for nothing, but there was one to leave out
    ],
)
def test_performance_job_does_not_run_what_others_measured(
    machine: Machine, options: list[str], kept: dict[str, Any]
) -> None:
    perf = machine.job(*options, fastest=2, **kept)
    assert (perf.status, perf.made, perf.reused, perf.said["answer"]) == (0, CONFIGURATIONS, 0, 256), perf
    assert "triton: autotuning results are neither taken nor given" in perf.stderr
    assert len(machine.tuned()) == 1


def test_torn_result_ends_no_program(machine: Machine, tmp_path: Path) -> None:
    """Without Ondol it does; a damaged pack is a miss."""
    cache = tmp_path / "cache"
    assert machine.plain(cache, TRITON_CACHE_AUTOTUNING="1").made == CONFIGURATIONS
    (result,) = cache.rglob("*.autotune.json")
    result.write_bytes(result.read_bytes()[:50])
    died = machine.plain(cache, TRITON_CACHE_AUTOTUNING="1")
    assert died.status == 1
    assert "JSONDecodeError" in died.stderr

    (pack,) = [pack for pack in machine.store.rglob("*.pack") if "tuned-" in str(pack)]
    DAMAGES["truncated"](pack, b"")
    run = machine.job("--triton-autotune", "--publish", "never")
    assert (run.status, run.made, run.reused) == (0, CONFIGURATIONS, 0), run


def test_machine_that_cannot_name_its_gpu_shares_no_results(machine: Machine) -> None:
    run = machine.job("--triton-autotune", "-v", gpu=("", ""))
    assert run.made == CONFIGURATIONS
    assert "triton: 1 unplaced, not published" in run.stderr
    assert len(machine.tuned()) == 1
