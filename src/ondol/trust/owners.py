"""Whose entries may a reader use? Owners are evidence, as with git's `safe.directory`; names are not. Pure.

A reader trusts lanes owned by itself and by root (who could change anything anyway), and by the writers that the
store's marker names, in the scopes that it gives them, if the marker itself belongs to somebody the reader trusts:
root, the reader, or a UID the reader lists.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from ondol.foreign_text import matches

#: (uid, group name) → whether the user database says that this user is in this group.
Membership = Callable[[int, str], bool]
#: (owner, scope) → whether this owner's entries in this scope may be used; without a scope: in any scope at all.
Trusts = Callable[..., bool]


class Reader(NamedTuple):
    uid: int
    #: UIDs that the person who runs the job vouches for (`--trust`).
    listed: Collection[int]
    #: The UID that means "somebody outside this user namespace", where there is such a thing.
    nobody: int | None


def believes(reader: Reader, owner: int) -> bool:
    """Whether this owner's word counts for the reader without anybody vouching."""
    return _is_somebody(reader, owner) and (owner in (0, reader.uid) or owner in reader.listed)


def trusted_owner(reader: Reader, marker_owner: int, writers: Collection[str], is_member: Membership) -> Trusts:
    """The rule for one store: a predicate over lane owners, and the scopes in which their word counts.

    `writers`: a UID, @GROUP or any each; with `:PATTERN` in those scopes only.
    """
    vouched = believes(reader, marker_owner)
    named = [word.partition(":")[::2] for word in writers]

    def is_named(owner: int, who: str) -> bool:
        return who in ("any", str(owner)) or (who.startswith("@") and is_member(owner, who[1:]))

    def trusts(owner: int, scope: str = "") -> bool:
        if believes(reader, owner):
            return True
        if not vouched or not _is_somebody(reader, owner):
            return False
        here = [who for who, pattern in named if not scope or not pattern or matches(scope, pattern)]
        return any(is_named(owner, who) for who in here)

    return trusts


def _is_somebody(reader: Reader, owner: int) -> bool:
    # In a container with mapped users every foreign owner looks the same, our own UID's twin included.
    return reader.nobody is None or owner != reader.nobody
