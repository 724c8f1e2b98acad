"""`ondol key`: what a person types to sign, to trust and to stop trusting."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ondol.trust import keys
from people import Program

pytestmark = pytest.mark.warm


class Person:
    def __init__(self, program: Program, home: Path) -> None:
        self.program = program
        self.home = home

    def key(self, *words: str, **options: Any) -> Any:
        done = self.program.ondol("key", *words, "--json", env={"XDG_CONFIG_HOME": str(self.home)}, **options)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr


@pytest.fixture
def person(program: Program, tmp_path: Path) -> Person:
    return Person(program, tmp_path)


def test_new_key_is_its_owners_alone_and_replaces_nothing(person: Person) -> None:
    path = person.home / "a.key"
    made = person.key("new", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert person.key("show", str(path))["public"] == made["public"]
    assert person.key("show", "-", input=path.read_text())["public"] == made["public"]
    before = path.read_bytes()
    assert "was not written" in person.key("new", str(path))
    assert path.read_bytes() == before
    assert person.key("new", "-")["secret"].startswith(keys.SECRET)


def test_trusted_listed_revoked(person: Person, store_path: Path) -> None:
    made = person.key("new", str(person.home / "a.key"))
    person.key("trust", made["public"], "--scopes", "main,pr-*", "--comment", "the nightly job")
    person.key("trust", made["public"], "--scopes", "main", "--for", "store", "--store", str(store_path))
    listed = person.key("list", "--store", str(store_path))["keys"]
    assert {(key["name"], key["comment"], tuple(key["scopes"]), key["revoked"]) for key in listed} == {
        (made["name"], "the nightly job", ("main", "pr-*"), False),
        (made["name"], "", ("main",), False),
    }
    person.key("revoke", made["name"])
    assert all(key["revoked"] for key in person.key("list", "--store", str(store_path))["keys"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trust", "ssh-ed25519"), "is no public key"),
        (("trust", keys.show(bytes(32)), "--scopes", "a/b"), "are no scopes"),
        (("revoke", "abc"), "neither a public key nor"),
        (("show", "/nonexistent"), "holds no key"),
        (("list", "extra"), "needs no FILE"),
        (("new",), "needs a FILE"),
    ],
)
def test_what_makes_no_sense_is_said(person: Person, words: tuple[str, ...], said: str) -> None:
    assert said in person.key(*words)


@pytest.mark.parametrize("line", ["", "x", "ed25519:AAAA", "ed25519:!!!!", keys.show(bytes(32))[:-4]])
def test_what_is_no_key_is_no_key(line: str) -> None:
    with pytest.raises(ValueError):
        keys.parse(line)
