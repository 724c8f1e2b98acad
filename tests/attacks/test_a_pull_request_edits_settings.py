"""A pull request brings its own `ondol.toml`: through `ondol run`, through the wall of `open` and `close`, through the
action it may make Ondol do less, and never more.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from ondol import config, host, options
from ondol.errors import UsageError
from ondol.trust import settings
from people import ROOT, Program
from walls.rooms import PULL_REQUEST, PULL_REQUEST_SCOPE, rooms_in, titles

pytestmark = pytest.mark.warm

GREEDY = 'publish = "on-success"\nscope = "main"\ntrust = [6666]\ntrusted-jobs = ["*/*/*"]\njson = "report.json"\n'
SYSTEMS = [
    {"CI": "true"},
    {"CI": "woodpecker"},
    {"GITHUB_ACTIONS": "true"},
    {"GITLAB_CI": "true"},
    {"BUILDKITE": "true"},
    {"JENKINS_URL": "x"},
    {"TF_BUILD": "True"},
]


@pytest.fixture
def node() -> str:
    return shutil.which("node") or pytest.skip("node is not installed here; GitHub's runner brings its own")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a CI system checked out: the runner's own files, with a stranger's words in them."""
    path = tmp_path / "checkout"
    (path / ".git").mkdir(parents=True)
    (path / "deep").mkdir()
    (path / "ondol.toml").write_text(GREEDY)
    return path


def test_run_publishes_nothing_into_main(program: Program, store_path: Path, checkout: Path) -> None:
    job = program.job(store_path, "k", cwd=checkout, env=PULL_REQUEST)
    assert job.status == 0
    assert (titles(store_path), titles(store_path, PULL_REQUEST_SCOPE)) == (set(), {"k"})
    assert not (checkout / "report.json").exists()
    told = [line for line in job.stderr.splitlines() if "ignored" in line]
    assert len(told) == 1, job.stderr
    assert "publish, scope, trust, trusted-jobs, json ignored" in told[0]
    assert "pull request" in told[0]
    assert "--scope --publish --trust --json or ~/.config/ondol/ondol.toml or /etc/ondol/ondol.toml" in told[0]


def test_open_and_close_publish_nothing_into_main(
    program: Program, store_path: Path, checkout: Path, tmp_path: Path
) -> None:
    """As containers.md recommends it for strangers' code."""
    where = ("--store", str(store_path), "--tools", "triton", "--room-dir", str(tmp_path))
    done = program.ondol("open", *where, "--format", "json", cwd=checkout, env=PULL_REQUEST)
    assert done.returncode == 0, done
    opened = json.loads(done.stdout)
    standin = [program.python, str(program.programs / "standin.py"), "k"]
    assert program.run(standin, cwd=checkout, env=opened["env"]).returncode == 0
    closed = program.ondol("close", opened["room"], "--status", "0", cwd=checkout, env=PULL_REQUEST)
    assert closed.returncode == 0, closed
    assert (titles(store_path), titles(store_path, PULL_REQUEST_SCOPE)) == (set(), {"k"})
    assert not (checkout / "report.json").exists()


