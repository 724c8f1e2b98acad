"""Rooms: unique, on usable node-local disk, gone afterwards; dead ones are swept, live ones never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ondol.host import files, filesystem, process
from ondol.room import room
from ondol_hang import hanging_mount
from people import Job, Program, needs_root

pytestmark = pytest.mark.warm

PRINT = 'echo "$TRITON_CACHE_DIR|$TMPDIR|$ONDOL_ROOM"'


Run = Callable[..., Job]


@pytest.fixture
def run(program: Program) -> Run:
    def job(store: Path, *options: str, command: str = PRINT, env: dict[str, str] | None = None) -> Job:
        words = ("run", "--store", str(store), *options, "--", "sh", "-c", command)
        return Job(program.ondol(*words, env={"HOME": os.environ.get("HOME", "/"), **(env or {})}))

    return job


def test_room_is_private_unique_and_gone(run: Run, store_path: Path, tmp_path: Path) -> None:
    jobs = [
        run(store_path, "--room-dir", str(tmp_path), command=f"{PRINT}; stat -c %a $ONDOL_ROOM; touch $TMPDIR/x")
        for _ in range(2)
    ]
    rooms = set()
    for job in jobs:
        places, mode = job.stdout.splitlines()
        cache, tmp, here = places.split("|")
        assert cache.startswith(here)
        assert tmp.startswith(here)
        assert here.startswith(str(tmp_path))
        assert mode == "700"
        assert not os.path.exists(here)
        rooms.add(here)
    assert len(rooms) == 2


def test_no_umask_locks_the_command_out_of_its_room(run: Run, store_path: Path, tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        job = run(store_path, "--room-dir", str(tmp_path), command="umask 022; echo x > $TMPDIR/y && echo fine")
    finally:
        os.umask(before)
    assert job.stdout == "fine\n", job


def test_read_only_directories_in_the_room_do_not_keep_it_alive(run: Run, store_path: Path, tmp_path: Path) -> None:
    """A job that takes its own rights away (as a module cache does) must not leave its room for ever."""
    run(
        store_path,
        "--room-dir",
        str(tmp_path),
        command="mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod -R a-w $TMPDIR/a",
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ondol-room")] == []


def test_cleaning_a_room_follows_no_link_out_of_it(run: Run, store_path: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    run(
        store_path,
        "--room-dir",
        str(tmp_path),
        command=f"ln -s {precious} $TMPDIR/link; ln -s {precious} $TRITON_CACHE_DIR/l",
    )
    assert (precious / "file").exists()


def test_kept_room_is_kept_and_never_swept(run: Run, store_path: Path, tmp_path: Path) -> None:
    job = run(store_path, "--room-dir", str(tmp_path), "--keep-room", command=f"{PRINT}; touch $TMPDIR/mine")
    kept = job.stdout.strip().split("|")[2]
    assert f"room kept: {kept}" in job.stderr
    run(store_path, "--room-dir", str(tmp_path))
    assert os.path.exists(f"{kept}/tmp/mine")


@pytest.mark.parametrize("variable", ["SLURM_TMPDIR", "RUNNER_TEMP", "TMPDIR"])
def test_node_local_directory_of_the_site_is_used(run: Run, store_path: Path, tmp_path: Path, variable: str) -> None:
    job = run(store_path, env={variable: str(tmp_path), **({"TMPDIR": "/tmp"} if variable != "TMPDIR" else {})})
    assert job.stdout.split("|")[2].startswith(str(tmp_path))


@pytest.mark.parametrize("stale", ["/no/such/directory", "relative/path", "/proc/1/nowhere", "/etc/passwd"])
def test_stale_or_hostile_tmpdir_does_not_fail_the_job(run: Run, store_path: Path, stale: str) -> None:
    """Login nodes leave a TMPDIR of a job that is long over; a file can be there too."""
    job = run(store_path, env={"TMPDIR": stale})
    assert job.status == 0
    assert job.warnings == []
    assert job.stdout.split("|")[2].startswith("/tmp/")


def test_unusable_room_dir_is_passed_over_and_said(run: Run, store_path: Path) -> None:
    job = run(store_path, "--room-dir", "/no/such/directory")
    assert job.status == 0
    assert "room-dir /no/such/directory (from command line) is not used" in job.warnings[0]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mounted"
    path.mkdir()
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


@needs_root
@pytest.mark.root
def test_noexec_directory_does_not_get_the_room(run: Run, store_path: Path, mounted: Path) -> None:
    """A helper library cannot be loaded from a noexec mount: the next candidate is taken."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", str(mounted)], check=True)
    job = run(store_path, env={"TMPDIR": str(mounted)})
    assert job.stdout.split("|")[2].startswith("/tmp/")
    job = run(store_path, "--room-dir", str(mounted))
    assert "noexec" in job.warnings[0]


