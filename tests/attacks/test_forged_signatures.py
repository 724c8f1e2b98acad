"""An entry that nobody who counts has signed is put where signed ones are demanded; or bytes are hidden where a
signature belongs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from handmade import make_entry, trust_everybody
from ondol.errors import EntryUntrusted, PackError
from ondol.store import check, marker, pack, revocations
from ondol.store.api import Stored
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry
from ondol.trust import keys
from ondol.trust.keys import Vetting
from people import Program

pytestmark = pytest.mark.warm

OURS, THEIRS, REVOKED = (keys.signer(keys.new()) for _ in range(3))


def vetting(scopes: tuple[str, ...] = ("*",)) -> Vetting:
    """A store that demands signatures in `main`, and names our key and one that was revoked."""
    named = (marker.Key(keys.show(OURS.public), scopes), marker.Key(keys.show(REVOKED.public)))
    demanding = marker.Marker("id", marker.Writers(), 0, ("main",), named)
    record = revocations.Revocation("key", pack.key_name(REVOKED.public))
    return Vetting("/store", demanding, believed=True, revoked=(record,))


def vet(data: bytes, entry: Entry, by: Vetting) -> None:
    stored = Stored(entry.address, "lane", 0, len(data), 0.0, True)
    by(stored, pack.inspect(data, entry.address))


def resigned(entry: Entry, over: bytes) -> bytes:
    """A pack with our good signature of something else."""
    return pack.encode(entry, lambda _: OURS.sign(over))


ENTRY = make_entry(1)
OTHER_SCOPE = make_entry(1, scope="nightly")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pack.encode(ENTRY), "unsigned"),
        (pack.encode(ENTRY, THEIRS.sign), "which is not trusted for main"),
        (pack.encode(ENTRY, REVOKED.sign), "revoked: key"),
    ],
    ids=["unsigned", "unknown", "revoked"],
)
def test_whole_entry_that_nobody_who_counts_has_signed_is_passed_over(data: bytes, why: str) -> None:
    with pytest.raises(EntryUntrusted, match=why):
        vet(data, ENTRY, vetting())


def test_signature_counts_in_the_scopes_of_its_key_only() -> None:
    vet(pack.encode(ENTRY, OURS.sign), ENTRY, vetting(("main",)))
    with pytest.raises(EntryUntrusted, match="not trusted for main"):
        vet(pack.encode(ENTRY, OURS.sign), ENTRY, vetting(("pr-*",)))


def test_keys_of_a_store_that_is_not_believed_do_not_count_and_its_demand_does() -> None:
    demanding = marker.Marker("id", marker.Writers(), 5, ("main",), (marker.Key(keys.show(OURS.public)),))
    with pytest.raises(EntryUntrusted):
        vet(pack.encode(ENTRY, OURS.sign), ENTRY, Vetting("/store", demanding, believed=False, revoked=()))


@pytest.mark.parametrize("field", [*Address._fields, "digest", "size"])
def test_signature_of_anything_else_is_bad(field: str) -> None:
    """Each bound part, one at a time: a signature that is good for another scope, tool, key, content or length."""
    seal = pack.inspect(pack.encode(ENTRY, OURS.sign), ENTRY.address)
    address = ENTRY.address._replace(**{field: "other"}) if field in Address._fields else ENTRY.address
    digest = bytes(32) if field == "digest" else seal.digest
    size = seal.size + 1 if field == "size" else seal.size
    with pytest.raises(PackError, match="bad signature"):
        vet(resigned(ENTRY, pack.statement(address, digest, size)), ENTRY, vetting())
    vet(resigned(ENTRY, pack.statement(ENTRY.address, seal.digest, seal.size)), ENTRY, vetting())


def test_no_two_addresses_make_one_statement() -> None:
    one = pack.statement(Address("ab", "c", "d", "e"), b"x", 1)
    assert one != pack.statement(Address("a", "bc", "d", "e"), b"x", 1)


GARBAGE: list[Callable[[bytes], bytes]] = [
    lambda _: b"x",
    lambda _: b"\x01" + bytes(95),
    lambda _: b"\x01" + bytes(97),
    lambda _: b"\x02" + bytes(96),
    lambda _: b"#!/bin/sh\n" * 1000,
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_bytes_in_the_place_of_a_signature_make_a_pack_bad(garbage: Callable[[bytes], bytes]) -> None:
    plain = pack.encode(ENTRY)
    block = garbage(plain)
    with pytest.raises(PackError, match="signature"):
        pack.inspect(plain[:-4] + len(block).to_bytes(4, "little") + block, ENTRY.address)


def test_bytes_that_look_like_a_signature_are_set_aside_also_where_none_is_demanded(
    store: DirectoryStore, program: Program
) -> None:
    store.publish([(ENTRY.address, pack.encode(ENTRY, lambda _: bytes(96)))])
    done = program.ondol("store", "verify", "--store", store.where, "--json")
    assert done.returncode == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["kind"], finding["set_aside"]) == ("corrupt", True)
    assert "bad signature" in finding["why"]


def test_verify_tells_what_is_whole_and_not_to_be_used(store_path: Path, program: Program) -> None:
    DirectoryStore(str(store_path), trust_everybody).publish([(ENTRY.address, pack.encode(ENTRY))])
    program.ondol("store", "require-signature", "main", "--store", str(store_path))
    done = program.ondol("store", "verify", "--store", str(store_path))
    assert done.returncode == 0
    assert "untrusted: " in done.stdout
    assert list(store_path.glob("lanes/*/main/*/*/*.pack"))


def test_planted_entry_does_not_keep_its_key_from_being_published(store_path: Path, program: Program) -> None:
    """Same UID, same lane: an unsigned entry stands where the signed one belongs. It is a miss, counted and said, and the
    next job that can sign puts a signed one there.
    """
    where = ("--store", str(store_path))
    assert program.job(store_path, "add").compiled == 1
    assert program.ondol("store", "require-signature", "main", *where).returncode == 0
    reading = program.job(store_path, "add", options=("--json", str(store_path / "report")))
    assert reading.hits == 0
    assert any("1 triton pack in" in warning and "unsigned" in warning for warning in reading.warnings)
    assert json.loads((store_path / "report").read_text())["tools"]["triton"]["untrusted"] == {"unsigned": 1}
    assert any("takes signed entries only" in warning for warning in reading.warnings)
    secret = store_path / "key"
    assert program.ondol("key", "new", str(secret)).returncode == 0
    shown = json.loads(program.ondol("key", "show", str(secret), "--json").stdout)
    assert program.ondol("key", "trust", shown["public"], "--for", "store", *where).returncode == 0
    done = program.ondol("store", "adopt", str(_cache(store_path, program)), *where, "--sign-key", str(secret))
    assert done.returncode == 0, done.stderr
    used = program.job(store_path, "add", options=("--json", str(store_path / "report")))
    assert (used.hits, used.warnings) == (1, [])
    (packed,) = json.loads((store_path / "report").read_text())["tools"]["triton"]["packs"]
    assert (packed["signer"], packed["used"], len(packed["digest"])) == (shown["name"], True, 64)


def _cache(place: Path, program: Program) -> Path:
    cache = place / "raw"
    program.run([program.python, str(program.programs / "standin.py"), "add"], env={"TRITON_CACHE_DIR": str(cache)})
    return cache


def test_keys_that_others_could_have_written_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ondol" / "keys"
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (folder / "a.pub").write_text(f"{keys.show(OURS.public)} main a comment\n")
    assert keys.load().counts(OURS.public, "main")
    assert not keys.load().counts(OURS.public, "pr-1")
    (folder / "a.pub").chmod(0o666)
    with pytest.raises(Exception, match="are not believed"):
        keys.load()
    (folder / "a.pub").chmod(0o644)
    monkeypatch.setenv("CI", "true")
    assert not keys.load().counts(OURS.public, "main"), "a key that another job of this user may have put there"
    monkeypatch.delenv("CI")
    (folder / f"{pack.key_name(OURS.public)}.revoked").write_text("")
    assert not keys.load((marker.Key(keys.show(OURS.public)),)).counts(OURS.public, "main")


def test_unsigned_store_needs_no_cryptography(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who neither signs nor demands signatures never imports it; who must check one without it uses nothing."""
    import sys

    signed = pack.encode(ENTRY, OURS.sign)
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    plain = Vetting("/store", marker.Marker("id", marker.Writers(), 0), believed=True, revoked=())
    vet(pack.encode(ENTRY), ENTRY, plain)
    vet(signed, ENTRY, plain)
    with pytest.raises(EntryUntrusted, match="no cryptography") as refused:
        vet(signed, ENTRY, vetting())
    assert "ondol[keys]" in refused.value.hint


def test_check_finds_a_bad_signature(store: DirectoryStore) -> None:
    store.vet = vetting()
    store.publish([(ENTRY.address, pack.encode(ENTRY, lambda _: OURS.sign(b"else")))])
    found = check.verify(store, lambda *_: None, keep=True)
    assert [finding.kind for finding in found.findings] == ["corrupt"]
