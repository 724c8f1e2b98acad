"""A machine with two models of GPU: a suite collects and skips by what its device can do, and each device is another.

The machine is a fake: its torch and its NVML know the GPUs that $FAKE_GPUS names in the order of the PCI bus. Like CUDA,
its torch numbers the fastest first unless it is told otherwise, and does not work in a fork of a process that used it.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ondol.fleet import devices, messages
from ondol.fleet.controller import models
from ondol.fleet.model import Device, HandOut, Slot, Work
from ondol.fleet.schedule import Scheduler, build
from ondol.host import accelerator
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

PROGRAMS = Path(__file__).parent.parent / "programs"
#: Two modules that end only if both run at once: so both devices have a worker, and each of them has collected.
MEETING = """
import os, pytest, torch

NAME = torch.cuda.get_device_name()

@pytest.mark.ondol(timeout=200)
def test_{me}(device):
    fd, theirs = os.open("{me}.fifo", os.O_RDWR), os.open("{other}.fifo", os.O_RDWR)
    os.write(theirs, b"here")
    assert os.read(fd, 4) == b"here"
    assert NAME == torch.cuda.get_device_name() == {{"cuda0": os.environ["FIRST"], "cuda1": os.environ["SECOND"]}}[device.names[0]]
"""
SKIPPING = """
import pytest, torch

CAPABILITY = torch.cuda.get_device_capability()
pytestmark = pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs 9.0")

@pytest.mark.parametrize("n", range(4))
def test_new(n):
    assert CAPABILITY == torch.cuda.get_device_capability() == (9, 0)
"""
PARAMETRISED = """
import pytest, torch

CAPABILITY = torch.cuda.get_device_capability()

@pytest.mark.parametrize("kind", ["half", *(["eighth", "quarter"] if CAPABILITY >= (9, 0) else ["double"])])
def test_kind(kind):
    assert torch.cuda.get_device_capability() == CAPABILITY
    assert kind == "half" or (kind == "double") == (CAPABILITY < (9, 0))
