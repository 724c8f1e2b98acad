"""A real NFS 4.2 server and three real kernel clients, with the attribute caches of plain mounts, in a machine of the test's own.

The machine (programs/nfs_image.py) is booted once and runs one scenario (programs/nfs_scenario.py); the tests here judge what it
says it saw. Where chance had a part, a failure names its seed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from people import ROOT, needs_root
from programs import nfs_image, nfs_scenario

pytestmark = [needs_root, pytest.mark.root, pytest.mark.real, pytest.mark.timeout(1000)]
NEW = nfs_scenario.KERNELS_A_ROUND


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the scenario wrote."""
    try:
        answer, console = nfs_image.boot(ROOT, tmp_path_factory.mktemp("nfs"), seconds=900)
    except nfs_image.CannotHere as reason:
        pytest.skip(str(reason))
    assert answer, f"the machine ended without an answer:\n{console[-5000:]}"
    return json.loads(answer)


def told(job: dict[str, Any]) -> tuple[Any, int, int, str]:
    """(status, hits, compiled, what Ondol said)"""
    assert job["told"], job
    return job["status"], job["told"]["hits"], job["told"]["compiled"], job["stderr"]


def warnings(job: dict[str, Any]) -> list[str]:
    return [line for line in job["stderr"].splitlines() if line.startswith("ondol: warning:")]


def test_three_nfs_clients_were_tested(said: Any) -> None:
    """The server itself must have seen three hosts that speak 4.2, and no mount may have a tamed cache."""
    assert sorted(said["mounts"]) == ["/mnt/one", "/mnt/three", "/mnt/two"]
    for kind, *options in said["mounts"].values():
        assert kind == "nfs4"
        assert {"vers=4.2", "hard"} <= set(options)
        assert not {"noac", "sync", "lookupcache=none"} & set(options)
        assert not [option for option in options if option.startswith("ac")], options
    assert len(said["clients"]) == 3, said["clients"]
    for name in ("one", "two", "three"):
        assert any(f"Linux NFSv4.2 {name}" in client for client in said["clients"]), said["clients"]
    assert json.loads(said["stats"]["stdout"])["file_system"] == "nfs4"


def test_two_clients_that_make_a_store_at_once_make_one(said: Any) -> None:
    """One makes it; the other is told that there is one, or that it lost a race, and changes nothing."""
    assert sorted(init["status"] for init in said["inits"]) == [0, 3], said["inits"]


def test_store_on_nfs_serves_every_user_and_client(said: Any) -> None:
    assert told(said["cold"]) == (0, 0, 2, "")
    assert told(said["warm_same_client"]) == (0, 2, 0, "")
    assert told(said["warm_other_client"]) == (0, 2, 0, "")


def test_what_a_client_remembers_breaks_no_job(said: Any) -> None:
    """A client that has looked may not see what another one adds for a while: that is a miss and nothing else."""
    assert told(said["one_more"]) == (0, 2, 1, "")
    status, hits, compiled, stderr = told(said["at_once_on_other_client"])
    assert (status, hits + compiled, stderr) == (0, 3, "")
    assert hits >= 2


def test_clients_that_race_neither_mix_nor_tear_entries(said: Any) -> None:
    """Two users on two clients publish other bytes for the same kernels at once, some killed on the way: all others end well.

    The stand-in ends with another status as soon as it sees an entry with files of two producers or with half a file.
    """
    for number, storm in enumerate(said["storms"]):
        known = 3 + NEW * number
        for job in storm["jobs"]:
            status, hits, compiled, stderr = told(job)
            assert (status, hits + compiled, stderr) == (0, known + NEW, ""), (said["seed"], job)
        for job in storm["killed"].values():
            # 0: it was faster than its killer.
            assert job["status"] in (-9, 0), (said["seed"], job)
            assert job["stderr"] == "", (said["seed"], job)
    assert any(job["status"] == -9 for storm in said["storms"] for job in storm["killed"].values())


def test_killed_publisher_does_not_block_its_own_entries(said: Any) -> None:
    """Killed twice while publishing; what she got out is used, the rest is published by her next job."""
    there = len(said["storms"][-1]["published"])
    status, hits, compiled, stderr = told(said["killed_twice"])
    assert (status, hits + compiled, stderr) == (0, NEW, ""), (said["seed"], there)


def test_no_entry_is_lost_or_bad_after_races_and_kills(said: Any) -> None:
    """A client with an empty cache finds every kernel that a job which ended well has used, and no bad pack."""
    assert told(said["fresh"]) == (0, len(said["known"]), 0, ""), said["seed"]
    assert (said["verify"]["status"], said["verify"]["told"]["findings"]) == (0, []), said["seed"]
    assert said["verify"]["told"]["good"] >= len(said["known"])


