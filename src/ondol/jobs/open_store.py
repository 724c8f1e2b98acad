"""Opens the store that the settings name, with this user's rule of trust."""

import grp
import os
import pwd
from collections.abc import Callable
from functools import lru_cache, partial

from ondol.config import Settings
from ondol.errors import StoreError, StoreMissing
from ondol.foreign_text import is_number
from ondol.host import identity
from ondol.store import marker, revocations
from ondol.store.directory import DirectoryStore
from ondol.trust import owners
from ondol.trust.keys import Vetting


def location(settings: Settings) -> str:
    """The configured store, or the user's own."""
    return os.path.abspath(settings.store) if settings.store else default_location()


def default_location() -> str:
    return os.path.join(identity.user_cache_dir(), "ondol", "store")


def open_store(settings: Settings) -> DirectoryStore:
    """Open the store; the user's own default store is made on first use. Raises `StoreError`."""
    where = location(settings)
    try:
        return _vetted(DirectoryStore(where, judge(settings.trust)), settings)
    except StoreMissing:
        if settings.store:
            raise
    make(where, marker.Writers(), shared=False)
    return _vetted(DirectoryStore(where, judge(settings.trust)), settings)


def _vetted(store: DirectoryStore, settings: Settings) -> DirectoryStore:
    """Every pack is asked for its signature and for revocations before it is used, and a writer for its right."""
    reader, owner = _reader(settings.trust), store.marker.owner
    revoked = revocations.read(store.root_fd(), store.where, {0, reader.uid, owner, *reader.listed})
    store.vet = Vetting(store.where, store.marker, owners.believes(reader, owner), revoked)
    store.check_writer = partial(_check_writer, store)
    return store


def make(where: str, writers: marker.Writers, *, shared: bool, signed: tuple[str, ...] = ()) -> bool:
    """False if there is one already. Raises `StoreError`."""
    try:
        return marker.create(where, writers, shared=shared, signed=signed)
    except OSError as error:
        raise StoreError(
            f"cannot make a store at {where}",
            because=error.strerror or str(error),
            hint="name a directory that you can write",
        )


def judge(listed: list[int]) -> Callable[[marker.Marker], owners.Trusts]:
    return lambda found: _rule(_reader(listed), found.owner, found.writers)


def _reader(listed: list[int]) -> owners.Reader:
    return owners.Reader(os.geteuid(), frozenset(listed), identity.overflow_uid())


def _rule(reader: owners.Reader, marker_owner: int, writers: marker.Writers) -> owners.Trusts:
    return owners.trusted_owner(reader, marker_owner, writers.words, is_member)


@lru_cache(maxsize=4096)
def is_member(uid: int, group: str) -> bool:
    """Whether the machine's user database says so; asked once. False for anyone that it does not know; a lane's own
    group proves nothing (setgid hands it out).
    """
    try:
        wanted = int(group) if is_number(group) else grp.getgrnam(group).gr_gid
        user = pwd.getpwuid(uid)
        return wanted in os.getgrouplist(user.pw_name, user.pw_gid)
    except (KeyError, OSError):
        return False


def _check_writer(store: DirectoryStore, scope: str, signs: bool) -> None:
    if store.marker.wants_signature(scope) and not signs:
        raise StoreError(
            f"the scope {scope} of {store.where} takes signed entries only",
            because="this job has no key to sign with",
            hint="--sign-key, or another --scope",
        )
    me, writers = os.geteuid(), store.marker.writers
    others_read = _rule(owners.Reader(-1, (), None), 0, writers)
    if others_read(me) and not others_read(me, scope):
        raise StoreError(
            f"uid {me} may not publish into the scope {scope} of {store.where}",
            because=f"its writers are {writers}",
            hint=f"ondol store writers add {me}:{scope} --store {store.where}, if its owner agrees",
        )
