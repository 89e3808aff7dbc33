"""Registers as a snapshot has them.

Follows armsnap.py.
"""

import re

import gdb

# Types of values that are numbers.
TYPES = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_FLAGS, gdb.TYPE_CODE_ENUM)
TYPES += (gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_RANGE)
# Names that the format has too.
OWN = re.compile(r"[xrvd]\d+|sp|lr|pc|cpsr|fpsr|fpcr|fpscr")


def integer(value, name):
    """The bits of a register as a number; None for a type that is no register's."""
    kind = value.type.strip_typedefs()
    bits = 8 * kind.sizeof
    if kind.code in TYPES and bits <= 64:
        return int(value) & ((1 << bits) - 1)
    if kind.code == gdb.TYPE_CODE_FLT:
        raw = re.search(r"raw (0x[0-9a-f]+)", gdb.execute(f"info registers {name}", False, True))
        return int(raw[1], 16) if raw else None
    if kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        width = 8 * kind.target().sizeof
        parts = [integer(value[index], name) for index in range(low, high + 1)]
        if None in parts:
            return None
        return sum(part << (width * index) for index, part in enumerate(parts))
    if kind.code == gdb.TYPE_CODE_UNION:
        # Views of the same bits: the first that has them all as numbers.
        for field in kind.fields():
            if field.type.sizeof == kind.sizeof and not is_float(field.type):
                found = integer(value[field], name)
                if found is not None:
                    return found
    return None


def is_float(kind):
    """Whether a part of a vector is one of floating-point numbers."""
    kind = kind.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_ARRAY:
        kind = kind.target().strip_typedefs()
    return kind.code == gdb.TYPE_CODE_FLT


def registers(architecture):
    """(name in the snapshot, bits, value) of each register that is known."""
    aarch64 = architecture.name().startswith("aarch64")
    # GDB's names for parts of registers and for a floating-point unit of long ago; and the
    # instruction set that armsnap's server tells.
    parts = re.compile(r"isa|" + (r"[wqdshb]\d+" if aarch64 else r"[sq]\d+|f[0-7]|fps"))
    known = {}
    for register in architecture.registers():
        name = register.name
        if parts.fullmatch(name):
            continue
        try:
            value = gdb.parse_and_eval(f"${name}")
            bits = integer(value, name)
        except (gdb.error, ValueError):
            continue
        if bits is None:
            continue
        # The format's names for the core's own; others as the target calls them.
        written = "xPSR" if name == "xpsr" else name.upper() if OWN.fullmatch(name) else name
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
