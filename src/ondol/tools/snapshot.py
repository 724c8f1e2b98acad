"""Files that a tool changes in place: an index, a database. Two of them cannot be merged, and first come, first served
would freeze the poorest one for ever.

So an entry's key is the file's place and a digest of what it holds, every state of it is an entry of its own, and a
room gets the newest that is good: what one job added, the next one has.
"""

import hashlib
import re

from ondol.errors import EntryRefused
from ondol.host.identity import Host
from ondol.tools.api import CacheDir, Found, Refused, refused
from ondol.tools.shapes import Listing, Shape, Shaped

#: A key has at most 200 letters, and two places must never become one.
_LONGEST = 150


class Snapshots(Shaped):
    """Subclasses state shapes of single files, and may say what in a file counts."""

    versioned = True

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        """What tells one state from another, without what changes by mere use. Raises `EntryRefused` if it is torn."""
        del cache, path
        return data

    def _file_unit(
        self, cache: CacheDir, host: Host, path: str, listing: Listing, shape: Shape, match: re.Match[str]
    ) -> Found | Refused:
        unit = super()._file_unit(cache, host, path, listing, shape, match)
        if isinstance(unit, Refused):
            return unit
        try:
            data = cache.read("", path)
            self.check(path, data)
            essence = self.essence(cache, path, data)
        except (EntryRefused, OSError) as error:
            return refused(path, error)
        place = unit.key if len(unit.key) <= _LONGEST else hashlib.sha256(unit.key.encode()).hexdigest()
        return unit._replace(key=f"{place}@{hashlib.sha256(essence).hexdigest()[:32]}")
