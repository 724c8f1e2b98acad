"""The lock of last resort, made of plain files: one holder at a time, whoever dies, whoever is slow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ondol.guard import lease
from ondol.guard.lease import PATIENCE, Lease
from ondol.host import files, process
from people import ROOT


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def elsewhere(base: str) -> None:
    """A lease whose holder is on another machine of the same name, pid and all."""
    me = process.myself()._replace(boot="another machine")
    Path(f"{base}.000007").write_bytes(b"held 000000000000\n" + me.encode())


def test_only_one_gets_it(base: str) -> None:
    one, other = Lease(base), Lease(base)
    assert one.attempt()
    assert not other.attempt()
    assert one.release()
    assert other.attempt()
    assert not one.attempt()
    assert other.release()


def test_holder_on_another_machine_is_not_taken_for_dead(base: str, elsewhere: None) -> None:
    """Its pid means nothing here, nor does its clock: only its silence, on ours."""
    clock = Clock()
    waiter = Lease(base, clock)
    assert not waiter.attempt()
    clock.now += PATIENCE - 1
    assert not waiter.attempt()
    path = Path(f"{base}.000007")
    path.write_bytes(path.read_bytes().replace(b"held 000000000000", b"held 000000000001"))
    clock.now += PATIENCE - 1
    assert not waiter.attempt()
    clock.now += PATIENCE - 1
    assert not waiter.attempt()
    clock.now += 2
    assert waiter.attempt()
    assert waiter.release()


def test_lease_of_a_process_that_died_is_not_waited_for(base: str) -> None:
    script = f"from ondol.guard.lease import Lease; import os; assert Lease({base!r}).attempt(); os._exit(0)"
    subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT / "src")}, check=True)
    waiter = Lease(base)
    assert waiter.attempt()
    waiter.release()


def test_zombie_is_not_taken_for_alive(base: str) -> None:
    """Killed, and its parent (a container without an init) has not noticed."""
    script = f"from ondol.guard.lease import Lease; import os; assert Lease({base!r}).attempt(); os._exit(0)"
    holder = subprocess.Popen([sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT / "src")})
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    waiter = Lease(base)
    assert waiter.attempt()
    waiter.release()
    assert holder.wait() == 0


def test_file_that_was_just_created_is_not_taken_for_abandoned(base: str) -> None:
    """Between creating it and writing into it there is a moment; a machine may even crash in it."""
    Path(f"{base}.000001").touch()
    clock = Clock()
    waiter = Lease(base, clock)
    assert not waiter.attempt()
    clock.now += PATIENCE + 1
    assert waiter.attempt()
    waiter.release()


def _meanwhile(monkeypatch: pytest.MonkeyPatch, slow: Lease, others: object) -> None:
    """`others` happens after `slow` has found the newest lease to be over, before it acts on that."""
    judge = slow._is_over

    def judging(number: int) -> bool:
        over = judge(number)
        monkeypatch.setattr(slow, "_is_over", judge)
        others()  # type: ignore[operator]
        return over

    monkeypatch.setattr(slow, "_is_over", judging)


def test_of_two_that_find_the_same_dead_holder_one_wins(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Lease(base)
    assert first.attempt()
    assert first.release()
    quick, slow = Lease(base), Lease(base)
    _meanwhile(monkeypatch, slow, quick.attempt)

    assert not slow.attempt()

    assert quick.release(), "it is still the one"


def test_one_that_slept_through_many_leases_does_not_find_its_number_free(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files are removed, so creating "the next one" works although there are newer ones. It must notice."""
    first = Lease(base)
    assert first.attempt()
    assert first.release()
    holder = Lease(base)

    def many() -> None:
        for _ in range(20):
            other = Lease(base)
            assert other.attempt()
            assert other.release()
        assert holder.attempt()

    slow = Lease(base)
    _meanwhile(monkeypatch, slow, many)

    assert not slow.attempt()

    assert holder.release(), "it is still the one"


def test_files_do_not_pile_up(base: str) -> None:
    for _ in range(50):
        one = Lease(base)
        assert one.attempt()
        assert one.release()
    assert len(os.listdir(os.path.dirname(base))) <= lease._KEPT + 1


