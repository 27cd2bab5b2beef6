"""Which names an object file imports, read from its symbol table (ELF, 64 bits, little-endian)."""

from __future__ import annotations

import struct

__all__ = ["undefined_names"]

_HEADER = struct.Struct("<4sBB10x HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_WEAK = 2


def undefined_names(data: bytes) -> dict[str, bool]:
    """Return the names that a relocatable object file does not define itself; the value says whether weakly.

    Args:
        data: The file's bytes.

    Raises:
        ValueError: It is no such file.

    Source: System V Application Binary Interface, chapters 4 and 5, "Object Files".
    """
    try:
        magic, bits, order, *_head = _HEADER.unpack_from(data)
        if (magic, bits, order) != (b"\x7fELF", 2, 1):
            raise ValueError("no ELF file of 64 bits")
        offset, size, count = _head[5], _head[10], _head[11]
        sections = [_SECTION.unpack_from(data, offset + size * number) for number in range(count)]
        found: dict[str, bool] = {}
        for _name, kind, _flags, _address, begin, length, link, _info, _align, _entry in sections:
            if kind != _SYMBOL_TABLE:
                continue
            names = sections[link][4]
            for at in range(begin + _SYMBOL.size, begin + length, _SYMBOL.size):  # the first entry is none
                name, info, _other, section, _value, _size = _SYMBOL.unpack_from(data, at)
                if section == 0:
                    text = data[names + name : data.index(b"\0", names + name)].decode(errors="replace")
                    found[text] = info >> 4 == _WEAK
        return found
    except (struct.error, IndexError) as error:
        raise ValueError(f"an ELF file that cannot be read: {error}") from None
