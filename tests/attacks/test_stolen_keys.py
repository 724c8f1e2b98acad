"""The command looks for the key that Ondol signs with: environment, descriptors, memory, files, modules.

All jobs of a site have one UID, so what protects the key is that Ondol's own process cannot be looked into, and that
nothing which the command could write is imported into it. Where that cannot hold, nothing is signed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.trust import keys
from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root]

UID, OTHER = 2001, 2002
#: A shell that reads the key from a pipe, as from `sudo cat`: no process of the user ever has it but Ondol.
BY_PIPE = 'exec "$@" 3<&0 0</dev/null'


class Site:
    def __init__(self, program: Program, path: Path) -> None:
        self.program = program
        self.path = path
        self.store = path / "store"
        self.secret = keys.new()
        self.seed = base64.b64decode(self.secret.removeprefix(keys.SECRET))
        self.public = keys.show(keys.signer(self.secret).public)
        where = ("--store", str(self.store))
        for words in (
            ("store", "init", str(self.store), "--writers", str(UID), "--require-signature", "main"),
            ("key", "trust", self.public, "--for", "store", "--scopes", "main", *where),
        ):
            done = program.ondol(*words)
            assert done.returncode == 0, done.stderr

    def run(
        self, *command: str, key: str = "fd:3", how: str = BY_PIPE, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """`ondol run` of this command, by the one user; the key is on the shell's standard input."""
        ours = [self.program.python, "-m", "ondol", "run", "--store", str(self.store), "--tools", "triton"]
        words = [*ours, "--sign-key", key, "--json", str(self.path / "report.json"), "--", *command]
        options = {"input": self.secret + "\n", "uid": UID, "cwd": self.path, "start_new_session": True, **options}
        return self.program.run(["sh", "-c", how, "sh", *words], **options)  # type: ignore[arg-type]

    def thief(self, found: Path) -> list[str]:
        """Looks at what this test started, and at nothing of another test: to be looked at stops a process."""
        needles = (self.secret.removeprefix(keys.SECRET).encode(), self.seed)
        words = [self.program.python, self.program.programs / "thief.py", found, os.getpid()]
        return [*map(str, words), *(needle.hex() for needle in needles)]

    def kernel(self, name: str) -> list[str]:
        return [self.program.python, str(self.program.programs / "standin.py"), name]

    def report(self) -> dict[str, object]:
        return json.loads((self.path / "report.json").read_text())["tools"]["triton"]

    def hits(self, name: str, uid: int = OTHER) -> int:
        return self.program.job(self.store, name, uid=uid, options=("--publish", "never")).hits


