"""What only the output of GDB's commands tells: its Python API has no function for it.

No other file parses output. The patterns are for GDB 10 and later. Follows armsnap.py.
"""

import re

import gdb

# Messages of GDB when it connects: one for each of the server's tracepoints, and one about a
# missing program, which a snapshot need not have.
REMARKS = re.compile(
    r"(Tracepoint \d+ at .*"
    r"|Created tracepoint \d+ for target's tracepoint \d+ at .*"
    r"|warning: No executable has been specified and target does not support"
    r"|determining executable automatically\.  Try using the \"file\" command\.)\n?"
)


def output_of(command):
    """Returns the output of a GDB command; empty if it fails."""
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error:
        return ""


def packet(words):
    """Sends a packet and returns the reply; empty if the target has none."""
    # gdb.RemoteTargetConnection.send_packet would make GDB discard the frame being unwound.
    found = re.search(r'received: "(.*)"', output_of(f"maintenance packet {words}"), re.DOTALL)
    # GDB writes other than printable characters as escapes.
    return found[1].encode().decode("unicode_escape", "replace") if found else ""


def without_remarks(text):
    """Removes GDB's messages about tracepoints and a missing program from the output of a command."""
    return "".join(line for line in text.splitlines(True) if not REMARKS.fullmatch(line))


def entry_point():
    """Returns the entry point of the program where it is loaded; None if unknown."""
    shown = re.search(r"^\s*Entry point: 0x([0-9a-f]+)", output_of("info files"), re.MULTILINE)
    return int(shown[1], 16) if shown else None


def is_core_file():
    """Returns whether the target is a core file."""
    return "Local core dump file:" in output_of("info files")


def section_ranges():
    """Returns the address ranges of the sections of GDB's files."""
    return ranges_in(r"^\s*0x([0-9a-f]+) - 0x([0-9a-f]+) is ", output_of("info files"))


def empty_core_ranges():
    """Returns the address ranges that a core file lists without their contents."""
    empty = r"^\s*\[\d+\]\s+0x([0-9a-f]+)->0x([0-9a-f]+) at .*: load(?!.*HAS_CONTENTS)"
    return ranges_in(empty, output_of("maintenance info sections"))


def mapped_ranges():
    """Returns the address ranges that a process can read, and those of GDB's memory regions."""
    mapping = r"^\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+(?!.*(?:/dev/|---p|\[v))"
    region = r"^\s*\d+\s+\S+\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s"
    return ranges_in(mapping, output_of("info proc mappings")) | ranges_in(region, output_of("info mem"))


def ranges_in(pattern, text):
    """Returns the address ranges in the lines of a text."""
    found = set()
    for match in re.finditer(pattern, text, re.MULTILINE):
        # `info mem` shows 0 for the end of the address space.
        found.add((int(match[1], 16), int(match[2], 16) or 1 << 64))
    return found


def is_unavailable(error):
    """Returns whether an error is about memory or a register that was not collected: it has no class of its own."""
    return "unavailable" in str(error) or "not available" in str(error)


def frame_id(frame):
    """Returns the stack and code addresses by which GDB identifies a frame of its own; None for other frames."""
    found = re.search("stack=0x([0-9a-f]+),code=0x([0-9a-f]+),!special", str(frame))
    return tuple(int(digits, 16) for digits in found.groups()) if found else None


def entry_values_fail(command):
    """Returns whether GDB reports errors for arguments at functions' entries in the frames that a command prints."""
    return "@entry=<error reading variable" in output_of(command)


def location():
    """Returns the line that GDB prints for the selected frame, without the frame's number."""
    return output_of("frame").removeprefix("#0  ")


def moves_back():
    """Returns whether GDB moves backward, also while it runs `reverse-finish`: the parameter is unchanged then."""
    return "Reverse" in output_of("show exec-direction")


def uses_soft_floats():
    """Returns whether 32-bit code passes floating-point numbers in core registers. The parameter may be `auto`."""
    return "softvfp" in output_of("show arm fpu")


def stop_signal():
    """Returns the name of the signal that stopped the selected thread, also before armsnap was loaded."""
    found = re.search(r"stopped (?:at|with) signal (SIG[A-Z0-9]+)", output_of("info program"))
    return found[1] if found else None


def thread_details(thread):
    """Returns the target's description of a thread; before GDB 11 with more text around it."""
    if hasattr(thread, "details"):
        return thread.details or ""
    return output_of(f"info threads {thread.num}")
