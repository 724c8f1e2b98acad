"""A fork takes along one thread only: a pool that libraries made while tests were imported is lost in every worker.

Then a worker waits for threads that do not exist, 30 minutes a test. Pools are ended before the fork where their
library can do that; what is left is named, and workers are spawned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.test_hygiene_noise import findings
from ondol.fleet import fork_check, known_leftovers, threads
from people import ROOT
from suites import Result, Suite

real = pytest.mark.real


def with_libraries(suite: Suite) -> Suite:
    """It can import torch, scikit-learn, polars and threadpoolctl."""
    tools, suites = ROOT / ".build" / "tools", ROOT / ".build" / "suites"
    for one in (suites, tools):
        assert one.is_dir(), f"make test installs it; for pytest alone: make .build/{one.name}"
    [packages] = (tools / "lib").glob("python3*/site-packages")
    suite.variables["PYTHONPATH"] = os.pathsep.join(map(str, [suite.path, suites, packages]))
    suite.patience = 500.0  # compiling takes a minute on a busy machine
    return suite


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose `team` makes a pool of GNU OpenMP, and returns how large it is."""
    place = tmp_path_factory.mktemp("team")
    (place / "team.c").write_text(
        "#include <omp.h>\nint team(void){int n=0;\n#pragma omp parallel\n#pragma omp atomic\nn++;return n;}\n"
    )
    subprocess.run(["cc", "-fopenmp", "-shared", "-fPIC", "-o", place / "team.so", place / "team.c"], check=True)
    return place / "team.so"


#: What looks for unraisable exceptions collects all garbage at the end: half a second where torch is loaded.
FEW = ("-p", "no:asyncio", "-p", "no:unraisableexception")


def run(suite: Suite, *arguments: str) -> Result:
    """With a deadline that a worker that hangs reaches, and no other attempt."""
    options = ("--ondol-timeout=300", "--ondol-judge=off", "--ondol-retries=0")
    return suite.pytest(*options, *FEW, *arguments)


TORCH = """
    import torch
    A = torch.rand(600, 600)
    REFERENCE = torch.softmax(A @ A, -1)
    def test_same(): assert torch.allclose(torch.softmax(A @ A, -1), REFERENCE)
    def test_again(): assert torch.allclose(torch.softmax(A @ A, -1), REFERENCE)
"""
SKLEARN = """
    import numpy
    from sklearn.ensemble import HistGradientBoostingClassifier
    X = numpy.random.default_rng(0).random((20000, 10))
    Y = (X[:, 0] > 0.5).astype(int)
    def fitted(): return HistGradientBoostingClassifier(max_iter=3).fit(X, Y).score(X, Y)
    SCORE = fitted()
    def test_same(): assert abs(fitted() - SCORE) < 0.01
    def test_again(): assert abs(fitted() - SCORE) < 0.01
"""
POLARS = """
    import polars
    FRAME = polars.DataFrame({"a": [1, 2, 2], "b": [1, 2, 3]})
    def total(): return FRAME.lazy().group_by("a").agg(polars.col("b").sum()).sort("a").collect().to_dicts()
    REFERENCE = total()
    def test_same(): assert total() == REFERENCE
    def test_again(): assert total() == REFERENCE
"""


@real
def test_a_pool_that_no_fork_survives_is_named_and_workers_are_spawned(suite: Suite) -> None:
    result = run(with_libraries(suite).write(test_pool=POLARS))
    assert result.record.counts() == {"passed": 2}, result.output
    mode = result.record.run.mode
    assert mode.startswith("spawned"), mode
    for word in ("polars", "test_pool.py", "fixture"):
        assert word in mode, mode
    assert mode in " ".join(result.output.split()), "the summary says it too"


