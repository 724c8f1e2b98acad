"""A suite that was written for pytest-xdist: databases, ports and groups are kept apart, or together, as they were there."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.warm_pytest


@pytest.fixture
def suite(suite, request):
    """With pytest-xdist and no other plugin but ours; or without it."""
    if not suite.all_plugins and "without-xdist" not in request.node.name:
        suite.plugins.append("xdist")
    return suite


BUILD = Path(__file__).parents[2] / ".build"
#: With pytest-xdist's own fixtures and options, and with ours in its absence.
WITH_AND_WITHOUT = pytest.mark.parametrize("xdist", [[], ["-p", "no:xdist"]], ids=["beside-xdist", "without-xdist"])


def beside(suite, name: str, plugin: str = ""):
    """With one more plugin, installed apart, which calls itself `plugin`; none of those that happen to be here."""
    folder = BUILD / f"plugin-{name}"
    assert folder.is_dir(), f"make test installs it; for pytest alone: make .build/plugin-{name}"
    suite.variables["PYTHONPATH"] = ":".join([str(suite.path), str(folder), os.environ.get("PYTHONPATH", "")])
    suite.plugins.append(plugin or name)
    return suite


WHO = """
    import json, os, pytest
    @pytest.mark.parametrize("n", range(12))
    def test_who(n, worker_id, testrun_uid, request):
        given = request.config.workerinput
        found = {
            "worker": worker_id, "uid": testrun_uid, "pid": os.getpid(), "n": n,
            "environment": [os.environ.get(f"PYTEST_XDIST_{x}") for x in ("WORKER", "WORKER_COUNT", "TESTRUNUID")],
            "given": [given["workerid"], given["workercount"], given["testrunuid"], len(given["mainargv"]) > 0],
            "slot": os.environ["ONDOL_DEVICE"],
        }
        with open(os.environ["LOG"], "a") as file: file.write(json.dumps(found) + "\\n")
        if n == 3:
            try: open("crashed", "x").close()
            except FileExistsError: return
            os.abort()
"""


@pytest.mark.parametrize(
    "named", [{}, {"PYTEST_PLUGINS": "ondol.pytest_plugin,xdist.plugin"}, {"PYTEST_ADDOPTS": "-p xdist"}]
)
def test_its_options_are_there_where_it_is_installed_and_not_loaded_by_itself(suite, named) -> None:
    suite.plugins.clear()
    suite.variables = named
    suite.write(test_a="def test_1(worker_id): assert worker_id in {'gw0', 'gw1'}\ndef test_2(): pass\n")
    result = suite.pytest("-n2", "--dist=loadfile", devices="cpu")
    assert result.summary == "2 passed", result.output


@WITH_AND_WITHOUT
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_every_worker_has_a_name_of_its_own_as_with_xdist(suite, xdist, start) -> None:
    """One name for all workers makes them share what the suite keeps apart by it. A worker that was replaced takes over
    its predecessor's name, so that names stay below the count."""
    suite.write(test_a=WHO, test_b=WHO)
    result = suite.pytest(*xdist, f"--ondol-start={start}", devices="cpu:2")
    assert result.record.counts() == {"passed": 24}, result.output
    assert "23 passed, 1 rerun, 1 flaky" in result.summary, result.output
    seen = [json.loads(line) for line in result.log]
    assert {one["slot"]: one["worker"] for one in seen} == {"cpu0": "gw0", "cpu1": "gw1"}
    assert len({one["uid"] for one in seen}) == 1
    assert len({one["pid"] for one in seen}) > 2, "a worker was replaced"
    for one in seen:
        assert one["environment"] == [one["worker"], "2", one["uid"]]
        assert one["given"] == [one["worker"], 2, one["uid"], True]


def test_names_are_given_inside_workers_only(suite) -> None:
    suite.write(
        conftest="""
        import os, xdist
        def look(session, where):
            with open(os.environ["LOG"], "a") as file:
                print(where, xdist.is_xdist_worker(session), xdist.get_xdist_worker_id(session),
                      os.environ.get("PYTEST_XDIST_WORKER"), xdist.is_xdist_controller(session), file=file)
        def pytest_sessionstart(session): look(session, "start")
        def pytest_runtest_setup(item): look(item.session, "item")
        """,
        test_a="def test_1(): pass\n",
    )
    result = suite.pytest("--dist=loadfile")
    assert result.log == ["start False master None True", "item True gw0 gw0 False"]


