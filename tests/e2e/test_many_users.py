"""One store, many users: named writers share, anybody else publishes for themselves alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from handmade import write_triton_entry
from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root, pytest.mark.warm]

ALICE, BOB, MALLORY = 2001, 2002, 2003  # without passwd entries, as in most containers


@pytest.fixture
def store(program: Program, public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = public / f"store-{request.node.name.replace('[', '-').strip(']').replace('/', '_')}"
    made = program.ondol("store", "init", str(path), "--writers", f"{ALICE},{BOB}")
    assert made.returncode == 0, made.stderr
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000], ids=oct)
@pytest.mark.parametrize("home", ["unset", "/", "/nonexistent"])
def test_what_one_writer_makes_serves_the_other(program: Program, store: Path, umask: int, home: str) -> None:
    """What one writer makes serves the other, and root, whatever their umask and home."""
    env = {} if home == "unset" else {"HOME": home}
    first = program.job(store, "a", "b", uid=ALICE, umask=umask, env=env)
    assert (first.status, first.compiled, first.warnings) == (0, 2, []), first
    second = program.job(store, "a", "b", "c", uid=BOB, umask=umask, env=env)
    assert (second.status, second.hits, second.compiled, second.warnings) == (0, 2, 1, []), second
    third = program.job(store, "a", "b", "c", umask=umask, env=env)
    assert (third.hits, third.compiled, third.warnings) == (3, 0, []), third


def test_roots_entries_serve_everybody(program: Program, store: Path) -> None:
    program.job(store, "a", umask=0o077)
    assert program.job(store, "a", uid=ALICE).hits == 1
    assert program.job(store, "a", uid=MALLORY).hits == 1


def test_unnamed_users_entries_do_not_reach_others(program: Program, store: Path) -> None:
    assert program.job(store, "evil", uid=MALLORY).compiled == 1
    assert program.job(store, "evil", uid=MALLORY).hits == 1
    for uid in (ALICE, BOB, None):
        assert program.job(store, "evil", uid=uid, options=("--publish", "never")).hits == 0


def test_writers_named_by_a_stranger_are_not_believed(program: Program, public: Path) -> None:
    """A store made by somebody we do not trust may claim what it likes; `--trust` is the reader's own word."""
    path = public / "strangers-store"
    path.mkdir()
    os.chown(path, MALLORY, MALLORY)
    made = program.ondol("store", "init", str(path), "--writers", f"{MALLORY},{ALICE}", uid=MALLORY)
    assert made.returncode == 0, made.stderr
    program.job(path, "a", uid=MALLORY)
    assert program.job(path, "a", uid=BOB, options=("--publish", "never")).hits == 0
    trusting = ("--publish", "never", "--trust", str(MALLORY))
    assert program.job(path, "a", uid=BOB, options=trusting).hits == 1


def test_group_members_are_writers(program: Program, public: Path) -> None:
    """`@GROUP` is looked up in the user database; a lane's own group proves nothing."""
    import grp
    import pwd

    somebody = next(user for user in pwd.getpwall() if 0 < user.pw_uid < 65534)
    group = grp.getgrgid(somebody.pw_gid).gr_name
    path = public / "group-store"
    program.ondol("store", "init", str(path), "--writers", f"@{group}")
    program.job(path, "a", uid=somebody.pw_uid)
    program.job(path, "b", uid=MALLORY)
    for lane in (path / "lanes").glob(f"{MALLORY}-*"):
        os.chown(lane, MALLORY, somebody.pw_gid)
    job = program.job(path, "a", "b", uid=BOB, options=("--publish", "never"))
    assert (job.hits, job.compiled) == (1, 1)


def lane_of(store: Path, uid: int) -> Path:
    return next((store / "lanes").glob(f"{uid}-*"))


def warm(program: Program, store: Path, uid: int) -> tuple[int, int]:
    """(hits, compiled) of a victim that reads and publishes nothing."""
    job = program.job(store, "k", uid=uid, options=("--publish", "never"))
    assert job.status == 0, job
    return job.hits, job.compiled


def plant(program: Program, store: Path) -> Path:
    """Mallory's own lane, with her own bytes for the victims' kernel."""
    program.job(store, "k", uid=MALLORY)
    return lane_of(store, MALLORY)


def act_as_mallory(program: Program, code: str) -> None:
    done = program.run([program.python, "-c", f"import os\n{code}"], uid=MALLORY)
    assert done.returncode == 0, done.stderr


def test_lane_renamed_to_look_trusted_is_not_read(program: Program, store: Path) -> None:
    lane = plant(program, store)
    act_as_mallory(program, f"os.rename({str(lane)!r}, {str(lane.with_name(f'{ALICE}-aaaa'))!r})")
    assert warm(program, store, BOB) == (0, 1)
    assert warm(program, store, ALICE) == (0, 1)