SEEN = """
    import json, os, subprocess, sys, threading
    import numpy, threadpoolctl
    from library import use, size

    use()

    def say(name, value):
        with open(os.environ["LOG"], "a") as log:
            log.write(json.dumps([name, value]) + "\\n")

    def limits(): return {k: v for k, v in os.environ.items() if k.endswith(("_NUM_THREADS", "_MAXIMUM_THREADS"))}
    def pools(): return sorted([p["internal_api"], p["num_threads"], p["prefix"]] for p in threadpoolctl.threadpool_info())
    AT_IMPORT = [limits(), pools(), size()]

    def test_numbers():
        say("at import", AT_IMPORT)
        say("in a test", [limits(), pools(), size()])

    def test_in_a_thread():
        thread = threading.Thread(target=lambda: say("thread", [pools(), size()]))
        thread.start()
        thread.join()

    def test_in_a_process():
        program = "import os; print(sorted(k for k in os.environ if k.endswith(('_NUM_THREADS', '_MAXIMUM_THREADS'))))"
        say("process", subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
"""


def seen_by_both(suite: Suite, library: str, **files: str) -> tuple[Result, Result]:
    """`SEEN` by plain pytest, and by us together with others."""
    with_libraries(suite).write(library=library, test_seen=SEEN, **files)
    return suite.plain(*FEW, "test_seen.py"), run(suite)


def same_pools(plain: Result, ours: Result) -> None:
    """As module-level code sees them, too: a limit for the time of the collection would be seen by both."""
    assert len(plain.log) == 4, plain.output
    assert ours.record.run.mode.startswith("forked"), ours.record.run.mode
    assert sorted(ours.log) == sorted(plain.log)


@pytest.fixture(scope="module")
def with_torch(new_suite: Callable[[], Suite]) -> tuple[Result, Result]:
    torch = """
        import torch
        def use(): torch.softmax(torch.rand(600, 600), -1)
        size = torch.get_num_threads
    """
    return seen_by_both(new_suite(), torch, test_torch=TORCH)


def ended_and_forked(result: Result, name: str) -> None:
    items = [item for item in result.record.items if item.nodeid.startswith(name)]
    assert [item.verdict for item in items] == ["passed", "passed"], result.output
    assert result.record.run.mode.startswith("forked"), result.record.run.mode


@real
def test_a_pool_of_openmp_made_at_import_is_ended_and_workers_are_forked(with_torch) -> None:
    ended_and_forked(with_torch[1], "test_torch.py")


@real
def test_a_pool_of_a_librarys_own_openmp_made_at_import_is_ended_too(suite: Suite) -> None:
    ended_and_forked(run(with_libraries(suite).write(test_sklearn=SKLEARN)), "test_sklearn.py")


@real
def test_what_tests_see_of_pools_is_what_plain_pytest_shows(with_torch) -> None:
    same_pools(*with_torch)


@real
def test_what_tests_see_of_limits_of_their_own_is_what_plain_pytest_shows(suite: Suite, team: Path) -> None:
    """Of GNU OpenMP alone, and of NumPy's pool: torch needs seconds to be imported."""
    suite.variables |= {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}
    plain, ours = seen_by_both(suite, f"import ctypes\nuse = size = ctypes.CDLL({str(team)!r}).team\n")
    same_pools(plain, ours)
    assert json.loads(ours.log[0])[1][2] == 3, "a pool of as many as were asked for"


