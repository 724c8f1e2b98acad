"""A cache at a fixed path: for the command alone, on any machine, for any user; and where that is forbidden, cold."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.host import fixed_place, interpreter
from people import ROOT, Program, needs_root

pytestmark = pytest.mark.warm

FIXED = "/srv/ondol/torch-extensions"
TOOLS = ("--tools", "torch-extensions,vllm")
UID = 1000
WHY_NOT = fixed_place.why_not({"x": "/tmp"})
#: What a machine that forbids namespaces looks like to a user: a limit of zero, and no privileges.
FORBIDDEN = [
    *("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"),
    "echo 0 > /proc/sys/user/max_user_namespaces"
    ' && exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all "$@"',
    "sh",
]


@pytest.fixture
def store(program: Program, public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    if WHY_NOT:
        pytest.skip(f"fixed paths are not possible here: {WHY_NOT}")
    path = public / f"fixed-{abs(hash(request.node.nodeid))}"
    assert program.ondol("store", "init", str(path), "--writers", str(UID)).returncode == 0
    yield path
    shutil.rmtree(path, ignore_errors=True)


def in_place(
    program: Program, store: Path, script: str, *options: str, **how: object
) -> subprocess.CompletedProcess[str]:
    command = ["run", "--store", str(store), *TOOLS, *options, "--", "sh", "-c", script]
    return program.ondol(*command, **how)  # type: ignore[arg-type]


def mounts() -> list[str]:
    """Those that could be ours; others on this machine come and go with other people's work."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4].startswith("/srv") or " tmpfs ondol " in line]


WHO = [None, pytest.param(UID, marks=[needs_root, pytest.mark.root])]


@pytest.mark.parametrize("uid", WHO)
def test_path_is_the_same_in_all_rooms_and_for_all_users(program: Program, store: Path, uid: int | None) -> None:
    script = 'echo "$TORCH_EXTENSIONS_DIR $VLLM_CACHE_ROOT"; mkdir -p $TORCH_EXTENSIONS_DIR; touch $TORCH_EXTENSIONS_DIR/x; id -u'
    done = in_place(program, store, script, uid=uid)
    assert done.returncode == 0, done.stderr
    paths, who = done.stdout.splitlines()
    first, second = paths.split()
    assert first.startswith(f"{FIXED}/")
    assert second == "/srv/ondol/vllm"
    assert int(who) == (os.geteuid() if uid is None else uid)


