"""Flips every byte of a pack and reports which flips a reader did not notice."""

from __future__ import annotations

from faults.forged_packs import ADDRESS, accepted


def corruption_violations(good: bytes, masks: tuple[int, ...] = (0x01, 0x80, 0xFF)) -> list[str]:
    """`good` must be a pack of `forged_packs.ADDRESS`."""
    assert accepted(good, ADDRESS), "the pack is bad to begin with"
    found = []
    for position in range(len(good)):
        for mask in masks:
            bad = bytearray(good)
            bad[position] ^= mask
            problem = accepted(bytes(bad), ADDRESS)
            if problem:
                found.append(f"byte {position} ^ {mask:#x}: {problem}")
    return found
