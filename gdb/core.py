"""`generate-core-file` for snapshots: saves the known state as a core file.

GDB's own command calls a function of the program to find the heap, which a snapshot cannot run, and does not
work for systems whose kernel GDB does not know. Follows save.py.
"""

import os
import shutil
import struct
import tempfile

import gdb

# Types of notes.
NT_PRSTATUS, NT_FPREGSET, NT_AUXV, NT_ARM_VFP, NT_ARM_PAC_MASK = 1, 2, 6, 0x400, 0x406
# Auxiliary vector: the entry point, from which GDB derives the load address of the program; and HWCAP_FP,
# HWCAP_ASIMD and HWCAP_PACA, with the last of which it looks for the masks of pointer authentication.
AT_ENTRY, AT_HWCAP = 9, 16
CAPABILITIES = 1 | 1 << 1 | 1 << 30
# Maximum number of segments in the header.
MAX_SEGMENTS = 0xFFFE
SIGTRAP = 5


class CoreFile(gdb.Command):
    """Save a core file of the snapshot.
Usage: generate-core-file [FILE]

FILE defaults to core.1. It contains the same registers and memory as
`armsnap save`. A core file cannot mark registers as unknown: they are 0 in
it, and this command lists them."""

    def __init__(self):
        super().__init__("generate-core-file", gdb.COMMAND_FILES, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        words = gdb.string_to_argv(argument)
        path = os.path.expanduser(words[0]) if words else "core.1"
        selected = gdb.selected_thread()
        if selected is None:
            raise gdb.GdbError("there is nothing to save: attach to a snapshot first (armsnap attach)")
        if os.path.lexists(path):
            not_input(path)
            may_write("core-file", path)
        try:
            write_core(path, selected)
        except OSError as error:
            raise gdb.GdbError(f"{path}: {error.strerror}")
        finally:
            if selected.is_valid():
                selected.switch()
        print(f"Saved corefile {path}")


def write_core(path, selected):
    """Writes the notes of all threads, the selected one first, and the memory."""
    inferior = gdb.selected_inferior()
    wide = inferior.architecture().name().startswith("aarch64")
    threads = sorted(inferior.threads(), key=lambda thread: (thread.num != selected.num, thread.num))
    notes, ranges = b"", known_ranges(LARGEST)
    for thread in threads:
        thread.switch()
        frame = newest_frame()
        known = {name.lower(): value for name, _, value in registers(inferior.architecture(), frame)}
        if "pc" not in known:
            raise gdb.GdbError(f"thread {thread.num}: its program counter is not known")
        notes += thread_notes(thread.num, known, wide)
        ranges += stack_range(frame) + code_ranges(frame)
        ranges += SYSTEM_CONTROL if "xpsr" in known else []
    selected.switch()
    notes += vector_note(wide, struct.pack("<I", NT_ARM_PAC_MASK) + b"LINUX" in notes)
    segments = []
    with tempfile.TemporaryFile() as memory:
        for start, end in merged(ranges):
            for at in range(start, end, CHUNK):
                for address, data in readable(inferior, at, min(CHUNK, end - at)):
                    memory.write(data)
                    if segments and sum(segments[-1]) == address:
                        segments[-1] = (segments[-1][0], segments[-1][1] + len(data))
                    else:
                        segments.append((address, len(data)))
        if len(segments) > MAX_SEGMENTS:
            raise gdb.GdbError(f"{len(segments)} pieces of memory: too many for a core file")
        memory.seek(0)
        # With a unique name, so that a file left by a killed GDB does not block it.
        made, temporary = tempfile.mkstemp(
            dir=os.path.dirname(path) or ".", prefix=f"{os.path.basename(path)}.", suffix=".part"
        )
        try:
            with open(made, "wb") as file:
                file.write(head(wide, notes, segments))
                file.write(notes)
                shutil.copyfileobj(memory, file)
            show_as_usual(temporary, 0o666)
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)


def thread_notes(number, known, wide):
    """Returns the registers of a thread in the layout of Linux core files."""
    unknown = []

    def value(name, size):
        if name not in known:
            unknown.append(name)
        return known.get(name, 0).to_bytes(size, "little")

    if wide:
        names = [f"x{n}" for n in range(31)] + ["sp", "pc", "cpsr"]
        # elf_prstatus: the signal, the thread, and the registers after 112 bytes.
        status = struct.pack("<12xh18xi76x", SIGTRAP, number)
        status += b"".join(value(name, 8) for name in names) + bytes(8)
        state = b"".join(known.get(f"v{n}", 0).to_bytes(16, "little") for n in range(32))
        state += struct.pack("<II8x", known.get("fpsr", 0), known.get("fpcr", 0))
        notes = note(b"CORE", NT_PRSTATUS, status) + note(b"CORE", NT_FPREGSET, state)
        masks = [known.get(name) for name in ("pauth_dmask", "pauth_cmask")]
        if None not in masks:
            notes += note(b"LINUX", NT_ARM_PAC_MASK, struct.pack("<QQ", *masks))
    else:
        names = [f"r{n}" for n in range(13)] + ["sp", "lr", "pc"]
        names.append("xpsr" if "xpsr" in known else "cpsr")
        status = struct.pack("<12xh10xi44x", SIGTRAP, number)
        status += b"".join(value(name, 4) for name in names) + bytes(8)
        state = b"".join(known.get(f"d{n}", 0).to_bytes(8, "little") for n in range(32))
        state += struct.pack("<I", known.get("fpscr", 0))
        notes = note(b"CORE", NT_PRSTATUS, status) + note(b"LINUX", NT_ARM_VFP, state)
    if unknown:
        print(f"thread {number}: unknown, saved as 0 in the core file: {', '.join(unknown)}")
    return notes


def vector_note(wide, signs):
    """Returns the known entries of the auxiliary vector. `signs` is whether pointers may be signed."""
    entry = entry_point()
    vector = () if entry is None else (AT_ENTRY, entry)
    vector += (AT_HWCAP, CAPABILITIES) if signs else ()
    if not vector:
        return b""
    data = struct.pack(f"<{len(vector) + 2}{'Q' if wide else 'I'}", *vector, 0, 0)
    return note(b"CORE", NT_AUXV, data)


def note(owner, kind, data):
    """Returns a note: name and contents are aligned to 4 bytes."""
    name = owner + b"\0"
    name += bytes(-len(name) % 4)
    return struct.pack("<III", len(owner) + 1, len(data), kind) + name + data + bytes(-len(data) % 4)


def head(wide, notes, segments):
    """Returns the ELF header and the program headers, followed by the notes and the memory."""
    file, program = ("<HHIQQQIHHHHHH", "<IIQQQQQQ") if wide else ("<HHIIIIIHHHHHH", "<IIIIIIII")
    size = 16 + struct.calcsize(file)
    entry, count = struct.calcsize(program), len(segments) + 1
    at = size + count * entry
    out = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    machine = 183 if wide else 40
    out += struct.pack(file, ET_CORE, machine, 1, 0, size, 0, 0, size, entry, count, 0, 0, 0)

    def segment(kind, flags, address, length):
        nonlocal at
        where = (at, address, 0, length, length if kind == PT_LOAD else 0)
        at += length
        if wide:
            return struct.pack(program, kind, flags, *where, 1)
        return struct.pack(program, kind, *where, flags, 1)

    out += segment(PT_NOTE, 0, 0, len(notes))
    return out + b"".join(segment(PT_LOAD, 7, start, length) for start, length in segments)


# Only in a GDB started by `armsnap gdb`: elsewhere GDB's own command fits its target.
if "ARMSNAP" in globals():
    CoreFile()