"""


@functools.cache
def driver() -> str:
    """A folder with its library, without which nobody asks: one for all, so that one warm process starts them."""
    place = tempfile.mkdtemp(prefix="ondol-tests-driver-")
    atexit.register(shutil.rmtree, place)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", f"{place}/libnvidia-ml.so.1"], check=True)
    return place


def machine(suite: Suite, gpus: str = "Fake H1,Fake A1", **variables: str) -> Suite:
    path = [str(suite.path), str(PROGRAMS / "fake_torch"), str(PROGRAMS / "fake_machine"), *suite_path(suite)]
    first, second = (gpus.split(",") * 2)[:2]
    suite.shares_variables = True
    suite.variables |= {
        "FAKE_GPUS": gpus,
        "XDG_CACHE_HOME": str(suite.path / "cache"),  # a real driver here would be asked for this machine once
        "LD_LIBRARY_PATH": driver(),
        "FIRST": first,
        "SECOND": second,
        "TOUCHED": str(suite.path / "touched"),
        "PYTHONPATH": os.pathsep.join(path),
        **variables,
    }
    return suite


def suite_path(suite: Suite) -> list[str]:
    return [part for part in suite.variables.get("PYTHONPATH", "").split(os.pathsep) if part]


def meeting(suite: Suite) -> Suite:
    for me, other in (("left", "right"), ("right", "left")):
        os.mkfifo(suite.path / f"{me}.fifo")
        suite.write(**{f"test_{me}": MEETING.format(me=me, other=other)})
    return suite


def run(suite: Suite, *arguments: str, spec: str = "cuda") -> Result:
    return suite.pytest(
        "--ondol-device-facts=on",
        "--ondol-probe=true",
        "--ondol-retries=0",
        "--ondol-judge=off",
        *arguments,
        devices=spec,
    )


def where(result: Result) -> dict[str, set[str]]:
    """Name of the test → the devices of its attempts."""
    return {item.nodeid.split("::", 1)[-1]: {a.device for a in item.attempts} for item in result.record.items}


@pytest.fixture(autouse=True)
def no_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("start", ["auto", "spawn"])
@pytest.mark.parametrize("spec", ["cuda:0,1", "cuda:1,0"])
def test_each_device_collects_and_skips_by_its_own_facts(suite: Suite, spec: str, start: str) -> None:
    """What one model skips runs on the other, whichever of them was collected for."""
    meeting(machine(suite)).write(test_skipping=SKIPPING)
    result = run(suite, f"--ondol-start={start}", spec=spec)
    assert result.record.counts() == {"passed": 6}, result.output
    assert {name: on for name, on in where(result).items() if "new" in name} == {
        f"test_new[{n}]": {"cuda0"} for n in range(4)
    }
    assert {*where(result)["test_left"], *where(result)["test_right"]} == {"cuda0", "cuda1"}
    mode = result.record.run.mode
    told = ("Fake H1", "cuda1 (Fake A1)") if spec == "cuda:0,1" else ("Fake A1", "cuda0 (Fake H1)")
    assert mode.endswith("; collected for {}, those on {} collect for themselves".format(*told)), mode
    assert mode.startswith("forked" if start == "auto" else "spawned"), mode
    assert not result.record.notes


@pytest.mark.parametrize("start", ["auto", "spawn"])
def test_what_only_one_model_collects_runs_there_or_is_named(suite: Suite, start: str) -> None:
    meeting(machine(suite)).write(test_kinds=PARAMETRISED)
    result = run(suite, f"--ondol-start={start}")
    assert result.record.counts() == {"passed": 5}, result.output
    assert where(result)["test_kind[eighth]"] == where(result)["test_kind[quarter]"] == {"cuda0"}
    note = (
        "Fake A1 (cuda1) collects other tests: 2 of this run's items are not collected there and run on other devices only, "
        "the first is test_kinds.py::test_kind[eighth]; 1 items are collected only there and do not run (they do where "
        "its devices are named first), the first is test_kinds.py::test_kind[double]"
    )
    assert result.record.notes == [note]
    assert f"note: {note}" in result.output
    turned = run(suite, f"--ondol-start={start}", spec="cuda:1,0")
    assert turned.record.counts() == {"passed": 4}, turned.output
    assert where(turned)["test_kind[double]"] == {"cuda1"}


def test_what_every_model_skips_is_skipped_once(suite: Suite) -> None:
    machine(suite).write(test_skipping=SKIPPING.replace("(9, 0), reason", "(10, 0), reason"))
    result = run(suite)
    assert result.record.counts() == {"skipped": 4}, result.output
    assert {len(item.attempts) for item in result.record.items} == {1}


def test_a_whole_module_that_one_model_leaves_out_runs_on_the_other(suite: Suite) -> None:
    leaving = "if CAPABILITY < (9, 0):\n    pytest.skip('needs 9.0', allow_module_level=True)\n"
    meeting(machine(suite)).write(test_skipping=SKIPPING.replace("pytestmark = ", f"{leaving}pytestmark = "))
    result = run(suite)
    assert result.record.counts() == {"passed": 6}, result.output
    assert {device for name, on in where(result).items() if "new" in name for device in on} == {"cuda0"}
    (note,) = result.record.notes
    assert note.endswith(
        "4 of this run's items are not collected there and run on other devices only, the first is test_skipping.py::test_new[0]"
    )


def test_a_file_that_one_model_cannot_import_runs_on_the_other(suite: Suite) -> None:
    meeting(machine(suite)).write(test_old=SKIPPING.replace("pytestmark", "assert CAPABILITY > (8, 0)\npytestmark"))
    result = run(suite)
    assert result.record.counts() == {"passed": 6}, result.output
    assert len(result.record.notes) == 1


def test_a_model_on_which_collecting_kills_the_process_is_set_aside_and_everything_runs(suite: Suite) -> None:
    """What the first model skips was left to the other one; now nobody else can say what becomes of it."""
    skipped = SKIPPING.replace("< (9, 0), reason", ">= (9, 0), reason")
    machine(suite).write(
        test_old=f"import os, torch\nif torch.cuda.get_device_name() == 'Fake A1': os._exit(3)\n{skipped}"
    )
    result = run(suite)
    assert result.record.counts() == {"skipped": 4}, result.output
    assert {device for on in where(result).values() for device in on} == {"cuda0"}
    assert [aside.device for aside in result.record.quarantines] == ["cuda1"]


def test_one_device_of_several_models_is_collected_for_by_its_own_facts(suite: Suite) -> None:
    """The run has one model; the machine's first device is another one."""
    machine(suite).write(test_kinds=PARAMETRISED)
    result = run(suite, spec="cuda:1")
    assert result.verdicts == {"test_kind[half]": "passed", "test_kind[double]": "passed"}, result.output
    assert result.record.run.mode == "forked from the collected session"


def test_devices_of_one_model_are_forked_as_ever(suite: Suite) -> None:
    meeting(machine(suite, "Fake H1,Fake H1")).write(test_kinds=PARAMETRISED)
    result = run(suite)
    assert result.record.counts() == {"passed": 5}, result.output
    assert result.record.run.mode == "forked from the collected session"
    assert not [device for device in result.record.run.devices if device["of_other_model"]]