def test_the_action_publishes_nothing_into_main(
    program: Program, store_path: Path, checkout: Path, tmp_path: Path, node: str
) -> None:
    files = {name: tmp_path / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.touch()
    inputs = {"INPUT_STORE": str(store_path), "INPUT_TOOLS": "triton", "INPUT_PYTHON": program.python}
    env = {**PULL_REQUEST, **{name: str(path) for name, path in files.items()}, "RUNNER_TEMP": str(tmp_path), **inputs}
    opened = program.run([node, str(ROOT / "action" / "open.js")], cwd=checkout, env=env)
    assert opened.returncode == 0, opened
    assert opened.stderr.count("ignored") == 1
    variables = dict(line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
    standin = [program.python, str(program.programs / "standin.py"), "k"]
    assert program.run(standin, cwd=checkout, env=variables).returncode == 0
    state = dict(line.split("=", 1) for line in files["GITHUB_STATE"].read_text().splitlines())
    env |= {f"STATE_{name}": value for name, value in state.items()} | {"INPUT_STATUS": "success"}
    closed = program.run([node, str(ROOT / "action" / "close.js")], cwd=checkout, env=env)
    assert closed.returncode == 0, closed
    assert (titles(store_path), titles(store_path, PULL_REQUEST_SCOPE)) == (set(), {"k"})
    assert rooms_in(tmp_path) == []


@pytest.mark.parametrize("text", [GREEDY, 'stroe = "x"\n', "[[["])
def test_the_action_survives_a_settings_file_and_a_bare_python(
    program: Program, checkout: Path, tmp_path: Path, node: str, text: str
) -> None:
    """Python 3.10 brings no TOML reader; the action installs nothing."""
    bare = tmp_path / "python3"
    hide = f"import sys; sys.modules.update(tomllib=None, tomli=None); sys.executable = '{bare}'"
    hide += "; code = sys.argv[3]; del sys.argv[1:4]; exec(code)"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{hide}" "$@"\n')
    bare.chmod(0o755)
    (checkout / "ondol.toml").write_text(text)
    files = {name: tmp_path / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STATE")}
    env = {**PULL_REQUEST, **{name: str(path) for name, path in files.items()}, "RUNNER_TEMP": str(tmp_path)}
    for python in (str(bare), program.python):
        opened = program.run(
            [node, str(ROOT / "action" / "open.js")], cwd=checkout, env={**env, "INPUT_PYTHON": python, "HOME": "/"}
        )
        assert opened.returncode == 0, opened
        assert "Traceback" not in opened.stderr
        assert "room open" in opened.stderr
        assert ("cannot read TOML" in opened.stderr) is (python == str(bare))
        state = dict(line.split("=", 1) for line in files["GITHUB_STATE"].read_text().splitlines())
        closed = {**env, **{f"STATE_{name}": value for name, value in state.items()}, "INPUT_STATUS": "success"}
        assert program.run([node, str(ROOT / "action" / "close.js")], cwd=checkout, env=closed).returncode == 0
    assert rooms_in(tmp_path) == []


def load(directory: Path, flags: dict[str, str] | None = None, /, **env: str) -> config.Settings:
    return settings.load(flags or {}, {"HOME": "/nonexistent", **env}, str(directory))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: next(iter(system)))
@pytest.mark.parametrize(
    "option", [option for option in options.BY_NAME.values() if option.least], ids=lambda option: option.name
)
def test_a_checkouts_file_is_no_source_of_trust_on_ci(
    checkout: Path, system: dict[str, str], option: options.Option
) -> None:
    sample = {"path": '"x"', "text": '"x"', "name": '"x"', "flag": "true", "list": '["x"]', "uids": "[6666]"}
    greedy = [word for word in option.metavar.split("|") if word not in (option.default, *option.tight)]
    value = f'"{greedy[0]}"' if option.kind == "choice" else sample[option.kind]
    (checkout / "ondol.toml").write_text(f"{option.key} = {value}\n")
    found = load(checkout / "deep", **system)
    if True in option.tight:
        assert found.value(option.name) is True
        (checkout / "ondol.toml").write_text(f"{option.key} = false\n")
        found = load(checkout / "deep", **system)
    assert found.value(option.name) == option.default
    assert found.origin(option.name) == "default"
    assert f"{option.key} ignored" in found.remarks[0]
    assert found.warnings == []


@pytest.mark.parametrize(
    ("key", "value"), [("publish", "never"), ("frozen", True), ("share", "off"), ("tools", ["none"])]
)
def test_a_checkouts_file_can_tighten(checkout: Path, key: str, value: object) -> None:
    (checkout / "ondol.toml").write_text(f"{key} = {json.dumps(value)}\n")
    found = load(checkout, CI="true")
    assert found.value(key) == value
    assert found.remarks == []


def test_what_somebody_else_decides_is_not_worth_a_word(checkout: Path) -> None:
    (checkout / "ondol.toml").write_text('store = "x"\nscope = "main"\n')
    assert load(checkout, {"store": "/s"}, CI="true", ONDOL_SCOPE="nightly").remarks == []


@pytest.mark.parametrize("how", ["HOME", "XDG_CONFIG_HOME", "a workspace without .git"])
def test_home_in_the_checkout_does_not_make_it_the_users_file(checkout: Path, how: str) -> None:
    """`HOME=$WORKSPACE` is a common remedy for containers whose user has no home."""
    folder = checkout / ".config" / "ondol"
    folder.mkdir(parents=True)
    (checkout / "ondol.toml").rename(folder / "ondol.toml")
    env = {"XDG_CONFIG_HOME": str(folder.parent)} if how == "XDG_CONFIG_HOME" else {"HOME": str(checkout)}
    if how == "a workspace without .git":
        (checkout / ".git").rmdir()
        env["GITHUB_WORKSPACE"] = str(checkout)
    found = load(checkout / "deep", CI="true", **env)
    assert (found.scope, found.publish, found.trust, found.trusted_jobs) == ("auto", "auto", [], [])
    assert "ignored" in found.remarks[0]


def test_the_users_and_the_sites_file_decide_on_ci(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, site = tmp_path / "home" / "ondol", tmp_path / "etc"
    home.mkdir(parents=True)
    site.mkdir()
    monkeypatch.setattr(config, "SITE_FILE", str(site / "ondol.toml"))
    (site / "ondol.toml").write_text('store = "/site"\ntrusted-jobs = ["nightly-*"]\nscope = "site"\n')
    (home / "ondol.toml").write_text('store = "/user"\n')
    found = load(checkout, CI="true", XDG_CONFIG_HOME=str(home.parent))
    assert (found.store, found.scope, found.trusted_jobs) == ("/user", "site", ["nightly-*"])
    assert found.origin("store") == str(home / "ondol.toml")


def test_a_pipeline_cannot_name_itself_trusted(checkout: Path) -> None:
    """A flag or a variable stands in the pipeline's own text, which a pull request can edit."""
    (checkout / "ondol.toml").unlink()
    assert load(checkout, ONDOL_TRUSTED_JOBS="*").trusted_jobs == []
    assert "ONDOL_TRUSTED_JOBS" in load(checkout, ONDOL_TRUSTED_JOBS="*").remarks[0]
    from ondol.cli import run

    with pytest.raises(UsageError):
        run.parse(["--trusted-jobs", "*", "--", "true"])


def test_off_ci_a_checkout_of_ones_own_is_comfortable(checkout: Path, program: Program) -> None:
    (checkout / "ondol.toml").write_text('store = ".ondol"\nroom-dir = "rooms"\n[ccache]\nshared = "objects"\n')
    found = load(checkout / "deep")
    assert (found.store, found.room_dir, found.ccache_shared) == tuple(
        str(checkout / name) for name in (".ondol", "rooms", "objects")
    )
    assert found.remarks == []
    made = program.ondol("store", "init", ".ondol", cwd=checkout)
    assert made.returncode == 0, made
    (checkout / "rooms").mkdir()
    done = program.ondol("run", "--", "true", cwd=checkout / "deep")
    assert (done.returncode, "warning" in done.stderr) == (0, False), done
    assert (checkout / ".ondol" / "ondol-store.json").exists()


def test_python_310_without_tomli_uses_no_file_and_says_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    monkeypatch.setitem(sys.modules, "tomli", None)
    monkeypatch.delitem(sys.modules, "ondol.host.toml", raising=False)
    monkeypatch.delattr(host, "toml", raising=False)
    found = load(checkout)
    assert found.publish == "auto"
    assert "Python 3.10 cannot read TOML" in found.warnings[0]
    assert "pip install tomli" in found.warnings[0]


#: What a stranger wants of a guard: to move away what is no cache, and to write over what is the runner's.
STRANGERS_GUARD = '[guard]\ncache = "{0}"\nheal = "whole"\njson = "{0}/precious"\n'


@pytest.fixture
def uv(tmp_path: Path) -> str:
    """Names its own cache when it is asked for it."""
    path = tmp_path / "uv"
    path.write_text(f'#!/bin/sh\nif [ "$1 $2" = "cache dir" ]; then echo {tmp_path}/cache; else echo it ran; fi\n')
    path.chmod(0o755)
    return str(path)


def test_a_guards_cache_healing_and_report_are_not_a_projects_to_name(
    program: Program, checkout: Path, tmp_path: Path, uv: str
) -> None:
    """Neither on CI nor in one's own clone: `whole` would set everything in that directory aside."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "precious").write_text("mine")
    (checkout / "ondol.toml").write_text(STRANGERS_GUARD.format(home))
    for env in ({}, PULL_REQUEST):
        done = program.ondol("guard", "--", uv, "sync", cwd=checkout, env=env)
        assert (done.returncode, done.stdout) == (0, "it ran\n"), done
        assert "guard.cache, guard.heal, guard.json ignored" in done.stderr
        assert "(instead: --cache --heal --json or ~/.config/ondol/ondol.toml" in done.stderr
        assert {path.name: path.read_text() for path in home.iterdir()} == {"precious": "mine"}
    (checkout / "ondol.toml").write_text('[guard]\nheal = "off"\n')  # which only makes the guard do less
    assert program.ondol("guard", "--", uv, "sync", cwd=checkout, env=PULL_REQUEST).stderr == ""


def test_what_the_runner_says_of_a_guard_counts(program: Program, checkout: Path, tmp_path: Path) -> None:
    """By variable, by the user's own file, by what is typed, each over the one before it."""
    cache, report, typed = (tmp_path / name for name in ("cache", "report.json", "typed.json"))
    cache.mkdir()
    (checkout / "ondol.toml").unlink()
    config_home = tmp_path / "config"
    (config_home / "ondol").mkdir(parents=True)
    (config_home / "ondol" / "ondol.toml").write_text(f'[guard]\ncache = "{cache}"\njson = "{report}"\n')
    said = {"XDG_CONFIG_HOME": str(config_home)}
    assert program.ondol("guard", "--", "true", cwd=checkout, env=said).returncode == 0
    assert json.loads(report.read_text())["cache"] == str(cache)
    by_variable = {**said, "ONDOL_GUARD_CACHE": str(tmp_path), "ONDOL_GUARD_JSON": str(tmp_path / "variable.json")}
    assert program.ondol("guard", "--json", str(typed), "--", "true", cwd=checkout, env=by_variable).returncode == 0
    assert json.loads(typed.read_text())["cache"] == str(tmp_path)
    assert not (tmp_path / "variable.json").exists()


def test_a_variable_that_names_no_cache_costs_a_warning_and_not_the_command(
    program: Program, tmp_path: Path, uv: str
) -> None:
    said = {"ONDOL_GUARD_CACHE": "/etc/passwd"}
    done = program.ondol("guard", "--", uv, "sync", cwd=tmp_path, env=said)
    assert (done.returncode, done.stdout) == (0, "it ran\n"), done
    assert "ONDOL_GUARD_CACHE" in done.stderr
    assert "not a directory" in done.stderr
    done = program.ondol("guard", "--cache", "", "--", uv, "sync", cwd=tmp_path)  # "$UV_CACHE_DIR", not set
    assert (done.returncode, done.stdout, done.stderr) == (0, "it ran\n", ""), done
