"""Stack dumps as people want them: the frames of their own code first, what is the same in every dump folded. Pure."""

import re
from itertools import groupby

#: Word for what is folded → how its lines look.
_FOLDED = {
    "of pytest": re.compile(r'  File "[^"]*/(_pytest|pluggy)/'),
    "without symbols": re.compile(r"#\d+ .* in \?\? \("),
}
_THREAD = re.compile(r"(Current t|T)hread ")
_LIBRARY = re.compile(r'  File "([^"]*/(_pytest|pluggy)/|<|.*/lib(64)?/python3[.\d]*/(?!site-packages|dist-packages))')


def readable(dump: str) -> str:
    """Everything that faulthandler and a debugger wrote, one block for each thread."""
    blocks = [_without_ours(block.splitlines()) for block in re.split(r"\n{2,}", dump.strip("\n"))]
    first = next((n for n, block in enumerate(blocks) if _THREAD.match(block[0] if block else "")), len(blocks))
    head, threads = blocks[:first], blocks[first:]
    threads.sort(key=lambda block: not any(_is_users(line) for line in block))
    return "\n\n".join("\n".join(_folded(block)) for block in (*head, *threads))


def _is_users(line: str) -> bool:
    return line.startswith("  File ") and not _LIBRARY.match(line)


def _without_ours(block: list[str]) -> list[str]:
    """Stacks end where the item's do: what lies below it is the same in every worker."""
    kept, ours = [], False
    for line in block:
        ours = (ours or "/ondol/fleet/worker/" in line) and line.startswith("  File ")
        if not ours:
            kept.append(line)
    return kept


def _folded(block: list[str]) -> list[str]:
    found: list[str] = []
    for word, lines in groupby(block, lambda line: next((w for w, look in _FOLDED.items() if look.match(line)), "")):
        these = list(lines)
        found += these if not word or len(these) == 1 else [f"  [… {len(these)} frames {word} …]"]
    return found