@pytest.fixture
def site(program: Program, public: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    path = public / f"keys-{abs(hash(request.node.name))}"
    path.mkdir()
    os.chown(path, UID, UID)
    yield Site(program, path)
    shutil.rmtree(path)


def test_command_finds_no_key_anywhere_and_the_entry_is_signed(site: Site) -> None:
    found = site.path / "found"
    done = site.run("sh", "-c", f"{' '.join(site.thief(found))} && {' '.join(site.kernel('add'))}")
    assert done.returncode == 0, done.stderr
    assert found.read_text() == ""
    assert "warning" not in done.stderr
    assert site.report()["published"] == 1
    assert site.hits("add") == 1


def test_thief_finds_the_key_of_a_process_that_does_not_hide_it(site: Site) -> None:
    """What makes the test above worth anything: the same thief, beside a process that holds the key openly."""
    found = site.path / "found"
    holder = (
        "import os, subprocess, sys; key = os.read(0, 200); sys.exit(subprocess.call(sys.argv[1:], close_fds=False))"
    )
    command = [site.program.python, "-c", holder, *site.thief(found)]
    done = site.program.run(command, uid=UID, cwd=site.path, input=site.secret, start_new_session=True)
    assert done.returncode == 0, done.stderr
    assert "memory of" in found.read_text()


@pytest.mark.parametrize(
    ("key", "how", "why"),
    [
        ("env:KEY", 'KEY=$(cat); export KEY; "$@"; exit $?', "whose memory this user can read"),
        ("env:KEY", 'KEY=$(cat); export KEY; sh -c \'"$@"; exit $?\' sh "$@"', "in the environment of a process"),
        (
            "fd:3",
            'KEY=$(cat); export KEY; echo $KEY | sh -c \'"$@" 3<&0; exit $?\' sh "$@"',
            "in the environment of a process",
        ),
        ("fd:3", 'cat > key; "$@" 3<key', "in a file that this user can open"),
        ("key", 'cat > key; "$@"', "in a file that this user can open"),
        ("fd:9", '"$@"', "Bad file descriptor"),
        ("fd:3", '"$@" 3</dev/null', "is not a secret key"),
    ],
)
def test_nothing_is_signed_with_a_key_that_the_command_could_have(site: Site, key: str, how: str, why: str) -> None:
    done = site.run("sh", "-c", f"echo $KEY; cat <&3; {' '.join(site.kernel('add'))}", key=key, how=how)
    assert done.returncode == 0
    if key == "env:KEY":
        assert site.secret not in done.stdout
    assert f"nothing will be signed: --sign-key {key}" in done.stderr
    assert why in done.stderr
    assert "takes signed entries only" in done.stderr
    assert site.report()["published"] == 0


def test_key_from_an_environment_that_nobody_else_has_is_used_and_gone(site: Site) -> None:
    """`exec` leaves no shell behind that would still show it."""
    how = 'KEY=$(cat); export KEY; exec "$@" </dev/null'
    done = site.run("sh", "-c", f'echo "KEY=$KEY"; {" ".join(site.kernel("add"))}', key="env:KEY", how=how)
    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr
    assert "KEY=\n" in done.stdout
    assert site.report()["published"] == 1


def test_root_signs_nothing_beside_a_command_that_can_read_every_process(site: Site) -> None:
    done = site.run(*site.kernel("add"), uid=None)
    assert done.returncode == 0
    assert "the power to read every process" in done.stderr
    assert site.report()["published"] == 0


def test_root_in_a_container_without_those_powers_signs_and_shows_nothing(site: Site) -> None:
    """What Docker gives a container's root: no capability that reads other processes."""
    found = site.path / "found"
    without = "-sys_ptrace,-sys_admin,-sys_module,-sys_rawio,-perfmon,-bpf"
    how = f'exec setpriv --bounding-set={without} "$@" 3<&0 0</dev/null'
    script = f"{' '.join(site.thief(found))} && {' '.join(site.kernel('add'))}"
    done = site.run("sh", "-c", script, how=how, uid=None)
    assert (done.returncode, found.read_text()) == (0, ""), done.stderr
    assert site.report()["published"] == 1, done.stderr


#: Ondol's helper beside the command gets no processor until the command has replaced every module.
STARVED = """
import os, time
if os.environ.get("REPLACED"):
    nice = os.nice
    def starved(by):
        while not os.path.exists(os.environ["REPLACED"]):
            time.sleep(0.01)
        return nice(by)
    os.nice = starved
"""


@pytest.mark.parametrize("helper", ["at once", "starved"])
def test_modules_that_the_command_wrote_are_not_run_with_the_key(site: Site, helper: str) -> None:
    """Ondol in a venv of the job's own user: the command replaces what Ondol will import after it."""
    source = Path(site.program.path[0]) / "ondol"
    own = site.path / "own"
    shutil.copytree(source, own / "ondol", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chown", "-R", f"{UID}:{UID}", str(own)], check=True)
    (starving := site.path / "starving").mkdir()
    (starving / "sitecustomize.py").write_text(STARVED)
    replaced, stolen = site.path / "replaced", site.path / "stolen"
    evil = f"open({str(stolen)!r}, 'w').write('run')"
    replace = f'find {own} -name \'*.py\' -exec sh -c \'echo "$1" > "$2"\' sh "{evil}" {{}} \\;'
    done = site.run(
        "sh",
        "-c",
        f"{' '.join(site.kernel('add'))} && {replace} && touch {replaced}",
        env={
            "PYTHONPATH": os.pathsep.join([str(starving), str(own), *site.program.path]),
            "REPLACED": str(replaced) if helper == "starved" else "",
        },
    )
    assert done.returncode == 0, done.stderr
    assert not stolen.exists()
    assert site.report()["published"] == 1, done.stderr


def test_import_of_what_the_command_could_write_is_refused(site: Site) -> None:
    (site.path / "evil.py").write_text("print('run')")
    os.chown(site.path / "evil.py", UID, UID)
    code = "from ondol.host import secret; secret.import_no_more(); import fileinput; import evil"
    done = site.program.run([site.program.python, "-c", code], uid=UID, cwd=site.path)
    assert done.returncode == 1
    assert "the command could have changed" in done.stderr
    assert "run" not in done.stdout


def test_key_stays_outside_of_a_room_that_others_enter(site: Site) -> None:
    """`ondol open`, a container, `ondol close`: the key is asked for when the command is over."""
    (site.path / "key").write_text(site.secret)
    where = ("--store", str(site.store), "--tools", "triton")
    opened = site.program.ondol("open", *where, "--format", "env")
    assert opened.returncode == 0, opened.stderr
    script = f"{opened.stdout}\n{' '.join(site.kernel('add'))} >&2; env; echo ROOM=$ONDOL_ROOM"
    inside = site.program.run(["sh", "-c", script])
    assert site.secret not in inside.stdout
    room = inside.stdout.rpartition("ROOM=")[2].strip()
    closed = site.program.ondol("close", room, "--status", "0", "--sign-key", str(site.path / "key"))
    assert (closed.returncode, "1 published" in closed.stderr) == (0, True), closed.stderr
    assert site.hits("add") == 1