def test_holder_that_stood_still_for_too_long_knows_that_it_lost(base: str) -> None:
    holder, clock = Lease(base), Clock()
    assert holder.attempt()
    other = Lease(base, clock)
    assert not other.attempt()
    clock.now += PATIENCE + 1
    assert other.attempt()
    assert not holder.release()
    assert other.release()


def test_full_disk_leaves_no_lease_behind(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        Lease(base).attempt()
    assert os.listdir(os.path.dirname(base)) == []


class Crowd(RuleBasedStateMachine):
    """Some that take, give back, die, stand still and wake up again, in any order, with a clock of the test's own."""

    SIZE = 4

    @initialize()
    def begin(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a beat is synced, a thousand times here
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.clock = Clock()
        self.dead: set[str] = set()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lease, "_beating", lambda _tick: lambda: None)
        self.patch.setattr(process, "certainly_dead", lambda owner: owner.start in self.dead)
        self.names = iter(range(10_000))
        self.members: list[Lease] = []
        self.identities: list[str] = []
        self.holds: list[bool] = []
        self.silent_since: list[float | None] = []
        for _ in range(self.SIZE):
            self._join()

    def _join(self) -> None:
        self.members.append(Lease(os.path.join(self.folder.name, "lock"), self.clock))
        self.identities.append(f"process {next(self.names)}")
        self.holds.append(False)
        self.silent_since.append(None)

    member = st.integers(0, SIZE - 1)

    @rule(one=member)
    def attempt(self, one: int) -> None:
        if not self.holds[one]:
            me = process.Owner(1, self.identities[one], process.boot_id(), "")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(process, "myself", lambda: me)
                self.holds[one] = self.members[one].attempt()
            self.silent_since[one] = None

    @rule(one=member)
    def release(self, one: int) -> None:
        if self.holds[one]:
            self.members[one].release()
            self.holds[one] = False

    @rule(one=member)
    def die(self, one: int) -> None:
        self.dead.add(self.identities[one])
        if self.holds[one]:
            os.close(self.members[one]._fd)
        self.members[one] = Lease(os.path.join(self.folder.name, "lock"), self.clock)
        self.identities[one] = f"process {next(self.names)}"
        self.holds[one] = False

    @rule(one=member)
    def stand_still(self, one: int) -> None:
        if self.holds[one] and self.silent_since[one] is None:
            self.silent_since[one] = self.clock.now

    @rule(seconds=st.floats(1, PATIENCE))
    def time_passes(self, seconds: float) -> None:
        """Those that do not stand still beat; nobody is silent for long without wanting to."""
        step = seconds / 4
        for beat in range(4):
            self.clock.now += step
            for one, holding in enumerate(self.holds):
                if holding and self.silent_since[one] is None:
                    self.members[one]._tick(int(self.clock.now * 1000) % 10**9 + beat)

    @precondition(lambda self: hasattr(self, "holds"))
    @invariant()
    def at_most_one_that_was_not_silent(self) -> None:
        silent = [self.clock.now - since if since else 0.0 for since in self.silent_since]
        assert sum(holding and still <= PATIENCE for holding, still in zip(self.holds, silent, strict=True)) <= 1

    def teardown(self) -> None:
        if hasattr(self, "holds"):
            for one, holding in enumerate(self.holds):
                if holding:
                    self.members[one].release()
            self.patch.undo()
            self.folder.cleanup()


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.fault
def test_crowd_that_dies_inside_never_lets_two_in(base: str) -> None:
    """Real processes, killed by real signals while they hold it: the next one gets it, and never two at once."""
    program = [sys.executable, str(ROOT / "tests" / "programs" / "lease_worker.py"), base, f"{base}-inside", "12"]
    env = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    said: list[str] = []
    deaths = 0
    seed = 0
    while deaths < 10:
        crowd = [
            subprocess.Popen([*program, f"{seed}-{number}"], env=env, stdout=subprocess.PIPE, text=True)
            for number in range(6)
        ]
        for one in crowd:
            text, _ = one.communicate(timeout=120)
            said += text.splitlines()
            assert one.returncode in (0, -9)
            deaths += one.returncode == -9
        seed += 1
    assert set(said) == {"ok"}
