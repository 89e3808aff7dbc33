"""Reads registers in the form of the snapshot format.

Follows armsnap.py.
"""

import re
import struct

import gdb

# Types of numeric values.
TYPES = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_FLAGS, gdb.TYPE_CODE_ENUM)
TYPES += (gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_RANGE)
# Names that the snapshot format defines too.
OWN = re.compile(r"[xrvd][0-9]{1,2}|sp|lr|pc|cpsr|fpsr|fpcr|fpscr")
# Formats of `struct` for floating-point numbers, by size in bytes.
FLOATS = {4: "f", 8: "d"}


def integer(value):
    """Returns the bits of a register as a number; None for an unsupported type."""
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
        # Views of the same bits: the first that has all of them as numbers.
        for field in kind.fields():
            if field.type.sizeof == kind.sizeof and not is_float(field.type):
                found = integer(value[field])
                if found is not None:
                    return found
    return None


def float_bits(value, size):
    """Returns the bits of a floating-point number; None if it is not an IEEE 754 size."""
    if size not in FLOATS:
        return None
    # From GDB 11 on this shows the bits; before, the number without its fraction.
    if GDB_VERSION >= 11:
        return int(value.format_string(format="x"), 16)
    return int.from_bytes(struct.pack("<" + FLOATS[size], float(value)), "little")


def is_float(kind):
    """Returns whether a field of a vector has floating-point elements."""
    kind = kind.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_ARRAY:
        kind = kind.target().strip_typedefs()
    return kind.code == gdb.TYPE_CODE_FLT


def value_of(frame, name):
    """Returns the value of a register. Names from the target are looked up, never parsed."""
    if frame is not None:
        return frame.read_register(name)
    # GDB has no stack frame in a trace frame; registers can still be read.
    if OWN.fullmatch(name) or name == "xpsr":
        return gdb.parse_and_eval("$" + name)
    raise ValueError(name)


def registers(architecture, frame):
    """Yields (name in the snapshot, bits, value) for each known register."""
    aarch64 = architecture.name().startswith("aarch64")
    # GDB's names for parts of registers and for an obsolete floating-point unit; and
    # armsnap's own registers of a history.
    parts = re.compile(r"isa|position|" + (r"[wqdshb][0-9]+" if aarch64 else r"[sq][0-9]+|f[0-7]|fps"))
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
        # Names of the format for core registers; other names as in the target.
        written = safe_name(name)
        if OWN.fullmatch(name):
            written = name.upper()
        elif name == "xpsr":
            written = "xPSR"
        elif aarch64 and name in ("tpidr", "tpidr2"):
            written = f"{name.upper()}_EL0"
        known.setdefault(written.upper(), (written, 8 * value.type.sizeof, bits))
    return list(known.values())


def core_type(thread, architecture, known):
    """Returns the type of a core: the product name, if the target reports it."""
    described = f"{thread_details(thread)} {thread.name or ''}"
    product = re.search(r"\b(?:Cortex-[AMRX]|Neoverse-[A-Z])\d+[A-Z]*", described, re.IGNORECASE)
    if product:
        return product[0]
    if architecture.startswith("aarch64"):
        return "ARMv8-A"
    return "ARMv7-M" if any(name == "xPSR" for name, _, _ in known) else "ARMv7-A"
