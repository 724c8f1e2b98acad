"""What is typed nearly right is answered with the right word, and what contradicts itself is not guessed at."""

from __future__ import annotations

import pytest

from people import Program

pytestmark = pytest.mark.warm


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("config --jsno", "--json?"),
        ("store ls --jsno", "--json?"),
        ("run --jsno -- true", "--json?"),
        ("open --format dcoker", "docker?"),
        ("run --tools trition -- true", "triton?"),
        ("help rnu", "did you mean run?"),
        ("run --trusted-jobs x -- true", "/etc/ondol/ondol.toml"),
        ("run --quiet --verbose -- true", "--quiet or --verbose"),
        ("run --store= -- true", "expected a path"),
        ("run --no-tools triton -- true", "unrecognized arguments: --no-tools"),
        ("run --publish nevr -- true", "did you mean never?"),
        ("guard --heal whle -- true", "did you mean whole?"),
        ("guard --wait soon -- true", "expected a time"),
        ("doctor --limit 0", "expected a number above 0"),
        ("store gc --max-size lots", "expected a size"),
        ("key lst", "did you mean list?"),
        ("store writers ad", "did you mean add?"),
        ("store vrify", "did you mean verify?"),
        ("test --hygiene reprot", "did you mean report?"),
        ("test --timeout soon", "expected a time"),
    ],
)
def test_a_word_nearly_right_is_answered_with_the_right_one(program: Program, typed: str, answer: str) -> None:
    done = program.ondol(*typed.split())
    assert (done.returncode, done.stdout) == (2, ""), done
    assert answer in done.stderr


def test_help_about_a_command(program: Program) -> None:
    assert program.ondol("help", "run").stdout == program.ondol("run", "--help").stdout
    assert program.ondol("help").stdout == program.ondol("--help").stdout
    assert program.ondol("help", "store", "ls").stdout == program.ondol("store", "ls", "--help").stdout


def test_short_flags_in_one_word(program: Program) -> None:
    done = program.ondol("run", "-vq", "--", "true")
    assert (done.returncode, "--quiet or --verbose" in done.stderr) == (2, True), done


def test_what_is_typed_beats_what_is_set(program: Program, tmp_path: object) -> None:
    env = {"ONDOL_QUIET": "1", "XDG_CACHE_HOME": str(tmp_path)}
    assert "store: " in program.ondol("run", "-v", "--", "true", env=env).stderr
    assert "store: " not in program.ondol("run", "-q", "--", "true", env={**env, "ONDOL_VERBOSE": "1"}).stderr
