"""Reads the memory known to GDB into the files of a snapshot.

Follows armsnap.py.
"""

import os
import re
import time

import gdb

# Maximum size of memory regions saved without an explicit request.
LARGEST = 64 << 20
# Bytes read of a stack beyond the outermost frame found by GDB.
STACK = 64 << 10
# Maximum size and depth of a stack.
MAX_STACK = 8 << 20
MAX_FRAMES = 10000
# Bytes read before and after a program counter or a return address.
CODE = 4 << 10
# Maximum number of callers whose code is read.
CALLERS = 256
# Maximum number of regions that are read from a server's memory map, known and unknown ones.
MAX_REGIONS = 10000
# Bytes read at once; and the page size, used if only parts can be read.
CHUNK = 64 << 10
PAGE = 4 << 10


def size_text(size):
    """Formats a size for display."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def merged(ranges):
    """Sorts ranges by address, and merges overlapping and adjacent ones."""
    out = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif start < end:
            out.append((start, end))
    return out


def without(ranges, others):
    """Returns the parts of `ranges` outside `others`, both sorted by address."""
    for start, end in ranges:
        for low, high in others:
            if high <= start or end <= low:
                continue
            if start < low:
                yield start, low
            start = max(start, high)
        if start < end:
            yield start, end


def server_ranges():
    """Returns the memory map of a server with qMemoryRegionInfo (armsnap, lldb-server)."""
    at, found = 0, []
    for _ in range(MAX_REGIONS):
        reply = packet(f"qMemoryRegionInfo:{at:x}")
        region = re.fullmatch(r"start:([0-9a-f]+);size:([0-9a-f]+);(.*)", reply)
        if not region:
            break
        start, size = int(region[1], 16), int(region[2], 16)
        if "permissions:" in region[3]:
            found.append((start, start + size))
        if size == 0 or start + size >= 1 << 64 or start + size <= at:
            break
        at = start + size
    else:
        print(f"left out: memory from {at:#x} on: there are too many regions; --memory selects parts of it")
    return found


def known_ranges(largest):
    """Returns the memory known to GDB: from its target, and from the sections of its files.

    Lists and leaves out regions larger than `largest`."""
    found = section_ranges()
    if is_core_file():
        # A core file does not contain all mapped memory: GDB reads zeros there.
        found -= empty_core_ranges()
    else:
        found |= set(server_ranges()) | mapped_ranges()
    ranges = []
    for start, end in sorted(found):
        if end - start <= largest:
            ranges.append((start, end))
        else:
            size = size_text(end - start)
            print(f"left out: {start:#x}-{end - 1:#x} ({size}); --memory selects parts of it")
    if not found:
        print("left out: memory other than stacks and code, because GDB has no memory map; --memory selects it")
    return merged(ranges)


def newest_frame():
    """Selects and returns the newest frame; None if GDB cannot unwind it (a trace frame)."""
    try:
        frame = gdb.newest_frame()
        frame.select()
        return frame
    except gdb.error:
        return None


def stack_range(frame):
    """Returns the stack of the newest frame, to somewhat beyond the outermost frame."""
    if frame is None:
        return []
    try:
        low = high = int(frame.read_register("sp"))
        for _ in range(MAX_FRAMES):
            frame = frame.older()
            if frame is None:
                break
            at = int(frame.read_register("sp"))
            if low <= at < low + MAX_STACK:
                high = max(high, at)
    except (gdb.error, ValueError):
        return []
    limit = 1 << (8 * gdb.lookup_type("long").pointer().sizeof)
    return [(low, min(high + STACK, limit))] if low else []


def code_ranges(frame):
    """Returns the code around the program counter, the link register, and the callers."""
    places = []
    for name in ("lr", "x30"):
        try:
            places.append(int(frame.read_register(name)))
        except (AttributeError, gdb.error, ValueError):
            pass
    try:
        for _ in range(CALLERS):
            if frame is None:
                break
            places.append(frame.pc())
            frame = frame.older()
    except gdb.error:
        pass
    limit = 1 << (8 * gdb.lookup_type("long").pointer().sizeof)
    places = [place % limit for place in places]
    # In this range M-profile cores have EXC_RETURN values instead of code.
    places = [place for place in places if limit > 1 << 32 or place < 0xE0000000]
    return [(max(place - CODE, 0), min(place + CODE, limit)) for place in places if place]


def readable(inferior, start, size):
    """Yields (address, bytes) for the readable parts of a range, in order."""
    try:
        yield start, bytes(inferior.read_memory(start, size))
        return
    except gdb.MemoryError:
        pass
    except gdb.error as error:
        # In a trace frame; other errors are not about memory.
        if not is_unavailable(error):
            raise
    if size == 1:
        return
    ends = (start, start + size - 1)
    if start // PAGE == ends[1] // PAGE:
        if size > 2 and not any(list(readable(inferior, end, 1)) for end in ends):
            return
    half = 1 << ((size - 1).bit_length() - 1)
    if size > PAGE:
        # Both halves consist of whole pages.
        half -= (start + half) % PAGE
    yield from readable(inferior, start, half)
    yield from readable(inferior, start + half, size - half)


def remote_object(name):
    """Returns an object of the remote protocol as text; empty if the server has none."""
    text = ""
    while len(text) < 16 << 20:
        reply = packet(f"qXfer:{name}:read::{len(text):x},800")
        if reply[:1] not in ("m", "l"):
            return ""
        text += reply[1:]
        if reply[0] == "l" or len(reply) == 1:
            return text
    return ""


def trace_frame_ranges():
    """Returns the memory collected in the selected trace frame."""
    collected = r'<memory\s+start="0x([0-9a-f]+)"\s+length="0x([0-9a-f]+)"'
    for match in re.finditer(collected, remote_object("traceframe-info")):
        start, length = int(match[1], 16), int(match[2], 16)
        yield start, start + length


class Dumps:
    """Reads memory into files of a directory."""

    def __init__(self, directory, inferior, total):
        self.directory, self.inferior, self.total = directory, inferior, total
        self.looked_at = self.saved = 0
        self.missing = []
        self.reported = time.monotonic()

    def read(self, ranges, name):
        """Returns sections of a device file for the readable parts of the ranges."""
        dumps = []
        for start, end in ranges:
            dumps += self.read_range(start, end, name)
        return "".join(
            f"\n[dump_{name}_{start:x}]\nfile={name}_{start:x}.bin\n"
            f"address={start:#x}\nlength={size:#x}\n"
            for start, size in dumps
        )

    def read_range(self, start, end, name):
        dumps, file = [], None
        try:
            at = start
            while at < end:
                size = min(CHUNK - at % CHUNK, end - at)
                for address, data in readable(self.inferior, at, size):
                    if not dumps or sum(dumps[-1]) != address:
                        if file:
                            file.close()
                        path = os.path.join(self.directory, f"{name}_{address:x}.bin")
                        file = open(path, "xb")
                        dumps.append((address, 0))
                    file.write(data)
                    dumps[-1] = (dumps[-1][0], dumps[-1][1] + len(data))
                    self.saved += len(data)
                at += size
                self.looked_at += size
                self.report()
            self.missing += without([(start, end)], [(at, at + size) for at, size in dumps])
        finally:
            if file:
                file.close()
        return dumps

    def left_out(self):
        """Describes unreadable memory for display; empty if there is none."""
        ranges = merged(self.missing)
        size = sum(end - start for start, end in ranges)
        named = [f"{start:#x}-{end - 1:#x}" for start, end in ranges[:3]]
        named += ["..."] if len(ranges) > 3 else []
        return f"left out: {size_text(size)} that cannot be read, at {', '.join(named)}" if size else ""

    def report(self):
        """Prints progress every two seconds."""
        if time.monotonic() > self.reported + 2:
            self.reported = time.monotonic()
            gdb.write(f"{size_text(self.looked_at)} of {size_text(self.total)} read\n")
            gdb.flush()
