"""The contract between Ondol and a place where packs live. `tests/conformance/backend_suite.py` holds every backend
to it.

A backend moves bytes. It does not look into packs, decides nothing about trust beyond who wrote what, and is used by
one process at a time per object (any number of objects, processes and hosts at once on one place).

The words of the contract:

* **Whole or nothing.** Bytes handed to `publish` are seen by any reader completely or not at all, at any moment, also
  if the
  publisher is killed or the machine loses power.
* **First wins.** `publish` never replaces: for an address that this writer has published before, the earlier bytes
  stay.
* **Evidence, not names.** `trusted` on a `Stored` comes from what the backend itself can vouch for (the owner of an
  open
  descriptor, credentials), never from a name or from the bytes.
* **No locks.** No method waits for another process.
* **Errors.** A place that cannot serve raises `StoreError` with a cause and what to type. A single pack that is gone or
  unreadable raises `OSError`: a miss. Nothing else is raised. Retrying is the caller's business; nobody retries here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ondol.store.entry import Address


class Stored(NamedTuple):
    """A pack that was seen in a listing. It may be gone, bad or unreadable by the time it is fetched."""

    address: Address
    #: Where in the backend; opaque to callers, stable for this listing.
    place: str
    #: The UID that vouches for it.
    owner: int
    size: int
    #: Seconds since the epoch, by the store's clock: a hint for cleaning, never for correctness.
    published: float
    trusted: bool
    #: What it takes on the disk, where the backend knows that: a sparse file of a terabyte takes nothing.
    on_disk: int | None = None

    @property
    def weight(self) -> int:
        """What removing it gives back."""
        return self.size if self.on_disk is None else min(self.size, self.on_disk)


class Published(NamedTuple):
    """What became of one pack that was offered."""

    address: Address
    #: True if it is now in the store because of this call; False if this writer's earlier one stays.
    new: bool


class Stat(NamedTuple):
    """What jobs of one day report about one tool in one scope."""

    #: Days since the epoch.
    day: int
    scope: str
    tool: str
    #: Entries that were used, and that had to be made.
    hits: int
    misses: int
    #: The size of what was used, unpacked; and what making that had cost, as far as that is known.
    bytes: int
    milliseconds: int


class Backend(Protocol):
    """A place for packs."""

    #: What the user calls it: a path or a URL.
    where: str

    def index(self, tool: str, scopes: Sequence[str]) -> list[Stored]:
        """All packs of a tool in these scopes that this reader trusts, in the order in which to try them.

        For one address several may be listed (several writers). Entries published while this runs may be missing.
        """

    def find(self, addresses: Collection[Address]) -> list[Stored]:
        """The trusted packs of these addresses: what `index` tells of them, without a look at the others."""

    def has_more_than(self, number: int, tool: str, scopes: Sequence[str]) -> bool:
        """Whether `index` would list more than that: cheaper than to list them."""

    def tools(self, scopes: Sequence[str]) -> set[str]:
        """The tools that may have packs in these scopes: one look instead of one `index` for each tool of the field."""

    def passed_over(self, tools: Collection[str], scopes: Sequence[str]) -> list[tuple[int, str, int]]:
        """(owner, why, how many) of the packs in these scopes that `index` leaves out. For people: where there are very
        many, not all are counted.
        """

    def everything(self) -> Iterator[Stored]:
        """All packs of all writers, trusted or not, for people and for cleaning. Unreadable parts are skipped."""

    def fetch(self, stored: Stored) -> bytes:
        """The bytes, as they are now; the caller verifies them.

        Raises `OSError` if they cannot be had, and `PackError` if no pack can be like what is there.
        """

    #: (stored, its manifest): raises `PackError` or `EntryUntrusted` if this reader must not use the pack, because of
    #: signatures or revocations. A backend only keeps it for its callers.
    vet: Callable[[Stored, Any], None]
    #: (scope, whether its packs will be signed): raises `StoreError` if no reader would use what this writer publishes
    #: there. Kept for the callers too.
    check_writer: Callable[[str, bool], None]

    def trusts(self, owner: int, scope: str = "") -> bool:
        """Whether this reader takes what that UID vouches for: in this scope, or in any."""

    def before_forking(self) -> None:
        """Several processes will publish with this object: whatever they need once, they find. Never raises."""

    def publish(self, packs: Iterable[tuple[Address, bytes]]) -> list[Published]:
        """Make these packs visible to readers, each by one atomic act, durable when this returns.

        Killed half-way, some are published and some not; none is torn. Raises `StoreError` when the place refuses
        (full, read-only, not permitted); what was published before stays.
        """

    def set_aside(self, stored: Stored) -> bool:
        """Move a bad pack out of the readers' way, keeping it for a person to look at. False if we may not."""

    def delete(self, stored: Stored) -> bool:
        """Remove a pack. True if it is gone because of us; False if it was gone already or we may not."""

    def note_use(self, addresses: Iterable[Address], job: str = "") -> None:
        """Remember that these were useful, for cleaning by least recent use. A hint: may be lost, never raises.

        `job`: instead, that these are what a job of this name needs.
        """

    def uses_of(self, job: str) -> set[Address]:
        """What jobs of this name needed the last time, by this and other trusted writers."""

    def last_uses(self) -> dict[Address, float]:
        """When addresses were last noted, by this and other trusted writers; day precision."""

    def report(self, rows: Iterable[Stat]) -> None:
        """Remember what a job had of this place. A hint, as `note_use`."""

    def reports(self) -> list[Stat]:
        """What jobs of this and other trusted writers reported lately, added up; the newest day first."""

    def close(self) -> None:
        """Let go of descriptors and connections. Nothing is flushed here: there is nothing left to flush."""