@pytest.fixture(scope="module")
def harmless_threads(new_suite: Callable[[], Suite]) -> Result:
    """`torch.set_num_threads` in a conftest starts those of a pool that torch replaces in a fork; others are known."""
    suite = with_libraries(new_suite()).write(
        conftest="import gc\ngc.disable()  # a quarter of the import\nimport torch\ntorch.set_num_threads(2)\n",
        test_quantised="""
        import torch
        def test_uses_that_pool():
            torch.backends.quantized.engine = "qnnpack"
            assert torch.get_num_threads() == 2
            numbers = torch.quantize_per_tensor(torch.rand(512, 512), 0.1, 0, torch.quint8)
            torch.ao.nn.quantized.Linear(512, 512)(numbers)
        """,
        test_known="""
        import os, threading, torch, tqdm
        import torch._inductor.config
        from torch._inductor.async_compile import AsyncCompile
        torch._inductor.config.compile_threads = 2
        AsyncCompile.process_pool()
        AsyncCompile.pool().submit(os.getpid).result()
        bar = tqdm.tqdm(range(3))
        next(iter(bar))
        keep = []
        def test_compile():
            AsyncCompile.process_pool()
            assert torch.compile(lambda x: torch.sin(x) + 2 * x)(torch.zeros(4)).sum() == 0
        def test_bar():
            for _ in tqdm.tqdm(range(3)): pass
        def test_pool(): assert AsyncCompile.pool().submit(os.getpid).result() == os.getpid()
        def test_own_pipe(): keep.append(os.pipe())
        def test_own_thread(): threading.Thread(target=threading.Event().wait, name="left-over", daemon=True).start()
        """,
    )
    suite.variables |= {
        "TORCHINDUCTOR_CACHE_DIR": str(suite.path / "cache"),
        # Plain C++ is enough, and compiles in a third of the time.
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    return run(suite, "-p", "no:warnings")


@real
@pytest.mark.parametrize("name", ["test_uses_that_pool", "test_compile", "test_bar", "test_pool"])
def test_threads_known_to_be_harmless_or_made_anew_do_not_prevent_a_fork(harmless_threads: Result, name: str) -> None:
    assert harmless_threads.verdicts[name] == "passed", harmless_threads.output
    assert harmless_threads.record.run.mode.startswith("forked"), harmless_threads.record.run.mode


@real
def test_what_frameworks_start_once_is_known_and_what_items_leave_is_still_named(harmless_threads: Result) -> None:
    """Inductor's compile pool (a process, its pipes, its threads) and tqdm's monitor stay for the life of a process.
    A worker has them anew, from its own items."""
    assert harmless_threads.record.run.mode.startswith("forked"), "else they are there before any item"
    found = findings(harmless_threads)
    assert list(found) == ["test_own_pipe", "test_own_thread"], found
    assert [what.partition(" ")[0] for what in found["test_own_pipe"]] == ["descriptor:"] * 2
    assert found["test_own_thread"] == ["thread: left-over"]


def test_a_python_thread_is_named_with_the_line_that_started_it(suite: Suite) -> None:
    suite.write(
        helper="import concurrent.futures as f\npool = f.ThreadPoolExecutor(1, 'mine')\ndef use():\n    pool.submit(int)\n",
        test_t="import helper\n\nhelper.use()\n\ndef test_1(): pass\n",
    )
    result = suite.pytest()
    assert result.record.counts() == {"passed": 1}
    assert "mine_0, started at helper.py:4" in result.record.run.mode, result.record.run.mode


# ---------------------------------------------------------------------- the trial

TRIAL = """
import json, os, sys, time
from ondol.fleet import fork_check
{}
before = len(os.listdir("/proc/self/task"))
print(json.dumps([fork_check.trial_fork({{}}, patience=PATIENCE), len(os.listdir("/proc/self/task")) - before]))
"""
#: A library that works in the process where it was imported, and does this in a fork of it.
STICKY = """
class Device:
    home = os.getpid()
    def is_available(self): return True
class Torch:
    cuda = Device()
    def ones(self, *shape, device):
        if os.getpid() != Device.home:
            {}
        return self
sys.modules["torch"] = Torch()
"""


def tried(beginning: str, patience: float = 60.0) -> tuple[str | None, int]:
    """Impatient only where it is known to hang: a busy machine takes its time."""
    script = TRIAL.format(beginning).replace("PATIENCE", str(patience))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said, threads = json.loads(done.stdout)
    return said, threads


def test_a_device_that_fails_or_hangs_in_a_fork_is_found_before_a_worker_needs_it() -> None:
    why, _ = tried(STICKY.format("raise RuntimeError('cannot re-initialise')"))
    assert why is not None
    assert "cannot re-initialise" in why
    why, _ = tried(STICKY.format("time.sleep(1000)"), patience=0.5)
    assert why is not None
    assert "no answer within 0.5 seconds" in why
    assert "killed by SIGKILL" in str(tried(STICKY.format("os.kill(os.getpid(), 9)"))[0])
    assert tried(STICKY.format("pass"))[0] is None


def test_nothing_is_tried_where_no_such_library_is_loaded() -> None:
    """A trial costs a fork, and every suite would pay for it."""
    assert tried("os.fork = None") == (None, 0)


def test_a_parallel_region_that_does_not_end_in_a_fork_is_found(team: Path) -> None:
    """The real thing: a pool of GNU OpenMP that nobody ended."""
    load = f"import ctypes\nos.environ['OMP_NUM_THREADS'] = '3'\nteam = ctypes.CDLL({str(team)!r})\nassert team.team() == 3\n"
    why, _ = tried(load, patience=0.5)
    assert why is not None
    assert "no answer" in why
    why, threads = tried(load + "from ondol.fleet import threads\nthreads.end_pools()\n")
    assert (why, threads) == (None, 0), "and the trial starts no thread in this process"


def test_the_run_falls_back_to_spawned_workers_and_says_why(suite: Suite) -> None:
    suite.write(
        fakes="import os, sys, time\n" + STICKY.format("raise RuntimeError('cannot re-initialise')"),
        test_a="import fakes\ndef test_1(): pass\ndef test_2(): pass\n",
    )
    result = suite.pytest()
    assert result.record.counts() == {"passed": 2}, result.output
    assert result.record.run.mode.startswith("spawned"), result.record.run.mode
    assert "cannot re-initialise" in result.record.run.mode
    assert result.output.count("cannot re-initialise") == 1


DRIVER = """
#include <pthread.h>
#include <unistd.h>
static void *wait(void *nothing) { for (;;) pause(); return nothing; }
int begin(void) { pthread_t thread; return pthread_create(&thread, 0, wait, 0); }
"""


@pytest.mark.parametrize("torch_is_loaded", [True, False])
def test_a_thread_of_a_driver_without_an_open_device_is_left_to_the_trial(
    suite: Suite, tmp_path: Path, torch_is_loaded: bool
) -> None:
    """Drivers keep one when they are merely loaded. Only torch's devices are tried out; without it nobody knows."""
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.580"
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-o", library, tmp_path / "driver.c"], check=True)
    suite.write(
        fakes="import os, sys, time\n" + (STICKY.format("pass") if torch_is_loaded else ""),
        test_a=f"import ctypes, fakes\nassert ctypes.CDLL({str(library)!r}).begin() == 0\n"
        "def test_1(): pass\ndef test_2(): pass\n",
    )
    result = suite.pytest()
    assert result.record.counts() == {"passed": 2}, result.output
    mode = result.record.run.mode
    assert mode.startswith("forked" if torch_is_loaded else "spawned"), mode
    assert ("libcuda.so.580" in mode) is not torch_is_loaded


def test_an_open_device_is_blamed_before_the_threads_that_its_driver_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_leftovers, "of_thread", lambda name: True)  # those of other tests' servers
    monkeypatch.setattr(fork_check, "open_devices", lambda: ["/dev/nvidiactl"])
    monkeypatch.setattr(threads, "lost", lambda: [threads.Native(1, "cuda0000340000e", "/lib/libcuda.so.1")])
    assert fork_check.reason("conftest.py:12 (x)") == (
        "a device is open after collection: /dev/nvidiactl; touched by conftest.py:12 (x); "
        "in a fixture or a test instead, it would let workers start in milliseconds"
    )