def test_the_uid_of_a_run_can_be_chosen(suite) -> None:
    suite.write(test_a="def test_1(testrun_uid): assert testrun_uid == 'mine'\n")
    assert suite.pytest("--testrunuid=mine").status == 0


def test_items_with_several_devices_have_a_name_that_nobody_else_has(suite) -> None:
    suite.write(
        test_g="""
        import os, pytest
        @pytest.mark.ondol(devices=2)
        @pytest.mark.parametrize("n", range(2))
        def test_pair(n, worker_id): open(os.environ["LOG"], "a").write(f"{os.environ['ONDOL_DEVICE']} {worker_id}\\n")
        """
    )
    result = suite.pytest(devices="cpu:4")
    assert {line.split()[0].split(",")[0].replace("cpu", "gw") == line.split()[1] for line in result.log} == {True}


DJANGO = {
    "conftest": """
        from django.conf import settings
        def pytest_configure():
            settings.configure(
                INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"], SECRET_KEY="x", USE_TZ=True,
                DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "plain.sqlite3",
                                       "TEST": {"NAME": "test.sqlite3"}, "OPTIONS": {"timeout": 0.2}}})
        """,
    "test_users": """
        import pytest
        pytestmark = pytest.mark.django_db(transaction=True)
        @pytest.mark.parametrize("n", range(6))
        def test_user(n):
            from django.contrib.auth.models import User
            assert User.objects.count() == 0
            for m in range(10): User.objects.create(username=f"u{m}")
            assert User.objects.count() == 10
        """,
}
DJANGO["test_more_users"] = DJANGO["test_users"]


def test_django_with_a_file_as_database_is_as_green_with_two_workers(suite) -> None:
    """pytest-django gives each worker a file by its name; with one name for all, they empty each other's tables."""
    beside(suite, "django").write(**DJANGO)
    result = suite.pytest("-p", "no:warnings", devices="cpu:2")
    assert result.summary == "12 passed", result.output
    assert result.status == 0
    assert len({item.attempts[0].worker for item in result.record.items}) == 2


@pytest.mark.parametrize("start", ["fork", "auto"])
def test_rerunfailures_repeats_inside_the_worker(suite, start) -> None:
    """Beside xdist it keeps counts in a server of the controller, and looks at `workerinput` for the way there."""
    beside(suite, "rerunfailures").write(
        test_r="""
        import os, pytest
        @pytest.mark.flaky(reruns=2)
        @pytest.mark.parametrize("n", range(6))
        def test_second_time(n):
            path = f"seen{n}"
            if not os.path.exists(path):
                open(path, "w").close(); assert 0, "first time"
        """
    )
    result = suite.pytest(f"--ondol-start={start}", "--ondol-judge=off", devices="cpu:2")
    assert result.status == 0, result.output
    assert "6 passed, 6 rerun" in result.summary, result.output


ORDERED = """
    import os, pytest
    seen = []
    @pytest.mark.parametrize("n", range(15))
    def test_in_order(n):
        assert seen == list(range(n)), "this process ran others"
        seen.append(n)
        open(os.environ["LOG"], "a").write(f"{__name__} {os.environ['ONDOL_DEVICE']}\\n")
"""
CLASSES = """
    import os, pytest
    class Base:
        seen = []
        @pytest.mark.parametrize("n", range(8))
        def test_in_order(self, n):
            assert self.seen == list(range(n)); self.seen.append(n)
    class TestOne(Base): seen = []
    class TestTwo(Base): seen = []
    class TestThree(Base): seen = []
"""
GROUPED = """
    import os, pytest
    shared = []
    @pytest.mark.xdist_group("ledger")
    @pytest.mark.parametrize("n", range(10))
    def test_ledger(n):
        import test_g0
        assert test_g0.shared == list(range(int(__name__[-1]) * 10 + n)); test_g0.shared.append(len(test_g0.shared))
    @pytest.mark.parametrize("n", range(10))
    def test_free(n): pass
"""
DISTS = {
    "loadfile": {f"test_f{n}": ORDERED for n in range(3)},
    "loadscope": {"test_c": CLASSES},
    "loadgroup": {f"test_g{n}": GROUPED for n in range(2)},
}