class Waiting:
    """A job that does something, says so, and waits to be let go on."""

    def __init__(self, program: Program, store: Path, first: str, then: str, uid: int | None = None) -> None:
        command = [program.python, "-m", "ondol", "run", "--store", str(store), *TOOLS, "--", "sh", "-c"]
        self._job = subprocess.Popen(
            [*command, f"{first}; echo ready; read go; {then}"],
            env=program.env(),
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._job.stdout
        assert self._job.stdout.readline() == "ready\n"

    def go_on(self) -> list[str]:
        said, errors = self._job.communicate("go\n", timeout=60)
        assert self._job.returncode == 0, errors
        return said.split()


@pytest.mark.parametrize("uid", WHO)
def test_nothing_is_left_on_the_host_or_seen_there(program: Program, store: Path, uid: int | None) -> None:
    before = mounts(), os.listdir("/srv")
    job = Waiting(program, store, f"touch {FIXED}/mine", f"ls {FIXED}", uid)
    while_it_runs = mounts(), os.listdir("/srv")
    assert job.go_on() == ["mine"]
    assert while_it_runs == before
    assert (mounts(), os.listdir("/srv")) == before


def test_two_jobs_at_once_have_two_rooms(program: Program, store: Path) -> None:
    """Both have written under the same path before either looks; each finds only its own."""
    jobs = [Waiting(program, store, f"echo {name} > {FIXED}/who", f"cat {FIXED}/*") for name in ("first", "second")]
    assert [job.go_on() for job in jobs] == [["first"], ["second"]]


def with_srv(
    program: Program, prepare: str, command: list[str], uid: int | None = None
) -> subprocess.CompletedProcess[str]:
    """In a mount namespace whose /srv was prepared like this."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
    script = f'mount -t tmpfs none /srv && cd /srv && {prepare} && exec "$@"'
    return program.run(["unshare", "-m", "sh", "-c", script, "sh", *become, *command])


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [None, UID])
def test_what_is_in_srv_stays_and_so_does_the_current_directory(program: Program, store: Path, uid: int | None) -> None:
    prepare = (
        "mkdir data data/deep && echo one > data/deep/file && echo two > plain && ln -s data link && mkfifo pipe"
        " && mount -t tmpfs none data/deep && echo mounted > data/deep/file && chmod -R a+rwX data plain && cd data/deep"
    )
    script = "pwd; cat file ../../plain /srv/link/deep/file; test -p /srv/pipe; echo new > file; ls ../..; ls /srv/ondol; touch /srv/new"
    command = [program.python, "-m", "ondol", "run", "--store", str(store), *TOOLS, "--", "sh", "-c", script]
    done = with_srv(program, prepare, command, uid)
    said = done.stdout.split()
    assert said[:4] == ["/srv/data/deep", "mounted", "two", "mounted"], done
    assert said[4:] == ["data", "link", "ondol", "pipe", "plain", "torch-extensions", "vllm"]
    # What would vanish with the namespace is refused loudly.
    assert "Read-only file system" in done.stderr
    assert done.returncode == 1


@needs_root
@pytest.mark.root
def test_command_does_not_stand_below_the_mounts(program: Program, store: Path) -> None:
    """Started in the very directory that is covered: `.` and its absolute path must be the same."""
    command = [program.python, "-m", "ondol", "run", "--store", str(store), *TOOLS, "--", "sh", "-c", "pwd; ls"]
    assert with_srv(program, "touch plain", command).stdout.split() == ["/srv", "ondol", "plain"]


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [None, UID])
def test_mounts_do_not_spread_where_mounts_are_shared(program: Program, store: Path, uid: int | None) -> None:
    """systemd shares all mounts with every namespace that does not refuse: ours would stay there for ever."""
    become = f"setpriv --reuid={uid} --regid={uid} --clear-groups" if uid else ""
    ondol = f"{become} {program.python} -m ondol run --store {store} {' '.join(TOOLS)} -- grep -c /srv/ondol /proc/self/mountinfo"
    done = with_srv(program, f"mount --make-rshared / && {ondol}", ["grep", "-c", "/srv/ondol", "/proc/self/mountinfo"])
    assert done.stdout.split() == ["2", "0"], done


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ("mkdir ondol && touch ondol/theirs", "/srv/ondol is there already and would be hidden"),
        ("seq 1000 | xargs touch", "/srv has 1000 entries"),
    ],
)
def test_users_own_directory_is_not_hidden(program: Program, store: Path, prepare: str, why: str) -> None:
    command = [
        program.python,
        "-m",
        "ondol",
        "run",
        "--store",
        str(store),
        *TOOLS,
        "--",
        "sh",
        "-c",
        "echo $VLLM_CACHE_ROOT; ls /srv | wc -l",
    ]
    done = with_srv(program, prepare, command)
    assert done.returncode == 0
    assert why in done.stderr
    place, count = done.stdout.split()
    assert "ondol-room-" in place
    assert int(count) == (1000 if "seq" in prepare else 1)


@pytest.mark.parametrize("uid", WHO)
def test_job_inside_a_job_keeps_the_outer_ones_cache(program: Program, store: Path, uid: int | None) -> None:
    inner = "ls /srv/ondol; cat $VLLM_CACHE_ROOT/mark; touch $VLLM_CACHE_ROOT/inner; ls -A /srv/ondol/torch-extensions"
    again = f"{program.python} -m ondol run --store {store} --tools torch-extensions -- sh -c '{inner}'"
    script = f"echo outer > $VLLM_CACHE_ROOT/mark; touch {FIXED}/outer; {again}; ls $VLLM_CACHE_ROOT {FIXED}"
    done = in_place(program, store, script, uid=uid)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said[:3] == ["torch-extensions", "vllm", "outer"], done
    assert said[3:] == [f"{FIXED}:", "outer", "/srv/ondol/vllm:", "inner", "mark"]


@pytest.mark.parametrize("uid", WHO)
def test_forbidden_namespaces_do_not_fail_the_job_and_are_said(program: Program, store: Path, uid: int | None) -> None:
    script = "echo $TORCH_EXTENSIONS_DIR; mkdir -p $TORCH_EXTENSIONS_DIR/tiny; echo x > $TORCH_EXTENSIONS_DIR/tiny/build.ninja"
    command = [program.python, "-m", "ondol", "run", "--store", str(store), *TOOLS]
    done = program.run([*FORBIDDEN, *command, "--", "sh", "-c", script], uid=uid)
    assert done.returncode == 0, done.stderr
    assert "ondol-room-" in done.stdout
    assert done.stderr.count("private and cold") == 1
    assert "torch-extensions, vllm: private and cold" in done.stderr
    assert "user.max_user_namespaces = 0" in done.stderr
    assert list(store.rglob("*.pack")) == []
    # Whoever asks for warmth must not be told that everything was warm.
    done = program.run([*FORBIDDEN, *command, "--require-warm", "--", "sh", "-c", script], uid=uid)
    assert done.returncode == 122
    assert "whatever torch-extensions made" in done.stderr


def start(base: str, source: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    words = fixed_place.starter({"x": str(source)})
    words[words.index(fixed_place.BASE)] = base
    line = fixed_place.command_line(words, command[0], command)
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


def test_path_that_is_not_there_is_not_handed_to_the_command(tmp_path: Path) -> None:
    """It worked when it was tried and no longer does: the command gets an empty directory, not one filled for there."""
    source = tmp_path / "x"
    source.mkdir()
    (source / "filled").touch()
    env = {**os.environ, "CACHE": "/no/such/ondol/x/deep", "OTHER": "/no/such/ondol/xy"}
    done = start("/no/such", source, "/bin/sh", "-c", "echo $CACHE $OTHER; ls $CACHE", env=env)
    assert done.stdout.split() == [f"{source}.cold/deep", "/no/such/ondol/xy"]
    assert "private and cold after all: there is no directory /no/such" in done.stderr


def test_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "srv").symlink_to(tmp_path / "real")
    done = start(str(tmp_path / "srv"), tmp_path / "real", "/bin/true")
    assert "there is no directory" in done.stderr


def test_signal_while_it_starts_shows_no_traceback(tmp_path: Path) -> None:
    """Sent before the starter has become the command: it ends as the command would have."""
    for number in (signal.SIGTERM, signal.SIGINT):

        def already_pending(number: signal.Signals = number) -> None:
            signal.signal(number, signal.SIG_DFL)  # SIGINT is ignored where a shell put the tests into the background
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
            os.kill(os.getpid(), number)

        done = start("/no/such", tmp_path, "/bin/echo", "started", preexec_fn=already_pending)
        assert (done.returncode, done.stdout) == (-number, "")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("mode", "status"), [(0o644, 126), (0o755, 127)])
def test_command_that_cannot_be_executed(tmp_path: Path, mode: int, status: int) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(mode)
    done = start("/no/such", tmp_path, str(script))
    assert done.returncode == status
    assert f"{script}: " in done.stderr


def test_starter_ignores_the_users_python_variables(tmp_path: Path) -> None:
    (tmp_path / "ctypes.py").write_text("raise SystemExit('the wrong module')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": "", "PYTHONSTARTUP": str(tmp_path / "ctypes.py")}
    assert start("/no/such", tmp_path, "/bin/echo", "started", env=env, cwd=tmp_path).stdout == "started\n"


def test_workers_have_the_fixed_path_too(program: Program, store: Path, tmp_path: Path) -> None:
    """`ondol test`: the process that collects and the workers that it forks, all in one namespace."""
    (tmp_path / "test_it.py").write_text(
        "import os\n"
        "place = os.environ['VLLM_CACHE_ROOT']\n"
        "assert place == '/srv/ondol/vllm' and os.path.isdir(place)  # while collecting\n"
        "def test_one():\n"
        "    open(os.path.join(place, 'made'), 'w').close()\n"
        "    assert os.getppid() != 1\n"
    )
    journal = tmp_path / "journal.jsonl"
    arguments = ["test", "--store", str(store), "--tools", "vllm", "--devices", "cpu:1", f"--journal={journal}"]
    done = program.ondol(*arguments, str(tmp_path), "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def fake_package(folder: Path, name: str, version: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / name / "version.py").write_text(f"from x import y\n__version__ = '{version}'\ncuda = None\n")
    return folder


def test_no_package_is_imported_to_learn_its_version(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(fake_package(tmp_path, "torch", "2.13.0+cu126"))}
    found = interpreter.describe(sys.executable, env, ("torch",))
    assert found == f"cpython-{sys.version_info[0]}{sys.version_info[1]}-torch-2.13.0+cu126"
    assert interpreter.describe(sys.executable, {"PATH": env["PATH"]}, ("no_such_thing",)).endswith(
        "-no_such_thing-none"
    )


def test_script_is_asked_for_its_own_python(tmp_path: Path) -> None:
    """`pytest`, `torchrun`, a script of the project: what counts is the Python in its first line."""
    here = fake_package(tmp_path / "here", "torch", "2.0")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nPYTHONPATH={here} exec {sys.executable} "$@"\n')
    (programs / "torchrun").write_text(f"#!{programs}/python3\n")
    (programs / "by-env").write_text("#!/usr/bin/env python3\n")
    (programs / "broken").write_text("#!/usr/bin/env python3.999\n")
    (programs / "shell").write_text("#!/bin/sh\n")
    for file in programs.iterdir():
        file.chmod(0o755)
    env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for name in ("torchrun", "by-env", "shell", "no-such-command", str(programs / "torchrun")):
        assert interpreter.describe(name, env, ("torch",)).endswith("-torch-2.0"), name
    assert interpreter.describe("broken", env, ("torch",)) == "unknown"
    (programs / "python3").write_text("#!/bin/sh\necho a-b-torch-../../etc\n")
    assert interpreter.describe("by-env", env, ("torch",)) == "unknown"


def two_worlds(tmp_path: Path) -> dict[str, dict[str, str]]:
    """Two PyTorches, each with the same extension of the same checkout."""
    source = tmp_path / "tiny.c"
    source.write_text("int answer(void) { return 1; }\n")
    bin_path = f"{ROOT / '.build' / 'tools' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    worlds = {}
    for version in ("2.12.0", "2.13.0"):
        packages = tmp_path / version
        fake_package(packages, "torch", version)
        (packages / "torch" / "include").mkdir()
        (packages / "torch" / "__init__.py").write_text("")
        worlds[version] = {"PYTHONPATH": str(packages), "PATH": bin_path, "CXX": "cc", "CCACHE_DISABLE": "1"}
    return worlds


def test_two_versions_of_torch_are_both_warm(program: Program, store: Path, tmp_path: Path) -> None:
    """One store, one name, two PyTorches side by side: after one job each, both are warm, in any order."""
    worlds = two_worlds(tmp_path)
    command = [program.python, str(ROOT / "tests" / "programs" / "extension.py"), "tiny", str(tmp_path / "tiny.c")]
    built = []
    for version in ("2.12.0", "2.13.0", "2.12.0", "2.13.0", "2.13.0", "2.12.0"):
        env = {**worlds[version], "PYTHONPATH": os.pathsep.join([*program.path, worlds[version]["PYTHONPATH"]])}
        arguments = ["run", "--store", str(store), "--tools", "torch-extensions", "--", *command]
        done = program.ondol(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["folder"].endswith(f"-torch-{version}/tiny")
        built.append(len(said["built"]))
    assert built == [2, 2, 0, 0, 0, 0]


def test_job_says_why_an_entry_was_not_for_it(program: Program, store: Path, tmp_path: Path) -> None:
    (env,) = [env for version, env in two_worlds(tmp_path).items() if version == "2.13.0"]
    env = {**env, "PYTHONPATH": os.pathsep.join([*program.path, env["PYTHONPATH"]])}
    command = [program.python, str(ROOT / "tests" / "programs" / "extension.py"), "tiny", str(tmp_path / "tiny.c")]
    arguments = ["run", "--store", str(store), "--tools", "torch-extensions", "--", *command]
    assert json.loads(program.ondol(*arguments, env=env).stdout)["answer"] == 1
    (tmp_path / "tiny.c").write_text("int answer(void) { return 2; }\n")
    second = program.ondol(*arguments, env=env)
    assert json.loads(second.stdout)["answer"] == 2
    assert f"made from another {tmp_path}/tiny.c than the one here" in second.stderr
    assert "1 new, 1 published" in second.stderr
    (tmp_path / "tiny.c").write_text("int answer(void) { return 1; }\n")
    # The older version fits again, behind a newer one that does not.
    third = program.ondol(*arguments, env=env)
    said = json.loads(third.stdout)
    assert (said["answer"], said["built"]) == (1, [])
    assert "bad" not in third.stderr


def test_two_versions_that_both_fit_are_not_mixed(program: Program, store: Path, tmp_path: Path) -> None:
    """The same sources with other flags: one directory can hold one of them, and it is the newest."""
    env = two_worlds(tmp_path)["2.13.0"]
    env = {**env, "PYTHONPATH": os.pathsep.join([*program.path, env["PYTHONPATH"]])}
    command = [program.python, str(ROOT / "tests" / "programs" / "extension.py"), "tiny", str(tmp_path / "tiny.c")]
    arguments = ["run", "--store", str(store), "--tools", "torch-extensions", "--", *command]
    said = [program.ondol(*arguments, flag, env=env).stderr for flag in ("-O0", "-O1", "-O1", "-O0")]
    assert "0 filled, 0 used, 1 new, 1 published" in said[0]
    assert "1 filled, 0 used, 1 new, 1 filled but made again, 1 published" in said[1]
    assert "1 filled, 1 used, 0 new" in said[2]
    assert "1 filled, 0 used, 1 new, 1 filled but made again, 0 published" in said[3]  # it is in the store already


def test_tools_tells_where_the_cache_will_be(program: Program) -> None:
    told = program.ondol("tools", "torch-extensions", "triton").stdout
    assert "TORCH_EXTENSIONS_DIR=/srv/ondol/torch-extensions/<versions of torch>" in told
    assert "TRITON_CACHE_DIR=<room>" in told