@needs_root
@pytest.mark.root
def test_unused_filled_cache_is_not_called_unused_where_nobody_can_know(
    program: Program, store_path: Path, mounted: Path
) -> None:
    """On a noatime mount there is no evidence of use; the summary says so instead of guessing."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noatime", "none", str(mounted)], check=True)
    program.job(store_path, "one")
    job = program.job(store_path, "one", options=("--room-dir", str(mounted)))
    assert job.hits == 1
    assert "1 filled, used unknown (no access times here)" in job.stderr


@needs_root
@pytest.mark.root
def test_full_room_does_not_fail_the_job(program: Program, store_path: Path, mounted: Path) -> None:
    """A room too small for the fill holds what fits; the rest is compiled, or fails as it would without us."""
    kernels = [f"kernel{number}" for number in range(200)]
    program.job(store_path, *kernels)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(mounted)], check=True)
    options = ("--store", str(store_path), "--room-dir", str(mounted), "--json", str(mounted.parent / "j"))
    done = program.ondol("run", *options, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "only partly filled" in done.stderr


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("through_a_link", [False, True])
def test_tmpdir_on_a_dead_server_does_not_hold_the_job(
    run: Run, store_path: Path, tmp_path: Path, through_a_link: bool
) -> None:
    """Every access to it waits for ever; with a local directory at hand it is never touched."""
    dead = tmp_path / "dead"
    with hanging_mount(dead):
        named = dead / "inside"
        if through_a_link:
            (tmp_path / "link").symlink_to("dead")
            named = tmp_path / "link" / "inside"
        job = run(store_path, env={"TMPDIR": str(named), "SLURM_TMPDIR": str(named)})
    assert job.status == 0
    assert job.stdout.split("|")[2].startswith("/tmp/")


def test_the_file_system_of_any_path_is_told(tmp_path: Path) -> None:
    assert filesystem.fs_type("/proc/self") == "proc"
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "loop").symlink_to("loop")
    assert filesystem.fs_type(str(tmp_path / "link" / "1" / ".." / "self")) == "proc"
    assert filesystem.fs_type(str(tmp_path / "loop")) == "unknown"
    assert filesystem.fs_type(str(tmp_path)) == filesystem.fs_type(str(tmp_path / "not" / "there"))
    network = {
        kind: filesystem.is_network(kind)
        for kind in ("ext4", "nfs4", "lustre", "fuse", "fuse.sshfs", "fuse.fuse-overlayfs")
    }
    assert [kind for kind, yes in network.items() if yes] == ["nfs4", "lustre", "fuse", "fuse.sshfs"]


def test_room_of_a_killed_job_is_swept(run: Run, store_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ondol", "run", "--store", str(store_path), "--room-dir", str(tmp_path), "--"]
    killed = subprocess.Popen(
        [*command, "sh", "-c", "echo $ONDOL_ROOM; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert killed.stdout is not None
    left = killed.stdout.readline().decode().strip()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    # The command outlived its Ondol: its room must not be taken from under it.
    run(store_path, "--room-dir", str(tmp_path))
    assert os.path.isdir(left)
    killed.stdin.close()  # type: ignore[union-attr]
    killed.stdout.read()  # the command is over
    killed.stdout.close()
    run(store_path, "--room-dir", str(tmp_path))
    assert not os.path.exists(left)


def owner_file(base: Path, owner: process.Owner) -> Path:
    path = base / f"{room.PREFIX}{os.geteuid()}-{os.urandom(4).hex()}"
    path.mkdir()
    (path / "owner").write_bytes(owner.encode())
    return path


def test_sweeping_leaves_a_live_room(tmp_path: Path) -> None:
    me = process.myself()
    rooms = {
        "alive": owner_file(tmp_path, me),
        "pid reused": owner_file(tmp_path, me._replace(start="1")),
        "before the reboot": owner_file(tmp_path, me._replace(boot="another")),
        "another container": owner_file(tmp_path, me._replace(namespace="pid:[1]", pid=99999)),
        "dead": owner_file(tmp_path, me._replace(pid=2**22 + 1, start="5")),
    }
    empty = tmp_path / f"{room.PREFIX}{os.geteuid()}-between-two-calls"
    empty.mkdir()
    room.sweep(str(tmp_path))
    alive = {name for name, path in rooms.items() if path.exists()}
    assert alive == {"alive", "another container"}
    assert empty.exists()


def test_sweeping_leaves_what_is_not_ours(tmp_path: Path) -> None:
    dead = process.myself()._replace(boot="another")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = owner_file(elsewhere, dead)
    (tmp_path / f"{room.PREFIX}{os.geteuid()}-link").symlink_to(target)
    others = tmp_path / f"{room.PREFIX}{os.geteuid() + 1}-x"
    others.mkdir()
    (others / "owner").write_bytes(dead.encode())
    room.sweep(str(tmp_path))
    assert target.exists()
    assert others.exists()


def test_a_room_into_which_its_last_process_writes_while_it_is_swept_is_swept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command whose Ondol was killed makes its cache at this moment, or two jobs sweep at once. A note that somebody
    else's files are in it would keep the room for ever.
    """
    path = owner_file(tmp_path, process.myself()._replace(boot="another"))
    remove_tree = files.remove_tree

    def and_somebody_writes(room_path: str) -> bool:
        assert remove_tree(room_path)
        os.makedirs(os.path.join(room_path, "cache", "triton"))
        return False

    monkeypatch.setattr(files, "remove_tree", and_somebody_writes)
    assert room.sweep(str(tmp_path)) == 0
    monkeypatch.undo()
    os.utime(path, (0, 0))  # it has lost its owner's note, and is swept when it is old
    assert room.sweep(str(tmp_path)) == 1
    assert not path.exists()


