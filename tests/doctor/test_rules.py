"""The decisions: rights, mounts, releases, access control lists, quoting. No I/O."""

from __future__ import annotations

import shlex
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor_runs import acl_bytes
from ondol.doctor import commands, mount_rules, releases, rights
from ondol.doctor.api import Finding, Location, Repair
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY
from ondol.host import bounded, filesystem

pytestmark = pytest.mark.warm

LINES = {
    "nfs": "40 25 0:35 / /ci-cache rw,relatime shared:7 - nfs4 server:/export rw,vers=4.2,rsize=1048576,{},addr=10.0.0.1",
    "lustre": "41 25 0:36 / /scratch rw,relatime - lustre 10.0.0.2@tcp:/fs rw,{},lazystatfs",
}


@pytest.mark.parametrize(
    ("mode", "sharing"),
    [
        (0o755, "private"),
        (0o700, "private"),
        (0o775, "group"),
        (0o2770, "group"),
        (0o777, "everybody"),
        (0o1777, "sticky"),
    ],
)
def test_the_mode_says_who_shares_a_directory(mode: int, sharing: str) -> None:
    assert rights.sharing(mode) == sharing


def test_line_of_mountinfo_is_read_right() -> None:
    line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue" + "\n"
    mount = filesystem.parse_mount(line)
    assert (mount.point, mount.kind) == ("/mnt 2", "ext3")
    assert {"noatime", "errors=continue", "rw"} <= mount.options


def test_longest_mount_point_is_taken() -> None:
    lines = [
        "1 0 8:1 / / rw - ext4 /dev/a rw",
        "2 1 0:9 / /a rw - tmpfs t rw",
        "3 1 0:8 / /a/b ro - nfs4 s:/ ro",
    ]
    table = {mount.point: mount for mount in map(filesystem.parse_mount, lines)}
    kinds = [filesystem.mount_of(path, table).kind for path in ("/", "/x", "/a", "/ab", "/a/x", "/a/b", "/a/b/c")]
    assert kinds == ["ext4", "ext4", "tmpfs", "ext4", "tmpfs", "nfs4", "nfs4"]
    assert filesystem.mount_of("/x", {}).kind == "unknown"


def verdicts(kind: str, options: str, *roles: str) -> list[str]:
    mount = filesystem.parse_mount(LINES[kind].format(options))
    return [verdict.what for verdict in mount_rules.judge(mount, roles)]


@pytest.mark.parametrize(
    ("kind", "options", "role", "says"),
    [
        ("nfs", "hard", CACHE, "network file system (nfs4)"),
        ("nfs", "hard", TEMPORARY, "network file system (nfs4)"),
        ("nfs", "hard", ROOM, "network file system (nfs4)"),
        ("nfs", "hard,nolock", HOME, "mounted with nolock"),
        ("nfs", "hard,local_lock=all", HOME, "mounted with local_lock=all"),
        ("nfs", "soft", STORE, "mounted soft"),
        ("nfs", "hard,actimeo=600", STORE, "believed for up to 600 s"),
        ("nfs", "hard,acdirmax=300", STORE, "believed for up to 300 s"),
        ("nfs", "hard,noac", STORE, "never cached"),
        ("lustre", "localflock", HOME, "mounted with localflock"),
        ("lustre", "checksum", HOME, "mounted without flock"),
    ],
)
def test_mount_that_breaks_caches_is_found(kind: str, options: str, role: str, says: str) -> None:
    assert [what for what in verdicts(kind, options, role) if says in what]


@pytest.mark.parametrize(
    ("kind", "options", "role"),
    [
        ("nfs", "hard", STORE),
        ("nfs", "hard,local_lock=none", HOME),
        ("nfs", "hard,actimeo=30", STORE),
        ("nfs", "hard,nolock", STORE),
        ("lustre", "flock", HOME),
        ("lustre", "noflock", STORE),
    ],
)
def test_mount_that_serves_is_not_blamed(kind: str, options: str, role: str) -> None:
    """The store needs no locks, and is made for NFS."""
    assert verdicts(kind, options, role) == []


@pytest.mark.parametrize(
    ("kind", "noted"),
    [("ext4", False), ("xfs", False), ("tmpfs", True), ("overlay", True), ("gpfs", True), ("fuse.sshfs", True)],
)
def test_only_file_systems_that_break_caches_are_noted(kind: str, noted: bool) -> None:
    mount = filesystem.Mount("/x", kind, frozenset({"rw"}))
    assert bool(list(mount_rules.judge(mount, {CACHE}))) == noted


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.13.0", (2, 13, 0)), ("2.13.0rc1+cpu", (2, 13, 0)), ("1!3.7", (3, 7)), ("v3", (3,)), ("unknown", ())],
)
def test_a_version_is_read_as_numbers(text: str, number: tuple[int, ...]) -> None:
    assert releases.release(text) == number


def test_ranges_of_bad_releases_are_not_empty_and_do_not_overlap() -> None:
    for bad in releases.BAD:
        assert bad.first < bad.fixed
    filelock = sorted((bad.first, bad.fixed) for bad in releases.BAD if bad.package == "filelock")
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(filelock))
    assert list(releases.known_bad("filelock", "not a version")) == []


@given(st.lists(st.tuples(st.sampled_from(["user", "group"]), st.integers(0, 2**31), st.integers(0, 7)), max_size=4))
def test_access_control_list_is_read_as_the_kernel_keeps_it(named: list[tuple[str, int, int]]) -> None:
    parsed = rights.named(acl_bytes(named, owner=7, group=5, mask=5, other=0))
    assert sorted((one.kind, one.number, one.granted) for one in parsed) == sorted(named)
    assert all(one.effective == one.granted & 5 for one in parsed)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_list_do_not_crash_the_check(data: bytes) -> None:
    rights.named(data)


@given(st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text))
def test_quoted_name_is_one_word(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    word = commands.quote(text)
    assert word.isprintable(), "nothing that could steer a terminal"
    if not word.startswith("$'"):
        assert shlex.split(word) == [text]


@pytest.mark.parametrize(
    "name", ["plain", "with space", "it's", "new\nline", "\x1b[31mred", "back\\slash\n", "é\udcff", "$(x)"]
)
def test_hostile_name_is_no_command(name: str) -> None:
    done = subprocess.run(["bash", "-c", f"printf %s {commands.quote(name)}"], capture_output=True, check=True)
    assert done.stdout == name.encode("utf-8", "surrogateescape")


def test_mode_bits_are_written_as_chmod_reads_them() -> None:
    assert commands.bits(0o770) == "u+rwx,g+rwx"
    assert commands.bits(0o2070) == "g+rwxs"
    assert commands.bits(0o022, "-") == "g-w,o-w"
    assert commands.bits(0o1000) == "+t"
    assert commands.as_root(0, "a", "b") == "a && b"
    assert commands.as_root(7, "a", "b") == "sudo a && sudo b"


def test_finding_does_not_change_in_the_pipe() -> None:
    repairs = (Repair("chmod", "/x", 1, 2, 3, 4), Repair("remove", "/y", 5, 6, written_ns=7))
    finding = Finding("error", "what", Location("/x", 1, 2, "0755"), "why", "fix", 9, repairs)
    assert bounded.call(lambda _report: finding, 60).repairs[1].written_ns == 7
