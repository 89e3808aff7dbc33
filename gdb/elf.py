"""Headers of ELF files (System V ABI, chapters 4 and 5).

Follows armsnap.py.
"""

import struct

# Types of files: position-independent programs, core files.
ET_DYN, ET_CORE = 3, 4
# Types of segments: loaded memory, the name of the dynamic linker, notes.
PT_LOAD, PT_INTERP, PT_NOTE = 1, 3, 4
# Maximum number of bytes read of the program headers.
MAX_TABLE = 1 << 20


class ElfHeader:
    """The header of an ELF file."""

    def __init__(self, path):
        """Reads the header; OSError or ValueError if that fails."""
        with open(path, "rb") as file:
            start = file.read(64)
            if not start.startswith(b"\x7fELF") or len(start) < 52:
                raise ValueError("not an ELF file")
            self.is_64_bit = start[4] == 2
            order = "<" if start[5] == 1 else ">"
            layout = order + ("HHIQQQIHHH" if self.is_64_bit else "HHIIIIIHHH")
            fields = struct.unpack_from(layout, start, 16)
            # ET_DYN if the program can be loaded anywhere; its entry point; where the program headers are.
            self.type, self.entry = fields[0], fields[3]
            position, size, count = fields[4], fields[8], fields[9]
            file.seek(position)
            table = file.read(min(size * count, MAX_TABLE))
        starts = range(0, len(table) - 3, size) if size else ()
        self.segment_types = [struct.unpack_from(order + "I", table, start)[0] for start in starts]

    def is_static(self):
        """Returns whether the program runs without a dynamic linker."""
        return PT_INTERP not in self.segment_types
