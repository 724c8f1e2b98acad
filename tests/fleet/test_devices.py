"""Which devices, and what a worker sees of them."""

from __future__ import annotations

import os

import pytest

from ondol.errors import UsageError
from ondol.fleet import devices
from ondol.fleet.devices import choose, parse_indices, parse_memory, thread_caps

pytestmark = pytest.mark.warm_pytest


def test_lists_and_ranges_are_read() -> None:
    assert parse_indices("0-3,6") == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("text", ["", "a", "0-", "1,,2", "0,0", "-1"])
def test_nonsense_is_refused_with_advice(text) -> None:
    with pytest.raises(UsageError):
        parse_indices(text)


def test_simulated_and_cpu_slots_are_counted() -> None:
    assert [d.name for d in choose("sim:3", {}).devices] == ["sim0", "sim1", "sim2"]
    assert [d.name for d in choose("none", {}).devices] == ["cpu0"]
    with pytest.raises(UsageError):
        choose("cpu:0", {})


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES"),
        ("rocm", "HIP_VISIBLE_DEVICES"),
        ("rocm", "ROCR_VISIBLE_DEVICES"),
        ("xpu", "ZE_AFFINITY_MASK"),
        ("ascend", "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)
def test_a_list_that_was_narrowed_before_is_composed_with(kind, variable) -> None:
    fleet = choose(f"{kind}:1,2", {variable: "4,6,7"})
    assert [d.visible for d in fleet.devices] == ["6", "7"]
    environment = fleet.environment(fleet.devices[1:2])
    assert environment[variable] == "7"
    assert fleet.environment(fleet.devices)[variable] == "6,7"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"ROCR_VISIBLE_DEVICES": "1"}),
        ({"ROCR_VISIBLE_DEVICES": "4,6"}, {"ROCR_VISIBLE_DEVICES": "6"}),
        ({"HIP_VISIBLE_DEVICES": "4,6"}, {"HIP_VISIBLE_DEVICES": "6"}),
        ({"CUDA_VISIBLE_DEVICES": "4,6"}, {"CUDA_VISIBLE_DEVICES": "6"}),
        ({"ROCR_VISIBLE_DEVICES": "4,6", "HIP_VISIBLE_DEVICES": "0,1"}, {"HIP_VISIBLE_DEVICES": "1"}),
    ],
)
def test_an_amd_device_is_named_once(before: dict[str, str], after: dict[str, str]) -> None:
    """HIP counts inside what ROCR leaves: 1 in both is the second of one device, which is none."""
    fleet = choose("rocm:0,1", before)
    environment = fleet.environment(fleet.devices[1:])
    assert environment == {**after, "ONDOL_DEVICE": "rocm1"}


def test_uuids_survive(monkeypatch) -> None:
    fleet = choose("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"})
    assert fleet.environment([d for d in fleet.devices if d.name == "cuda1"])["CUDA_VISIBLE_DEVICES"] == "GPU-bb"


