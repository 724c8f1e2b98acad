"""From a template to the words of a command: what a shell on the way does to them must not change them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol.cli import test as command
from ondol.engines import choose, template
from ondol.engines.api import NodeOptions
from ondol.engines.slurm import SlurmEngine, parse_left
from ondol.errors import OndolError, UsageError
from ondol.fleet import messages
from ondol.fleet.messages import Broken, Bye
from ondol.fleet.wire import Decoder, encode
from ondol.host import own_python
from ondol.testing import node

AGENT = ["/opt/my python/bin/python3", "-m", "ondol", "node"]
SHOW = [sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))"]


def filled(text: str, agent: list[str] = AGENT, **values: str) -> list[str]:
    return template.fill(template.split(text), {"agent": agent, "gpus": ["--gpus", "all"]}, values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh h {agent}", ["ssh", "h", *AGENT]),
        ("{agent}", AGENT),
        ('ssh h "exec {agent}"', ["ssh", "h", f"exec {shlex.join(AGENT)}"]),
        ("sh -c '{agent}'", ["sh", "-c", shlex.join(AGENT)]),
        ("sh -c ' {agent} '", ["sh", "-c", f" {shlex.join(AGENT)} "]),
        ("run --cmd={agent} x", ["run", f"--cmd={shlex.join(AGENT)}", "x"]),
        ("docker run {gpus} {agent}", ["docker", "run", "--gpus", "all", *AGENT]),
        ("x '{{.Names}}' {agent}", ["x", "{{.Names}}", *AGENT]),
        ("on {node} --device={device} {agent}", ["on", "n1", "--device=3", *AGENT]),
    ],
)
def test_words_are_split_where_the_template_says_so_and_nowhere_else(text: str, expected: list[str]) -> None:
    assert filled(text, node="n1", device="3") == expected


#: What a word of a command may hold.
LETTERS = st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])


@given(st.lists(st.text(LETTERS, min_size=1), min_size=1))
def test_a_shell_on_the_way_sees_the_same_words(words: list[str]) -> None:
    """Whatever the words are, `sh -c` splits them as they were."""
    command = filled("sh -c 'exec {agent}'", words)
    assert shlex.split(command[2]) == ["exec", *words]


def test_a_real_shell_sees_the_same_words() -> None:
    hard = ["a b", "it's", '"', "$HOME", "`id`", "\\", "*", "", "ü", "new\nline"]
    done = subprocess.run(filled("sh -c 'exec {agent}'", [*SHOW, *hard]), capture_output=True, text=True, check=True)
    import json

    assert json.loads(done.stdout) == hard


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (NodeOptions(launch="ssh h"), "does not say where the node program is started"),
        (NodeOptions(launch="ssh 'h {agent}"), "cannot be split"),
        (NodeOptions(launch="ssh {host} {agent}"), "there is no {host}"),
        (NodeOptions(launch="ssh {node} {agent}"), "the template has {node}"),
        (NodeOptions(launch="ssh {node} {agent}", nodes="a,a"), "named twice"),
        (NodeOptions(launch="ssh {node} {agent}", nodes="a/b"), "cannot be the name"),
        (NodeOptions(launch="x {device} {agent}", nodes="a", devices="cpu:2"), "one node per device"),
        (NodeOptions(launch="x {agent}", engine="slurm"), "choose one"),
        (NodeOptions(engine="dokcer:x"), "there is no engine 'dokcer'"),
        (NodeOptions(engine="docker"), "needs a target"),
        (NodeOptions(engine="slurm:x"), "nothing after a colon"),
        (NodeOptions(slurm="-N2"), "needs --engine slurm"),
    ],
)
def test_what_cannot_be_meant_is_refused(wish: NodeOptions, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose.choose(wish, {})
    assert said in str(caught.value) + caught.value.hint


def test_words_for_slurm_are_not_taken_for_options_of_ours() -> None:
    ours, theirs = command.parse(["--engine", "slurm", "--slurm", "-N2", "--srun", "--mem=4G", "-k", "x"])
    assert (ours.slurm, ours.srun, theirs) == ("-N2", "--mem=4G", ["-k", "x"])


def test_a_program_that_is_not_there_is_refused() -> None:
    engine = choose.choose(NodeOptions(launch="no-such-program {agent}"), {})
    assert engine is not None
    with pytest.raises(UsageError, match="no program 'no-such-program'"):
        engine.open()
    with pytest.raises(UsageError, match="no srun on PATH"):
        choose.choose(NodeOptions(engine="slurm"), {"PATH": "/nowhere"})  # before anything is collected


def test_presets_are_templates_like_any_other() -> None:
    for name in template.PRESETS:
        engine = choose.choose(NodeOptions(engine=f"{name}:one", directory="/w", devices="0-1"), {})
        assert isinstance(engine, template.TemplateEngine)
        (node,) = engine.nodes()
        command = engine.command(node)
        assert command[0] == name
        assert not [word for word in command if "{" in word or "\0" in word], command
    docker = choose.choose(NodeOptions(engine="docker:i", directory="/w", devices="cpu:2"), {})
    assert isinstance(docker, template.TemplateEngine)
    assert "--gpus" not in docker.command("node1")
    assert docker.command("node1")[-4:] == ["python3", "-m", "ondol", "node"]


def test_a_container_gets_the_one_file_that_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_python, "archive", lambda: "/my files/ondol.pyz")
    engine = choose.choose(NodeOptions(engine="podman:i", directory="/w", devices="cpu:1"), {})
    assert isinstance(engine, template.TemplateEngine)
    mounted = ["-v", "/my files/ondol.pyz:/my files/ondol.pyz:ro"]
    assert engine.command("node1") == [
        *("podman", "run", "-i", "--rm", *mounted, "-v", "/w:/w", "-w", "/w", "i"),
        *("python3", "/my files/ondol.pyz", "node"),
    ]
    told = choose.choose(NodeOptions(engine="podman:i", directory="/w", agent="python3 -m ondol"), {})
    assert isinstance(told, template.TemplateEngine)
    assert (told.bring, told.agent) == ("", ["python3", "-m", "ondol", "node"])


def test_one_node_per_device_where_the_template_names_one() -> None:
    engine = choose.choose(NodeOptions(launch="broker --device={device} {agent}", devices="sim:2"), {})
    assert engine is not None
    assert engine.nodes() == ["device0", "device1"]


def test_a_site_that_unsets_slurms_variables_does_not_break_the_steps() -> None:
    """And one that sets more than it should shapes them."""
    env = {"PATH": "/", "SLURM_CONF": "/c", "SLURM_TMPDIR": "/t", "SLURM_CPU_BIND": "x", "SRUN_CPUS_PER_TASK": "1"}
    engine = SlurmEngine(AGENT, env, step="--container-image=a#b")
    engine.job = "7"
    assert engine.environment() == {"PATH": "/", "SLURM_CONF": "/c", "SLURM_TMPDIR": "/t"}
    command = engine.command("n2")
    assert "--jobid=7" in command
    assert command[-5:] == ["--container-image=a#b", *AGENT]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3:04", 184),
        ("1:00:00", 3600),
        ("2-00:00:10", 172810),
        ("45", 45),
        ("UNLIMITED", None),
        ("", None),
        ("x-1", None),
    ],
)
def test_slurms_time_is_read(text: str, seconds: float | None) -> None:
    assert parse_left(text) == seconds


def test_the_first_difference_is_the_first() -> None:
    assert "item 2: x there, b here" in node.first_difference(["a", "b", "c"], ["a", "x", "c"])
    assert "it collected 1 items, the controller 2" in node.first_difference(["a", "b"], ["a"])
    assert "item 2: nothing there, b here" in node.first_difference(["a", "b"], ["a"])
    assert "item 2: b there, nothing here" in node.first_difference(["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen", "agree"),
    [
        ("ab", "ba", False, True),
        ("aab", "aba", False, False),
        ("a", "ab", False, False),
        ("b", "ab", True, True),
        ("ac", "abd", True, False),
    ],
)
def test_the_same_items_are_put_in_our_order(ours: str, theirs: str, chosen: bool, agree: bool) -> None:
    items: Any = [SimpleNamespace(nodeid=name) for name in theirs]
    go = messages.Go(list(ours), {}, {}, chosen)
    if agree:
        assert [item.nodeid for item in node.in_order(items, go)] == list(ours)
    else:
        with pytest.raises(OndolError):
            node.in_order(items, go)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_noise_between_lines_loses_no_message(noise: list[bytes], size: int) -> None:
    """A login message, a print without a newline, a carrier that cuts anywhere."""
    stream = bytearray()
    for number, junk in enumerate(noise):
        stream += junk.replace(b"\n", b"").replace(b"t0k", b"") + encode(b"t0k", Broken(str(number), "ü\n"))
    stream += b"t0k00000000{}\n" + encode(b"t0k", Bye())
    decoder = Decoder(b"t0k")
    found = [m for i in range(0, len(stream), size) for m in decoder.feed(bytes(stream[i : i + size]))]
    assert [getattr(m, "worker", None) for m in found[:-1]] == [str(n) for n in range(len(noise))]
    assert type(found[-1]) is Bye
    assert decoder.garbage >= len(b"t0k00000000{}\n")
