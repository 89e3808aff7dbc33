"""Registers as a snapshot has them.

Follows armsnap.py.
"""

import re
import struct

import gdb

# Types of values that are numbers.
TYPES = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_FLAGS, gdb.TYPE_CODE_ENUM)
TYPES += (gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_RANGE)
# Names that the format has too.
OWN = re.compile(r"[xrvd][0-9]{1,2}|sp|lr|pc|cpsr|fpsr|fpcr|fpscr")
# Floating-point numbers by their size in bytes: how `struct` calls them.
FLOATS = {4: "f", 8: "d"}


def integer(value):
    """The bits of a register as a number; None for a type that is no register's."""
    kind = value.type.strip_typedefs()
    bits = 8 * kind.sizeof
    if kind.code in TYPES and bits <= 64:
        return int(value) & ((1 << bits) - 1)
    if kind.code == gdb.TYPE_CODE_FLT:
        return float_bits(value, kind.sizeof)
    if kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        width = 8 * kind.target().sizeof
        parts = [integer(value[index]) for index in range(low, high + 1)]
        if None in parts:
            return None
        return sum(part << (width * index) for index, part in enumerate(parts))
    if kind.code == gdb.TYPE_CODE_UNION:
        # Views of the same bits: the first that has them all as numbers.
        for field in kind.fields():
            if field.type.sizeof == kind.sizeof and not is_float(field.type):
                found = integer(value[field])
                if found is not None:
                    return found
    return None


def float_bits(value, size):
    """The bits of a floating-point number; None for a size that is not IEEE 754's."""
    if size not in FLOATS:
        return None
    # From GDB 11 on this shows the bits; before, the number without its fraction.
    if int(gdb.VERSION.split(".")[0]) >= 11:
        return int(value.format_string(format="x"), 16)
    return int.from_bytes(struct.pack("<" + FLOATS[size], float(value)), "little")


def is_float(kind):
    """Whether a part of a vector is one of floating-point numbers."""
    kind = kind.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_ARRAY:
        kind = kind.target().strip_typedefs()
    return kind.code == gdb.TYPE_CODE_FLT


def value_of(frame, name):
    """The value of a register. A target's names are looked up, and never parsed."""
    if frame is not None:
        return frame.read_register(name)
    # Of a trace frame GDB has no frame; the core's own registers can be asked for.
    if OWN.fullmatch(name) or name == "xpsr":
        return gdb.parse_and_eval("$" + name)
    raise ValueError(name)


def registers(architecture, frame):
    """(name in the snapshot, bits, value) of each register that is known."""
    aarch64 = architecture.name().startswith("aarch64")
    # GDB's names for parts of registers and for a floating-point unit of long ago; and the
    # instruction set that armsnap's server tells.
    parts = re.compile(r"isa|" + (r"[wqdshb][0-9]+" if aarch64 else r"[sq][0-9]+|f[0-7]|fps"))
    known = {}
    for register in architecture.registers():
        name = register.name
        if parts.fullmatch(name):
            continue
        try:
            value = value_of(frame, name)
            bits = integer(value)
        except (gdb.error, ValueError):
            continue
        if bits is None:
            continue
        # The format's names for the core's own; others as the target calls them.
        written = safe_name(name)
        if OWN.fullmatch(name):
            written = name.upper()
        elif name == "xpsr":
            written = "xPSR"
        known.setdefault(written.upper(), (written, 8 * value.type.sizeof, bits))
    return list(known.values())


def core_type(thread, architecture, known):
    """The type of a core: a product's name where the target tells it."""
    shown = ask(f"info threads {thread.num}")
    product = re.search(r"\b(?:Cortex-[AMRX]|Neoverse-[A-Z])\d+[A-Z]*", shown, re.IGNORECASE)
    if product:
        return product[0]
    if architecture.startswith("aarch64"):
        return "ARMv8-A"
    return "ARMv7-M" if any(name == "xPSR" for name, _, _ in known) else "ARMv7-A"
