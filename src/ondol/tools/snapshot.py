"""Files that a tool changes in place: an index, a database. Two of them cannot be merged, and first come, first served
would freeze the poorest one for ever.

So an entry's key is the file's place and a digest of what it holds, every state of it is an entry of its own, and a
room gets the newest that is good: what one job added, the next one has.
"""

import hashlib

from ondol.tools.api import CacheDir, Found
from ondol.tools.shapes import Listing, Shaped

#: A key has at most 200 letters, and two places must never become one.
_LONGEST = 150


class Snapshots(Shaped):
    """Subclasses state shapes of single files, and may say what in a file counts."""

    versioned = True

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        """What tells one state from another, without what changes by mere use. Raises `EntryRefused` if it is torn."""
        del cache, path
        return data

    def finish(self, cache: CacheDir, listing: Listing, found: Found) -> Found:
        del listing
        path = found.names[0]
        data = cache.read("", path)
        self.check(path, data)
        essence = hashlib.sha256(self.essence(cache, path, data)).hexdigest()
        place = found.key if len(found.key) <= _LONGEST else hashlib.sha256(found.key.encode()).hexdigest()
        return found._replace(key=f"{place}@{essence[:32]}")