def test_the_slower_device_is_first_on_the_bus(suite: Suite) -> None:
    """CUDA would call the other one number 0, and each worker would have the device that the run calls by another name."""
    meeting(machine(suite, "Fake A1,Fake H1")).write(test_skipping=SKIPPING)
    result = run(suite)
    assert result.record.counts() == {"passed": 6}, result.output
    assert where(result)["test_new[0]"] == {"cuda1"}


def test_a_selection_by_cudas_own_numbers_is_not_guessed_at(suite: Suite) -> None:
    """Which device is number 0 only CUDA knows: each collects for itself, and is right."""
    meeting(machine(suite, "Fake A1,Fake H1", CUDA_VISIBLE_DEVICES="0,1", FIRST="Fake H1", SECOND="Fake A1"))
    suite.write(test_skipping=SKIPPING)
    result = run(suite)
    assert result.record.counts() == {"passed": 6}, result.output
    assert where(result)["test_new[0]"] == {"cuda0"}
    assert "those on cuda1 (CUDA's number 1) collect for themselves" in result.record.run.mode


def test_an_item_that_needs_two_devices_gets_one_of_each_model(suite: Suite) -> None:
    machine(suite).write(
        test_two="""
        import pytest, torch
        NAMES = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]

        @pytest.mark.skipif(len(NAMES) < 2, reason="one device")
        @pytest.mark.ondol(devices=2)
        def test_both(device):
            assert device.names == ("cuda0", "cuda1")
            assert NAMES == ["Fake H1", "Fake A1"] == [torch.cuda.get_device_name(n) for n in (0, 1)]
        """
    )
    result = run(suite)
    assert result.verdicts == {"test_both": "passed"}, result.output


def test_a_worker_of_another_model_that_dies_is_replaced_by_one_that_collects_for_itself(suite: Suite) -> None:
    """And its item is tried again there: the other model would skip it."""
    old = SKIPPING.replace("< (9, 0), reason", ">= (9, 0), reason").replace("== (9, 0)", "== (8, 0)")
    dying = """    died = pathlib.Path("died")
    if not died.exists():
        died.touch()
        os._exit(7)
"""
    machine(suite).write(test_old=f"import os, pathlib\n{old}{dying}")
    result = run(suite, "--ondol-retries=1")
    assert result.record.counts() == {"passed": 4}, result.output
    assert sorted(a.outcome for item in result.record.items for a in item.attempts) == ["crashed", *["passed"] * 4]
    assert {device for on in where(result).values() for device in on} == {"cuda1"}


def test_a_node_with_two_models_has_workers_that_collect_for_themselves(suite: Suite) -> None:
    meeting(machine(suite))
    for me in ("left", "right"):
        path = suite.path / f"test_{me}.py"
        path.write_text(path.read_text().replace("[device.names[0]]", "[device.names[0].removeprefix('n/')]"))
    launch = ("--launch=sh -c 'exec {agent}'", "--nodes=n", "--device-facts=on", "--probe=true")
    result = suite.ondol(*launch, "--retries=0", "--judge=off", devices="cuda")
    assert result.record.counts() == {"passed": 2}, result.output
    assert {device for on in where(result).values() for device in on} == {"n/cuda0", "n/cuda1"}


# ---------------------------------------------------------------------- which devices are of which model


H1, A1 = (80 << 30, "NVIDIA H1"), (40 << 30, "NVIDIA A1")


def chosen(monkeypatch: pytest.MonkeyPatch, spec: str, *cards: tuple[int, str], **env: str) -> devices.Fleet:
    table = {key: card for n, card in enumerate(cards) for key in (str(n), f"GPU-{n}")}
    monkeypatch.setattr(devices, "nvidia_cards", lambda: table)
    monkeypatch.setattr(devices, "nvidia_count", lambda: len(cards))
    return devices.choose(spec, env)


def others(fleet: devices.Fleet) -> list[str]:
    return [device.name for device in fleet.devices if device.of_other_model]