@WITH_AND_WITHOUT
@pytest.mark.parametrize("dist", sorted(DISTS))
def test_what_belongs_together_stays_on_one_worker_in_its_order(suite, xdist, dist) -> None:
    """Tests that depend on the ones before them in their file, class or group are green as on one worker."""
    suite.write(**DISTS[dist])
    result = suite.pytest(*xdist, f"--dist={dist}", "--ondol-judge=off", devices="cpu:3")
    assert result.status == 0, result.output
    assert set(result.verdicts.values()) == {"passed"}


def test_a_member_of_a_group_is_judged_and_retried_like_any_other(suite) -> None:
    """Alone, in a fresh process, while nobody else of its group runs."""
    suite.write(
        test_g="""
        import os, pytest
        state = []
        pytestmark = pytest.mark.xdist_group("g")
        @pytest.mark.parametrize("n", range(8))
        def test_n(n):
            fd = os.open("lock", os.O_CREAT | os.O_EXCL)
            try:
                if n == 2: assert not state, "a state leak"
                if n == 4 and not os.path.exists("crashed"):
                    open("crashed", "w").close(); os.unlink("lock"); os.abort()
                state.append(n)
            finally: os.unlink("lock")
        """,
        test_h="import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_free(n): pass\n",
    )
    result = suite.pytest("--dist=loadgroup", devices="cpu:2")
    assert result.status == 0, result.output
    attempts = {item.nodeid.split("::")[1]: len(item.attempts) for item in result.record.items}
    assert {name: count for name, count in attempts.items() if count > 1} == {"test_n[2]": 2, "test_n[4]": 2}
    assert [item.nodeid[-3:] for item in result.record.items if item.flaky] == ["[2]", "[4]"]


NUMBERS = [
    (["-n3", "--max-worker-restart=4", "--no-loadscope-reorder"], 3),
    (["-n", "auto", "--maxprocesses=2"], 2),
    (["-d", "-n2"], 2),
]


@WITH_AND_WITHOUT
@pytest.mark.parametrize(("flags", "workers"), NUMBERS)
def test_n_is_the_number_of_workers(suite, xdist, flags, workers) -> None:
    suite.write(test_a=WHO.replace("os.abort()", "pass"))
    result = suite.pytest(*xdist, *flags, devices="cpu")
    assert result.status == 0, result.output
    counts = {json.loads(line)["environment"][1] for line in result.log}
    if "auto" not in flags:
        assert counts == {str(workers)}
    assert all(int(count) <= workers for count in counts)


@pytest.mark.parametrize("flags", [flags for flags, _ in NUMBERS])
def test_the_front_takes_the_number_too(suite, flags) -> None:
    suite.write(test_a="def test_1(): pass\n")
    suite.variables["CUDA_VISIBLE_DEVICES"] = ""  # "auto" would find them
    front = suite.ondol(*flags, devices="auto")
    assert front.status == 0, front.output


REFUSED = [
    (["-n4"], "cpu:2", "-n 4", "--devices cpu:4"),
    (["-n4"], "sim:2", "-n 4", "-n 0"),
    (["--tx=3*popen"], "cpu:2", "--tx", "--devices cpu:3"),
    (["--dist=each"], "cpu:2", "--dist each", "--dist load"),
]


@WITH_AND_WITHOUT
@pytest.mark.parametrize(("flags", "devices", "what", "hint"), REFUSED)
def test_what_cannot_be_meant_is_refused_with_what_to_type(suite, xdist, flags, devices, what, hint) -> None:
    suite.write(test_a="def test_1(): open('ran', 'w')\n")
    result = suite.pytest(*xdist, *flags, devices=devices)
    assert result.status == 4
    error = result.output.partition("ERROR")[2]
    assert what in error, result.output
    assert hint in error
    assert not (suite.path / "ran").exists()


def test_a_number_that_nobody_typed_is_named_with_its_file(suite) -> None:
    """`addopts = -n 8` belongs to a file that the user of `ondol test` may never have seen."""
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -n 8 --dist loadfile\n")
    suite.write(test_a="def test_1(): pass\n")
    refused = suite.ondol(devices="sim:2")
    assert refused.status == 4
    assert f"addopts in {suite.path / 'pytest.ini'}" in refused.output
    assert suite.ondol("-n0", devices="sim:2").status == 0
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -n auto\n")
    assert suite.ondol(devices="sim:2").status == 0


