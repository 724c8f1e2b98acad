"""Everything Ondol can say went wrong.

Each error has four parts, printed in this order: *what* happened to which thing, *because* of what was observed,
*note* what Ondol does now, *hint* what to type. Errors are leaves: they import nothing of ours, and only `cli` and
`report` turn them into text.
"""


class OndolError(Exception):
    """Base of all; `what` is one sentence that names the thing and its place."""

    def __init__(self, what: str, *, because: str = "", note: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.because = because
        self.note = note
        self.hint = hint

    def line(self) -> str:
        """The error as one line, for warnings beside a running job."""
        text = self.what
        if self.because:
            text += f": {self.because}"
        return f"{text} (fix: {self.hint})" if self.hint else text

    def __str__(self) -> str:
        return self.line()


def in_ourselves(error: BaseException) -> str:
    """A bug of ours, with its place, in one line. Imports nothing: the command may have replaced all of Ondol."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename.rpartition('/')[2]}:{place.tb_lineno}" if place else ""
    return f"an error in Ondol itself, {type(error).__name__}: {error}{where}"


class UsageError(OndolError):
    """The command line, the environment or a configuration file asks for something impossible."""


class StoreError(OndolError):
    """The store cannot serve this request. For a job this is a miss; for `ondol store` it is the answer."""


class StoreMissing(StoreError):
    """Nothing is there yet."""


class PackError(OndolError):
    """A pack that is torn, corrupt, oversized or not what its place says. Always a miss, never a crash."""


class EntryRefused(OndolError):
    """An entry in a tool's cache that must not be packed: incomplete, torn, path-bound elsewhere."""


class EntryUntrusted(OndolError):
    """A whole entry whose signer this reader does not trust, or that was revoked. A miss; it stays where it is."""


class EntryUnfit(OndolError):
    """A good entry that is not for this machine: a source, a header or a compiler is another one here. A miss."""


class RoomError(OndolError):
    """No directory on this machine can hold a private room."""


def closest(word: str, known: list[str], likeness: float = 0.6) -> str:
    """The known word that was probably meant, or empty."""
    import difflib  # only on the way to an error message

    return next(iter(difflib.get_close_matches(word[:60], known, n=1, cutoff=likeness)), "")


def did_you_mean(word: str, known: list[str], otherwise: str) -> str:
    """The hint of every error about a word that is not known."""
    meant = closest(word, known)
    return f"did you mean {meant}? Else: {otherwise}" if meant else otherwise