def test_a_device_that_is_not_there_is_said_with_what_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        choose("cuda:5", {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "there is no cuda device 5" in str(caught.value)
    assert "2 can be used" in str(caught.value)


def test_without_an_accelerator_auto_uses_cpu_slots(monkeypatch) -> None:
    monkeypatch.setattr(devices, "_vendor_here", lambda env: None)
    fleet = choose("auto", {})
    assert {d.kind for d in fleet.devices} == {"cpu"}
    assert "no accelerator" in fleet.how


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles", "-1,0"])
@pytest.mark.parametrize("gpus", [0, 8])
def test_hidden_devices_are_not_used_and_auto_uses_cpu_slots(monkeypatch, gpus, hidden) -> None:
    """`CUDA_VISIBLE_DEVICES= pytest …` is how people run a suite on the processor alone; Slurm says NoDevFiles."""
    monkeypatch.setattr(devices, "nvidia_count", lambda: gpus)
    fleet = choose("auto", {"CUDA_VISIBLE_DEVICES": hidden})
    assert {d.kind for d in fleet.devices} == {"cpu"}
    if gpus or hidden:
        assert fleet.how.startswith(f"CUDA_VISIBLE_DEVICES={hidden} hides all devices: ")
    with pytest.raises(UsageError, match="there is no cuda device 0"):
        choose("cuda", {"CUDA_VISIBLE_DEVICES": hidden})


def test_a_list_ends_where_cuda_stops_to_read_it(monkeypatch) -> None:
    monkeypatch.setattr(devices, "nvidia_count", lambda: 8)
    assert [d.visible for d in choose("auto", {"CUDA_VISIBLE_DEVICES": "4,5,-1,6"}).devices] == ["4", "5"]


def test_one_more_variable_can_be_named() -> None:
    fleet = choose("sim:2", {}, ("MY_NPU",))
    assert fleet.environment([d for d in fleet.devices if d.name == "sim1"])["MY_NPU"] == "1"


def test_thread_pools_share_the_cores_and_what_the_user_set_stays() -> None:
    caps = thread_caps(10_000, {"OMP_NUM_THREADS": "7"})
    assert "OMP_NUM_THREADS" not in caps
    assert caps["MKL_NUM_THREADS"] == "1"
    assert thread_caps(1, {}) == {}, "one worker shares with nobody"


@pytest.mark.parametrize(
    ("text", "size"), [("20GiB", 20 << 30), ("1.5 GB", 1_500_000_000), ("512", 512), ("2KiB", 2048), (77, 77)]
)
def test_memory_is_read_as_people_write_it(text, size) -> None:
    assert parse_memory(text) == size


def test_memory_nonsense_is_refused() -> None:
    with pytest.raises(UsageError):
        parse_memory("lots")


# ---------------------------------------------------------------------- in a real run


def test_a_worker_sees_its_device_and_nothing_else(suite) -> None:
    suite.write(
        test_d="""
        import os, pytest
        @pytest.mark.parametrize("n", range(4))
        def test_n(n, device):
            assert os.environ["MINE"] == device.visible == os.environ["ONDOL_DEVICE"][-1]
            assert str(device) == "sim"
            print("saw", device.names)
            assert os.environ["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 2))
        """
    )
    result = suite.pytest("--ondol-device-env=MINE", "-rA", devices="sim:2")
    assert set(result.verdicts.values()) == {"passed"}, result.output


def test_items_for_several_devices_get_them_all_at_once(suite) -> None:
    suite.write(
        test_d="""
        import os, pytest
        @pytest.mark.parametrize("n", range(6))
        def test_one(n, device): assert len(device.names) == 1
        @pytest.mark.ondol(devices=2)
        def test_two(device):
            assert device.names == ("sim0", "sim1")
            assert os.environ["MINE"] == "0,1"
        @pytest.mark.ondol(devices=3)
        def test_three(device): pass
        """
    )
    result = suite.pytest("--ondol-device-env=MINE", devices="sim:2")
    assert result.verdicts.pop("test_three") == "error"
    assert "needs 3 devices, there are 2" in result.output
    assert {v for k, v in result.verdicts.items() if k != "test_three"} == {"passed"}, result.output


def test_a_group_never_runs_at_the_same_time(suite) -> None:
    body = """
        import os, pytest, select
        @pytest.mark.ondol(group="port")
        @pytest.mark.parametrize("n", range(4))
        def test_n(n):
            fd = os.open("lock", os.O_CREAT | os.O_EXCL)
            select.select([], [], [], 0.02)
            os.close(fd); os.unlink("lock")
        def test_other(): pass
        """
    suite.write(test_a=body, test_b=body)
    result = suite.pytest("--ondol-judge=off", devices="sim:3")
    assert set(result.verdicts.values()) == {"passed"}, result.output


def test_a_mistake_in_the_marker_is_a_usage_error(suite) -> None:
    suite.write(test_d="import pytest\n@pytest.mark.ondol(device=2)\ndef test_1(): pass\n")
    result = suite.pytest()
    assert result.status == 4
    assert "mark.ondol takes" in result.output


# ---------------------------------------------------------------------- how workers are made


def test_a_thread_in_the_controller_makes_workers_be_spawned_and_says_why(suite) -> None:
    suite.write(
        conftest="import threading\nthreading.Thread(target=threading.Event().wait, name='poller', daemon=True).start()\n",
        test_a="def test_1(): pass\ndef test_2(): assert 0\n",
        sub__test_b="def test_3(tmp_path): pass\n",
    )
    result = suite.pytest(devices="cpu:2")
    assert {k.split("::")[-1]: v for k, v in result.verdicts.items()} == {
        "test_1": "passed",
        "test_2": "failed",
        "test_3": "passed",
    }
    assert "spawned, each collecting what it is sent" in result.output
    assert "Python threads are running after collection: poller, started at conftest.py:2 (" in result.output
    assert suite.all_gone()


def test_an_open_device_file_is_a_reason_not_to_fork(monkeypatch) -> None:
    from ondol.fleet import fork_check, known_leftovers

    monkeypatch.setattr(known_leftovers, "of_thread", lambda name: True)  # those of other tests' servers
    monkeypatch.setattr(fork_check, "DEVICE_FILES", ("/dev/zero",))
    assert "/dev/zero" not in (fork_check.reason() or "")
    fd = os.open("/dev/zero", os.O_RDONLY)
    try:
        assert "/dev/zero" in (fork_check.reason() or "")
    finally:
        os.close(fd)


def test_an_initialised_runtime_is_a_reason_not_to_fork(monkeypatch) -> None:
    import sys
    import types

    from ondol.fleet import fork_check, known_leftovers

    monkeypatch.setattr(known_leftovers, "of_thread", lambda name: True)  # those of other tests' servers
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert "torch.cuda was initialised" in (fork_check.reason() or "")


def test_a_spawned_worker_that_collects_something_else_says_what(suite) -> None:
    suite.write(
        test_a="""
        import os, pytest
        ids = ["here"] if "ONDOL_DEVICE" in os.environ else ["there"]
        @pytest.mark.parametrize("x", ids)
        def test_1(x): pass
        def test_2(): pass
        """
    )
    result = suite.pytest("--ondol-start=spawn", devices="sim:1")
    assert result.verdicts == {"test_1[there]": "error", "test_2": "passed"}
    assert "was collected by the controller, not by this worker" in result.output
    assert "test_1[here]" in result.output


@pytest.mark.plugins("xdist")
@pytest.mark.parametrize(
    ("flag", "says"), [("-n2", "but --devices cpu:1 makes 1; nothing was run"), ("--pdb", "type: pytest -p no:ondol")]
)
def test_what_cannot_work_together_is_said(suite, flag, says) -> None:
    suite.write(test_a="def test_1(): pass\n")
    result = suite.pytest(flag)
    assert result.status == 4
    assert says in result.output


def test_durations_are_remembered_and_the_longest_goes_first(suite) -> None:
    suite.write(
        test_a="def test_short(): pass\n",
        test_b="import select\ndef test_long():\n    select.select([], [], [], 0.4)\n",
        test_c="def test_short(): pass\n",
    )
    flags = ["--ondol-estimates=history.json"]
    first = {i.nodeid: i.attempts[0].device for i in suite.pytest(*flags, devices="sim:2").record.items}
    assert first["test_a.py::test_short"] == "sim0", "nothing is known: the collected order"
    second = {i.nodeid: i.attempts[0].device for i in suite.pytest(*flags, devices="sim:2").record.items}
    assert second["test_b.py::test_long"] == "sim0", "the first slot takes the longest"
