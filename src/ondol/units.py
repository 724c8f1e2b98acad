"""Sizes, durations and counts, as people write and read them. Pure."""

_SIZES: dict[str, float] = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZES |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _parse(text: str, units: dict[str, float]) -> float:
    text = text.strip().lower()
    unit = text.lstrip("0123456789.")
    if unit.strip() not in units:
        raise ValueError(f"unknown unit {unit.strip()!r}")
    return float(text[: len(text) - len(unit)]) * units[unit.strip()]


def parse_size(text: str) -> int:
    """`500M`, `10GiB`, `1024`: bytes. Raises `ValueError`."""
    return int(_parse(text, _SIZES))


def parse_duration(text: str) -> float:
    """`90`, `90s`, `15m`, `7d`: seconds. Raises `ValueError`."""
    return _parse(text, _TIMES)


def size(count: float) -> str:
    unit = "B"
    for larger in ("KiB", "MiB", "GiB"):
        if count >= 1024:
            count, unit = count / 1024, larger
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def seconds(value: float) -> str:
    if value >= 6000:
        return f"{value / 3600:.1f} h"
    if value >= 100:
        return f"{value / 60:.1f} min"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def duration(value: float) -> str:
    """As somebody would type it: `90s`, `15m`, `7d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if value and value % length == 0:
            return f"{value / length:g}{unit}"
    return f"{value:g}s" if value else "0"


def age(value: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= length:
            return f"{value / length:.0f} {unit}"
    return "now"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def entries(count: int) -> str:
    return plural(count, "entry", "entries")


def directories(count: int) -> str:
    return plural(count, "directory", "directories")