LINK = 'readlink "$TMPDIR/torchinductor_$1"; echo "$TORCHINDUCTOR_CACHE_DIR"; echo "${LOGNAME-unset}"'


@pytest.mark.parametrize(("variable", "name"), [("USER", "ada"), ("LOGNAME", "a/b:c"), ("USERNAME", "ada")])
def test_no_part_of_a_cache_stays_below_tmpdir(store_path: Path, variable: str, name: str) -> None:
    """Some of Inductor's caches ignore its variable; in a room they lie with the rest, under the name torch looks for."""
    env = {name: value for name, value in os.environ.items() if name not in ("USER", "LOGNAME", "LNAME", "USERNAME")}
    expected = name.replace("/", "_").replace(":", "_")
    command = [sys.executable, "-m", "ondol", "run", "--store", str(store_path), "--", "sh", "-c", LINK, "sh", expected]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={**env, variable: name})
    target, cache, logname = done.stdout.split("\n")[:3]
    assert target == cache != ""
    assert logname == (name if variable == "LOGNAME" else "unset")


def test_users_own_inductor_cache_is_left_to_the_user(run: Run, store_path: Path, tmp_path: Path) -> None:
    job = run(store_path, command="ls $TMPDIR", env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert job.stdout == ""
    assert f"TORCHINDUCTOR_CACHE_DIR={tmp_path} is set and left as it is" in job.stderr


@needs_root
@pytest.mark.root
def test_user_without_a_name_does_not_break_torch(program: Program, store_path: Path) -> None:
    """UID 12345 of a container: `getpass.getuser()` is a KeyError, and with it torch before 2.13."""
    code = "import getpass, os; print(getpass.getuser(), os.path.realpath(os.environ['TMPDIR'] + '/torchinductor_' + getpass.getuser()))"
    store_path.chmod(0o755)
    arguments = ("run", "--store", str(store_path), "--", program.python, "-c", code)
    job = Job(program.ondol(*arguments, uid=12345))
    assert job.status == 0, job
    assert job.stdout.startswith("uid_12345 ")
    assert job.stdout.endswith("/cache/inductor\n")
    assert program.run([program.python, "-c", code], uid=12345).returncode != 0
    assert Job(program.ondol(*arguments, uid=12345, env={"USER": "ada"})).stdout.startswith("ada ")