def test_without_our_workers_and_without_xdist_the_options_are_refused(suite) -> None:
    """They exist for runs of ours: in any other they must not be taken in silence."""
    suite.plugins.clear()
    suite.write(test_a="def test_1(): pass\n")
    for flags in (["-n2"], ["--dist=loadfile"], ["--tx=popen"]):
        result = suite.plain("-p", "no:xdist", *flags)
        assert result.status == 4, flags
        assert "pytest-xdist" in result.output


@pytest.mark.plugins("pytest_cov")
@pytest.mark.parametrize("flags", [["-n2"], ["--dist=loadfile", "-n2"]])
def test_coverage_is_whole_where_it_was_taken_by_xdist(suite, flags) -> None:
    """pytest-cov waits for xdist's workers when it sees `-n`, and then has nothing to report."""
    suite.write(covered="def one():\n    return 1\n\ndef two():\n    return 2\n")
    suite.write(
        test_a="import covered\ndef test_1(): covered.one()\n", test_b="import covered\ndef test_2(): covered.two()\n"
    )
    result = suite.pytest(*flags, "--cov=covered", "--cov-report=term", devices="cpu")
    assert result.status == 0, result.output
    assert re.search(r"covered.py +4 +0 +100%", result.output), result.output


MANY = "import pytest\n@pytest.mark.parametrize('n', range(75))\ndef test_n(n): pass\n"


def test_three_hundred_results_take_as_many_lines_as_with_xdist(suite) -> None:
    """A file's name per result, of which each worker has two, makes a log of more than a hundred lines."""
    suite.write(**{f"test_{name}": MANY for name in "abcd"})
    theirs = suite.plain("-n2")
    ours = suite.pytest(devices="cpu:2")
    assert ours.status == theirs.status == 0
    extra = 5  # our own section
    assert len(ours.output.splitlines()) <= len(theirs.output.splitlines()) + extra


def test_reports_name_their_worker_as_xdists_do(suite) -> None:
    suite.write(
        conftest="""
        import os
        main = os.getpid()
        def pytest_runtest_logreport(report):
            if os.getpid() == main:
                with open(os.environ["LOG"], "a") as file:
                    print(report.nodeid[-1], report.when, report.node.gateway.id, report.worker_id,
                          len(report.testrun_uid), report.item_index, file=file)
        """,
        test_a="import os\ndef test_1(): pass\ndef test_2(): os.abort()\n",
        test_b="def test_3(): assert 0\n",
    )
    result = suite.pytest("-v", "--ondol-retries=0", "--ondol-judge=off", "--junitxml=out.xml", devices="cpu:2")
    assert "[gw" in result.output.partition("FAILURES")[2], "which worker it failed on"
    assert {tuple(line.split()[3:5]) for line in result.log} <= {("gw0", "32"), ("gw1", "32")}
    assert all(line.split()[2] == line.split()[3] for line in result.log)
    lines = [line for line in result.output.splitlines() if re.match(r"\[gw\d\] \[", line)]
    assert len(lines) == 3, result.output
    assert not re.search(r"^test_\w.py::test_\d", result.output, re.M), "one line for each result"
    assert 'tests="3"' in (suite.path / "out.xml").read_text()


def test_one_worker_prints_what_plain_pytest_prints(suite) -> None:
    suite.write(test_a="def test_1(): pass\n", test_b="def test_2(): pass\n")
    for flags in ([], ["-v"]):
        plain, ours = suite.plain(*flags), suite.pytest(*flags)
        names = [line for line in plain.output.splitlines() if line.startswith("test_")]
        assert [line for line in ours.output.splitlines() if line.startswith("test_")] == names


@pytest.mark.parametrize("flags", [[], ["-n", "auto"]])
def test_names_are_unique_across_nodes(suite, flags) -> None:
    """Two nodes with two workers each, all of which share the suite's directory."""
    suite.write(
        test_n="""
        import os, pytest, time
        @pytest.mark.parametrize("n", range(12))
        def test_n(n, worker_id):
            with open(os.environ["LOG"], "a") as file: file.write(f"{worker_id} {os.environ['ONDOL_DEVICE']}\\n")
            deadline = time.monotonic() + 60
            while len(set(open(os.environ["LOG"]))) < 4 and time.monotonic() < deadline: time.sleep(0.01)
        """
    )
    result = suite.ondol("--launch=sh -c 'exec {agent}'", "--nodes=2", *flags, devices="cpu:2")
    assert result.status == 0, result.output
    assert sorted({line.split()[0] for line in result.log}) == ["gw0", "gw1", "gw2", "gw3"]
    assert len(set(result.log)) == 4, "one name for each of them"


