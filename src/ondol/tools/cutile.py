"""cuTile 1.7: one SQLite database, `cache.db`, with a row per kernel.

Facts: any error of SQLite's makes cuTile unlink the database and begin again; a mere look-up writes the time of use
into it. So what counts are its keys, and it travels only between two transactions and only if SQLite finds it whole.
"""

import os

from ondol.errors import EntryRefused
from ondol.tools.api import CacheDir, Found
from ondol.tools.shapes import Listing, Shape, Snapshots
from ondol.tools.table import BY_NAME

_MAGIC = b"SQLite format 3\0"
#: What SQLite keeps beside a database while a transaction is open, or after one was cut off.
_UNFINISHED = ("-journal", "-wal")


class CuTile(Snapshots):
    row = BY_NAME["cutile"]
    shapes = (Shape(r"cache\.db"),)
    ignored = (r"cache\.db-(?:journal|wal|shm)",)

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        for path in [place + end for end in _UNFINISHED]:
            if path in listing and listing[path].st_size:
                raise EntryRefused(f"{path} holds a transaction that is not finished", because="torn")
        return super().finish(cache, place, listing, found)

    def check(self, name: str, data: bytes) -> None:
        """The header against the length: what a copy that was cut off cannot hide."""
        page = int.from_bytes(data[16:18], "big")
        page = 65536 if page == 1 else page
        if not data.startswith(_MAGIC) or page * int.from_bytes(data[28:32], "big") != len(data):
            raise EntryRefused(f"{name} is not a whole database", because="torn")

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        del data
        keys = _keys(os.path.join(cache.path, path))
        if not keys:
            raise EntryRefused("the database holds no kernels", because="incomplete")
        return "\n".join(keys).encode()


TOOLS = (CuTile(),)


def _keys(path: str) -> list[str]:
    """The keys of a database that nobody is writing, in order. Nothing is written, no lock is taken."""
    try:
        import sqlite3
    except ImportError:
        raise EntryRefused("this Python has no SQLite to look with", because="unreadable")
    from urllib.parse import quote

    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise EntryRefused("SQLite finds the database damaged", because="torn")
        return [str(row[0]) for row in connection.execute("SELECT key FROM cache ORDER BY key")]
    except sqlite3.Error as error:
        raise EntryRefused(f"SQLite refuses the database: {error}", because="torn")
    finally:
        connection.close()
