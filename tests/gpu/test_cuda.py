"""On a real GPU: out-of-bounds kernels cost their own items, contexts stay clean, devices are probed."""

from __future__ import annotations

import pytest

KERNELS = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def add_one(x, n, where, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(x + i + where, value + 1, mask=i < n)

@pytest.mark.parametrize("n", range(1000, 1040))
def test_add(n):
    x = torch.zeros(n, device="cuda")
    where = 1 << 40 if n in (1010, 1025) else 0
    add_one[(triton.cdiv(n, 256),)](x, n, where, BLOCK=256)
    assert torch.all(x == 1)
"""


def test_two_bad_kernels_among_forty_cost_two(suite) -> None:
    suite.write(test_k=KERNELS)
    plain = suite.plain()
    assert "30 failed, 10 passed" in plain.output, plain.output[-2000:]
    ours = suite.pytest(devices="cuda")
    assert ours.record.counts() == {"passed": 38, "failed": 2}, ours.output[-4000:]
    assert "forked from the collected session" in ours.output
    assert not any(item.flaky for item in ours.record.items)
    bad = [item for item in ours.record.items if item.verdict == "failed"]
    assert {item.nodeid[-5:] for item in bad} == {"1010]", "1025]"}
    assert suite.all_gone()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_computes_on_its_device(suite, start) -> None:
    suite.write(
        test_d="""
        import os, torch
        def test_sum(device):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == device.visible
            x = torch.arange(1000, device=str(device), dtype=torch.float64)
            assert x.sum().item() == 499500
        """
    )
    result = suite.pytest(f"--ondol-start={start}", devices="cuda:0")
    assert result.record.counts() == {"passed": 1}, result.output[-3000:]


def test_a_context_made_at_import_means_spawn_and_still_works(suite) -> None:
    suite.write(
        conftest="import torch\ntorch.zeros(1, device='cuda')\n",
        test_d="import torch\ndef test_1(): assert torch.ones(3, device='cuda').sum().item() == 3\n",
    )
    result = suite.pytest(devices="cuda:0")
    assert result.record.counts() == {"passed": 1}, result.output[-3000:]
    assert "spawned" in result.output


def test_a_healthy_device_passes_its_probe_after_a_crash(suite) -> None:
    suite.write(
        test_d="import os, torch\ndef test_1():\n    torch.zeros(1, device='cuda'); os.abort()\ndef test_2(): pass\n"
    )
    result = suite.pytest("--ondol-retries=0", devices="cuda:0")
    assert result.verdicts == {"test_1": "crashed", "test_2": "passed"}
    assert not result.record.quarantines


def test_device_memory_that_is_kept_is_named(suite) -> None:
    suite.write(
        test_d="""
        import torch
        keep = []
        def test_warm_up(): torch.zeros(1, device="cuda")
        def test_keeps(): keep.append(torch.zeros(512 << 18, device="cuda"))
        """
    )
    result = suite.pytest(devices="cuda:0")
    assert [k for k, _ in result.record.items[1].attempts[0].dirt if k == "device memory"] == ["device memory"]


def test_a_kernel_that_never_ends_costs_its_deadline(suite) -> None:
    suite.write(
        test_d="""
        import pytest, torch, triton
        import triton.language as tl
        @triton.jit
        def forever(x):
            while tl.load(x, volatile=True) == 0:
                pass
        @pytest.mark.ondol(timeout=20)
        def test_hang():
            x = torch.zeros(1, device="cuda", dtype=torch.int32)
            forever[(1,)](x)
            torch.cuda.synchronize()
        def test_after(): assert torch.ones(2, device="cuda").sum().item() == 2
        """
    )
    result = suite.pytest("--ondol-grace=1", devices="cuda:0")
    assert result.verdicts == {"test_hang": "timeout", "test_after": "passed"}, result.output[-3000:]
    assert suite.all_gone()