def test_squashed_root_publishes_nothing_and_says_why(said: Any) -> None:
    """What root writes would belong to `nobody`: the job runs warm, leaves nothing behind, and one warning names the cause."""
    job = said["squashed_root"]
    assert told(job)[:3] == (0, len(said["known"]), 1)
    (warning,) = warnings(job)
    assert "root_squash" in warning
    assert job["changed"] == []


def test_room_is_local_where_tmpdir_is_on_nfs(said: Any) -> None:
    job = said["tmpdir_on_nfs"]
    assert told(job) == (0, 1, 0, "")
    assert job["told"]["cache"].startswith("/tmp/")
    assert job["left"] == []


def test_guards_on_two_clients_are_never_inside_at_once(said: Any) -> None:
    """A lock on the directory holds on one client only; the lock file beside it, on all of them."""
    wanted = sum(map(len, nfs_scenario.GUARDED))
    assert [(guard["status"], guard["stdout"]) for guard in said["guards"]] == [(0, "alone\n")] * wanted, said["guards"]
    for guard in said["guards"]:
        directory, file = guard["report"]["lock"]["standing"].split(", ")
        assert directory.startswith("flock on /mnt/")
        assert directory.endswith("/cache")
        assert file.startswith("flock on /mnt/"), guard["report"]
        assert file.endswith("/.cache.ondol-lock")


def test_lease_on_nfs_never_lets_two_in(said: Any) -> None:
    for lease in said["leases"]:
        assert lease["status"] in (0, -9), lease
        assert set(lease["stdout"].split()) == {"ok"}, (said["seed"], lease)


def of(examination: dict[str, Any]) -> list[tuple[str, str]]:
    assert examination["told"], examination
    return [(finding["check"], finding["severity"]) for finding in examination["told"]["findings"]]


def test_doctor_neither_blames_a_good_store_on_nfs_nor_changes_it(said: Any) -> None:
    """The store is made for it: several processes publish and read there, locks or no locks."""
    examined = said["doctor"]["store"]
    assert (examined["status"], of(examined)) == (0, []), examined
    assert [one["file_system"] for one in examined["told"]["examined"]] == ["nfs4"]
    assert said["doctor"]["changed"] == []


def test_doctor_finds_that_root_is_squashed(said: Any) -> None:
    examined = said["doctor"]["as root"]
    assert (examined["status"], of(examined)) == (1, [("publishing", "error")]), examined
    assert "root_squash" in examined["told"]["findings"][0]["why"]


def test_doctor_finds_a_raw_cache_on_nfs(said: Any) -> None:
    """Locks work on this mount, and everything else that can be tried; that it is NFS remains a warning."""
    examined = said["doctor"]["cache"]
    assert (examined["status"], of(examined)) == (0, [("file-system", "warning")]), examined
    assert said["doctor"]["left"] == []


def test_doctor_does_not_hang_with_the_stopped_server(said: Any) -> None:
    examined = said["doctor"]["no server"]
    assert (examined["status"], of(examined)) == (1, [("reach", "error")]), examined
    assert "does not answer" in examined["told"]["findings"][0]["what"]
    assert examined["told"]["findings"][0]["fix"] == "sudo umount -l /mnt/one"


def test_stopped_server_neither_hangs_nor_fails_jobs(said: Any) -> None:
    """On a hard mount, which waits for ever: the job waits `--store-timeout`, runs cold, says so once; its status is its own."""
    assert told(said["no_server"])[:3] == (7, 0, 1)
    (warning,) = warnings(said["no_server"])
    assert "running cold" in warning


def test_server_that_stops_during_a_job_neither_hangs_nor_fails_it(said: Any) -> None:
    job = said["server_went_meanwhile"]
    assert told(job)[:3] == (0, len(said["known"]), 1)
    (warning,) = warnings(job)
    assert "not everything was published" in warning


def test_store_is_whole_after_the_server_came_back(said: Any) -> None:
    """The same mounts go on as if nothing had happened."""
    assert told(said["server_came_back"]) == (0, len(said["known"]), 0, "")


def test_cleaning_on_nfs_neither_fails_readers_nor_takes_others_entries(said: Any) -> None:
    """gc on one client while a job reads on another, whose cache still names what is gone: misses, no errors."""
    gc = said["gc"]
    assert (gc["status"], gc["stderr"]) == (0, "")
    assert gc["told"]["removed"]
    assert (gc["left_of_hers"], gc["taken_of_his"]) == ([], [])
    for name in ("reader_beside_gc", "reader_after_gc"):
        status, hits, compiled, stderr = told(said[name])
        assert (status, hits + compiled, stderr) == (0, len(said["known"]), ""), said[name]
    assert (said["verify_at_end"]["status"], said["verify_at_end"]["told"]["findings"]) == (0, [])