def test_tests_are_collected_for_the_first_device_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = chosen(monkeypatch, "cuda:2,0,1", H1, A1, A1)
    assert others(fleet) == ["cuda0"]
    assert fleet.collecting == {"CUDA_VISIBLE_DEVICES": "2,1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [device.memory for device in fleet.devices] == [40 << 30, 80 << 30, 40 << 30]


def test_a_machine_of_one_model_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = chosen(monkeypatch, "cuda", H1, H1)
    assert not others(fleet)
    assert fleet.collecting == {}


def test_devices_that_were_chosen_by_their_uuid_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = chosen(monkeypatch, "cuda", H1, A1, CUDA_VISIBLE_DEVICES="GPU-1,GPU-0")
    assert [device.model for device in fleet.devices] == ["NVIDIA A1", "NVIDIA H1"]
    assert fleet.collecting["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-0"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}, ["NVIDIA A1", "NVIDIA H1"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["CUDA's number 1", "CUDA's number 0"]),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, ["CUDA's number 0", "CUDA's number 1"]),
    ],
)
def test_numbers_are_believed_where_they_are_those_of_the_bus(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], expected: list[str]
) -> None:
    fleet = chosen(monkeypatch, "cuda", H1, A1, **env)
    assert [device.model for device in fleet.devices] == expected
    assert fleet.collecting.get("CUDA_DEVICE_ORDER") == env.get("CUDA_DEVICE_ORDER")


def test_devices_of_amd_are_told_apart_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "amd_models", lambda: ["gfx942-304cu", "gfx90a-104cu"])
    fleet = devices.choose("rocm", {})
    assert others(fleet) == ["rocm1"]


# ---------------------------------------------------------------------- what is compared


def two_models(*works: Work) -> Scheduler:
    found = [Device("d0", model="H1"), Device("d1", model="A1", of_other_model=True)]
    return build(works, [Slot("d0", "d0"), Slot("d1", "d1")], found)


def handed(scheduler: Scheduler) -> dict[int, str]:
    return {action.work: action.slot for action in scheduler.step() if isinstance(action, HandOut)}


def test_what_is_nowhere_else_any_more_is_handed_to_who_lacks_it() -> None:
    """Its error says what is wrong; waiting for a device that never comes back would say nothing."""
    scheduler = two_models(Work(0, "m", nodeid="m::0"))
    scheduler.differs(frozenset({"d1"}), [0], [])
    scheduler.device_lost("d0")
    assert handed(scheduler) == {0: "d1"}


def test_a_device_that_is_too_small_is_no_place_to_leave_an_item_to() -> None:
    found = [Device("d0", memory=80), Device("d1", memory=40, model="A1", of_other_model=True)]
    scheduler = build([Work(0, "m", memory=60)], [Slot("d0", "d0"), Slot("d1", "d1")], found)
    scheduler.differs(frozenset({"d0"}), [], [0])
    assert handed(scheduler) == {0: "d0"}


def test_an_item_that_fails_where_alone_it_is_collected_is_tried_again_there() -> None:
    scheduler = two_models(Work(0, "m", nodeid="m::0"))
    scheduler.differs(frozenset({"d1"}), [0], [])
    assert handed(scheduler) == {0: "d0"}
    scheduler.ended("d0", 0)
    scheduler.repeat(0, frozenset({"d0"}))
    assert handed(scheduler) == {0: "d0"}


def test_devices_that_are_reserved_for_an_item_are_given_back_when_they_turn_out_not_to_have_it() -> None:
    found = [Device(f"d{n}", model="H1") for n in (0, 1)] + [Device(f"d{n}", model="A1") for n in (2, 3)]
    works = [Work(n, "m") for n in range(4)] + [Work(4, "m", devices=2)]
    scheduler = build(works[:4], [Slot(d.name, d.name) for d in found], found, depth=1)
    handed(scheduler)
    scheduler.works[4] = works[4]
    scheduler.gangs.append(4)
    scheduler.step()
    assert scheduler.reserved
    unwanted = frozenset(scheduler.reserved.slot.gang)
    scheduler.differs(unwanted, [4], [])
    scheduler.step()
    assert scheduler.reserved
    assert not unwanted.intersection(scheduler.reserved.slot.gang)


def test_what_was_chosen_from_an_earlier_run_is_not_said_to_be_only_there() -> None:
    event = messages.Listed("d1", ["m::0", "m::1"], [])
    (told, *_) = models.listed(event, two_models(Work(0, "m", nodeid="m::0")), chosen=False)
    assert "1 items are collected only there" in str(told)
    assert models.listed(event, two_models(Work(0, "m", nodeid="m::0")), chosen=True) == [messages.Resume("d1")]


def test_each_model_is_compared_once_and_each_worker_goes_on() -> None:
    scheduler = two_models(Work(0, "m", nodeid="m::0"))
    event = messages.Listed("d1", ["m::1"], [])
    assert len(models.listed(event, scheduler, chosen=False)) == 2
    assert models.listed(event, scheduler, chosen=False) == [messages.Resume("d1")]
    nowhere = messages.Listed("nowhere", [], [])
    assert models.listed(nowhere, scheduler, chosen=False) == [messages.Resume("nowhere")]