def test_a_number_of_workers_is_refused_where_nodes_bring_their_own(suite) -> None:
    suite.write(test_a="def test_1(): open('ran', 'w')\n")
    result = suite.ondol("--launch=sh -c 'exec {agent}'", "--nodes=2", "-n3", devices="cpu:2")
    assert result.status == 4
    assert "-n 3" in result.output
    assert "nodes bring their own devices" in result.output


#: As in pytest-xdist's documentation: the controller makes one thing per worker, hands it over, and clears it away.
SHARES = """
    import os, pytest
    {optional}
    def pytest_configure_node(node):
        node.workerinput["database"] = {{"name": f"db_{{node.gateway.id}}", "port": (5432, b"x")}}
        node.workerinput["argv"] = node.config.invocation_params.args
        if os.environ.get("ODD"): node.workerinput["odd"] = eval(os.environ["ODD"])
        note(f"made {{node.gateway.id}} of {{node.workerinput['workercount']}}")
    {optional}
    def pytest_testnodedown(node, error):
        note(f"dropped {{node.workerinput['database']['name']}} {{error}}")
    def pytest_configure(config):
        if not hasattr(config, "workerinput"): note("controller")
    def pytest_sessionfinish(session):
        if not hasattr(session.config, "workerinput"): note("over")
    def note(text):
        with open(os.environ["LOG"], "a") as log: log.write(text + "\\n")
    @pytest.fixture(scope="session")
    def database(request):
        return request.config.workerinput["database"]
"""
USES = """
    import os, pytest
    @pytest.mark.parametrize("n", range(6))
    def test_db(n, database, worker_id, request):
        assert database == {"name": f"db_{worker_id}", "port": (5432, b"x")}
        assert "--ondol-devices=cpu:2" in request.config.workerinput["argv"]
        assert not [name for name, value in os.environ.items() if "5432" in value]
        if n == 2 and not os.path.exists("crashed"):
            open("crashed", "w").close(); os.abort()
"""


@WITH_AND_WITHOUT
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_a_conftest_gives_to_each_worker_is_there_and_is_taken_back(suite, xdist, start) -> None:
    """As often as it was made: a worker that crashes is replaced by one of the same name."""
    optional = "@pytest.hookimpl(optionalhook=True)" if xdist else ""
    suite.write(conftest=SHARES.format(optional=optional), test_a=USES, test_b=USES)
    result = suite.pytest(*xdist, f"--ondol-start={start}", devices="cpu:2")
    assert set(result.verdicts.values()) == {"passed"}, result.output
    assert sorted(result.log[1:3]) == ["made gw0 of 2", "made gw1 of 2"]
    there: Counter[str] = Counter()
    for name in re.findall("(?:made |dropped db_)gw.", "\n".join(result.log)):
        there[name[-3:]] += 1 if name.startswith("made") else -1
        assert there[name[-3:]] in {0, 1}, result.log
    assert there == {"gw0": 0, "gw1": 0}
    assert (result.log[0], result.log[-1]) == ("controller", "over")


@pytest.mark.parametrize("odd", ["object()", "'x' * 100_000"])
def test_what_cannot_be_given_is_refused_with_the_name_of_the_conftest(suite, odd) -> None:
    suite.variables["ODD"] = odd
    suite.write(conftest=SHARES.format(optional=""), test_a=USES)
    result = suite.pytest(devices="cpu:2")
    assert result.status == 4, result.output
    assert re.search(r"pytest_configure_node of \S*conftest.py put .* into node.workerinput", result.output)
    assert not suite.survivors()


@pytest.mark.plugins("pytest_cov")
def test_a_hook_for_nodes_beside_pytest_covs_own(suite) -> None:
    """pytest-cov has both hooks too, for workers that xdist starts: ours it knows as forks."""
    suite.write(conftest=SHARES.format(optional=""), test_a=USES)
    result = suite.pytest("--cov=test_a", devices="cpu:2")
    assert set(result.verdicts.values()) == {"passed"}, result.output
    assert re.search(r"test_a.py +\d+ +\d+ +\d\d+%", result.output)
