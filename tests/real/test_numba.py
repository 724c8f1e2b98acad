"""Real Numba: what travels as far as its key allows, and what a torn index does without us."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Warmed

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def numba(program: Program, tools: tuple[str, list[str]], public: Path) -> Warmed:
    return Warmed(Real(program, *tools, "numba", "numba_program.py"), public / "store-of-numba")


def test_damaged_entry_fails_no_job(numba: Warmed, tmp_path: Path) -> None:
    numba.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_functions_are_not_compiled_again_for_another_user(numba: Warmed) -> None:
    numba.stays_warm(uid=UID)


def test_signature_added_later_is_published_too(numba: Warmed, tmp_path: Path) -> None:
    """The index of a function is changed in place: a state is an entry, and the newest one is filled."""
    real, store = numba.real, numba.copy(tmp_path / "store")
    added = real.job(store, "float")
    assert (added.made, added.reused) == (1, 2), added
    again = real.job(store, "float", options=("--require-warm",))
    assert (again.status, again.made, again.reused) == (0, 0, 3), again


def test_file_that_is_cut_off_is_not_adopted(numba: Warmed, tmp_path: Path) -> None:
    """Without Ondol it does; such a file is never taken in."""
    cache, store, program = tmp_path / "cache", tmp_path / "store", numba.real.program
    assert program.ondol("store", "init", str(store)).returncode == 0
    assert numba.real.plain(cache).made == 2
    for end in ("nbi", "nbc"):
        whole = {path: path.read_bytes() for path in cache.rglob(f"*.{end}")}
        for path, data in whole.items():
            path.write_bytes(data[: len(data) // 2])
        died = numba.real.plain(cache)
        assert died.status == 1
        assert "pickle data was truncated" in died.stderr
        adopted = program.ondol("store", "adopt", str(cache), "--tool", "numba", "--store", str(store))
        assert "adopted 0 entries" in adopted.stdout
        assert adopted.stdout.count("torn: ") == 2
        for path, data in whole.items():
            path.write_bytes(data)


def test_other_checkout_is_not_served(numba: Warmed, public: Path) -> None:
    """Its key holds the source's directory: another one misses, silently and harmlessly."""
    here, elsewhere = numba.real.script, public / "another-numba-checkout"
    elsewhere.mkdir()
    numba.real.script = shutil.copy(here, str(elsewhere))
    moved = numba.real.job(numba.store, options=("--publish", "never"))
    numba.real.script = here
    assert (moved.status, moved.made, moved.reused) == (0, 2, 0), moved


def test_job_that_did_not_name_it_does_not_get_it(numba: Warmed, tmp_path: Path) -> None:
    """Numba cannot see that a function in another file has changed: who shares across commits has to want it."""
    program, theirs = numba.real.program, {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = program.ondol("run", "--store", str(numba.store), "--", *numba.real.command(), env=theirs)
    assert (done.returncode, "numba" in done.stderr) == (0, False), done.stderr
    assert '"made": 2' in done.stdout
