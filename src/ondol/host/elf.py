"""Whether a machine-code file is whole, from its own header."""

from __future__ import annotations


def is_whole(data: bytes | memoryview) -> bool:
    """Whether a 64-bit ELF file reaches as far as its own header says; a file cut off by a crash does not."""
    if len(data) < 64 or bytes(data[:4]) != b"\x7fELF" or data[4] != 2:
        return False
    import struct

    program_start, section_start = struct.unpack_from("<QQ", data, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, 54)
    end = max(program_start + program_size * program_count, section_start + section_size * section_count)
    return bool(end <= len(data))