@pytest.mark.parametrize("what", ["lane", "folder", "pack"])
def test_planted_link_is_not_followed(program: Program, store: Path, what: str) -> None:
    """Links to the attacker's files, at each level that the attacker can reach."""
    lane = plant(program, store)
    target = next(lane.rglob("*.pack"))
    fake = store / "lanes" / f"{ALICE}-feed"
    if what == "lane":
        act_as_mallory(program, f"os.symlink({str(lane)!r}, {str(fake)!r})")
    elif what == "folder":
        act_as_mallory(program, f"os.mkdir({str(fake)!r}); os.symlink({str(lane / 'main')!r}, {str(fake / 'main')!r})")
    else:
        inner = fake / target.relative_to(lane)
        act_as_mallory(program, f"os.makedirs({str(inner.parent)!r}); os.symlink({str(target)!r}, {str(inner)!r})")
    assert warm(program, store, BOB) == (0, 1)


def test_pack_copied_into_a_lane_that_is_open_to_all_is_not_read(program: Program, store: Path) -> None:
    """A victim whose lane is group- or world-writable has lost control of it: nothing in it counts, for anybody."""
    program.job(store, "other", uid=ALICE)
    lane = plant(program, store)
    pack = next(lane.rglob("*.pack"))
    open_lane = lane_of(store, ALICE)
    for folder in [open_lane, *(path for path in open_lane.rglob("*") if path.is_dir())]:
        folder.chmod(0o777)
    target = open_lane / pack.relative_to(lane)
    act_as_mallory(program, f"import shutil; shutil.copy({str(pack)!r}, {str(target)!r})")
    assert warm(program, store, BOB) == (0, 1)


def test_foreign_file_in_a_trusted_folder_is_not_read(program: Program, store: Path) -> None:
    """Root copied somebody's pack with its owner kept: the file's own owner counts too."""
    program.job(store, "other", uid=ALICE)
    pack = next(plant(program, store).rglob("*.pack"))
    folder = next(lane_of(store, ALICE).rglob("*.pack")).parent
    shutil.copy(pack, folder / pack.name)
    os.chown(folder / pack.name, MALLORY, MALLORY)
    assert warm(program, store, BOB) == (0, 1)
    os.chown(folder / pack.name, ALICE, ALICE)
    assert warm(program, store, BOB) == (1, 0)  # and the same bytes by Alice's hand are hers


def test_pack_under_another_key_or_scope_is_not_used(program: Program, store: Path) -> None:
    """A good pack in the wrong place is a bad pack: no replay under another key."""
    program.job(store, "k", "other", uid=ALICE)
    packs = sorted(lane_of(store, ALICE).rglob("*.pack"))
    assert len(packs) == 2
    one, two = (path.read_bytes() for path in packs)
    for path, data in zip(packs, (two, one), strict=True):
        path.chmod(0o644)
        path.write_bytes(data)
        path.chmod(0o444)
    job = program.job(store, "k", "other", uid=BOB, options=("--publish", "never"))
    assert (job.hits, job.compiled) == (0, 2)
    assert "pack in the wrong place" in job.warnings[0]


def test_untrusted_user_cannot_remove_or_block_what_others_publish(program: Program, store: Path) -> None:
    program.job(store, "k", uid=ALICE)
    lane = lane_of(store, ALICE)
    code = f"""
import pathlib
for path in pathlib.Path({str(store)!r}).rglob("*"):
    for act in (os.unlink, lambda p: os.rename(p, str(p) + ".x"), lambda p: os.chmod(p, 0o777)):
        try:
            act(path)
        except OSError:
            pass
"""
    act_as_mallory(program, code)
    assert lane.is_dir()
    assert warm(program, store, BOB) == (1, 0)


def test_pull_request_scope_is_not_read_by_trusted_jobs(program: Program, store: Path) -> None:
    """A job in a scope of its own reads `main`; nobody in `main` reads that scope."""
    program.job(store, "k", uid=ALICE, options=("--scope", "pr-421"))
    assert program.job(store, "k", uid=ALICE, options=("--publish", "never")).hits == 0
    program.job(store, "m", uid=ALICE)
    job = program.job(store, "k", "m", uid=BOB, options=("--scope", "pr-421", "--publish", "never"))
    assert (job.hits, job.compiled) == (2, 0)


def test_foreign_entries_of_a_raw_cache_are_reported(program: Program, public: Path) -> None:
    """Seed 000 in advance: entry directories of another UID, in a cache whose root anybody may write."""
    cache = public / "raw-of-root"
    write_triton_entry(cache, 1)
    (cache / write_triton_entry(cache, 2).name).chmod(0o700)
    cache.chmod(0o777)
    store = public / "alices-store"
    store.mkdir()
    os.chown(store, ALICE, ALICE)
    program.ondol("store", "init", str(store), uid=ALICE)
    done = program.ondol("store", "adopt", str(cache), "--store", str(store), "--json", uid=ALICE)
    answer = json.loads(done.stdout)
    assert answer["published"] == 1
    problems = {problem["kind"]: problem for problem in answer["problems"]}
    assert (problems["foreign"]["owner"], problems["foreign"]["mode"]) == (0, "0755")
    assert (problems["unreadable"]["owner"], problems["unreadable"]["mode"]) == (0, "0700")
