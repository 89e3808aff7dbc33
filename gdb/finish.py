"""Makes `finish` print a value only where it is known.

GDB reads a result from registers, reads unknown ones as 0, and prints the value before any Python event. So a
breakpoint at the caller's next instruction checks the registers first: it never stops, and turns the value off
where a register that holds a part of the result is unknown.

Follows past.py.
"""

import gdb

# Types whose values are in general-purpose registers.
NUMBERS = {
    gdb.TYPE_CODE_INT,
    gdb.TYPE_CODE_PTR,
    gdb.TYPE_CODE_ENUM,
    gdb.TYPE_CODE_FLAGS,
    gdb.TYPE_CODE_BOOL,
    gdb.TYPE_CODE_CHAR,
    gdb.TYPE_CODE_RANGE,
    gdb.TYPE_CODE_REF,
    gdb.TYPE_CODE_RVALUE_REF,
    gdb.TYPE_CODE_MEMBERPTR,
    gdb.TYPE_CODE_METHODPTR,
}
# The most members of a structure that is returned in vector registers, one in each (AAPCS32, AAPCS64:
# homogeneous aggregates).
MEMBERS = 4
# The message where a value is not known.
UNKNOWN = "the value that was returned is not known here: GDB has 0 in its value history instead\n"


def elements(kind):
    """Returns the sizes of the floating-point numbers or short vectors that a type consists of; None if
    it has other parts."""
    kind = kind.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_FLT:
        return [kind.sizeof]
    if kind.code == gdb.TYPE_CODE_COMPLEX:
        # Python does not name the type of the parts, and integers are rare. All registers are checked.
        return None
    if kind.code == gdb.TYPE_CODE_ARRAY:
        if is_vector(kind):
            return [kind.sizeof]
        low, high = kind.range()
        inner = elements(kind.target()) if high - low < MEMBERS else None
        return inner and inner * (high - low + 1)
    if kind.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return None
    found = []
    for field in kind.fields():
        if not hasattr(field, "bitpos"):
            # A static member.
            continue
        inner = elements(field.type)
        if not inner:
            return None
        longest = kind.code == gdb.TYPE_CODE_UNION and len(inner) <= len(found)
        found = found if longest else inner if kind.code == gdb.TYPE_CODE_UNION else found + inner
    return found


def is_vector(kind):
    """Returns whether an array is a vector, in a register of its own."""
    # Only the name of the type tells.
    return "__attribute__ ((vector_size(" in str(kind)


def vectors(frame):
    """Returns the names of the vector registers of results, or an empty list where there are none."""
    prefix = "d" if is_arm(frame.architecture()) else "v"
    names = {register.name for register in frame.architecture().registers()}
    return [name for name in (f"{prefix}{number}" for number in range(MEMBERS)) if name in names]


def holders(kind, frame):
    """Returns the names of all registers that GDB reads for a result of a type."""
    arm = is_arm(frame.architecture())
    word, prefix = (4, "r") if arm else (8, "x")
    kind = kind.strip_typedefs()
    numbers = [f"{prefix}{number}" for number in range(max(1, -(-kind.sizeof // word)))]
    if kind.code in NUMBERS:
        return numbers
    sizes = elements(kind)
    if sizes and len(sizes) <= MEMBERS and len(set(sizes)) == 1:
        if arm and uses_soft_floats():
            return numbers
        # D registers of A32 hold two numbers of 32 bits, and two of them a vector.
        count = -(-kind.sizeof // 8) if arm else len(sizes)
        return vectors(frame)[:count] or numbers
    if kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        # Longer ones are in memory, where GDB notices that they are not known.
        return numbers if kind.sizeof <= 2 * word else []
    # Whatever it is, it is in some of these.
    return numbers[:2] + vectors(frame)


def holds(frame, name):
    """Returns whether all of a register is known in a frame."""
    try:
        value = frame.read_register(name)
        # Of a vector, GDB shows views: each is unavailable as a whole or not.
        return integer(value) is not None
    except (gdb.error, ValueError):
        return False


class AtReturn(gdb.Breakpoint):
    """Checks whether a result is known where a function returns, before GDB reads it."""

    placed = []
    # Whether the setting that shows values was turned off for this stop.
    hides = False

    def __init__(self, address, kind):
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        self.address, self.kind = address, kind
        self.placed.append(self)

    def stop(self):
        # A recursive function gets here several times; the last time counts.
        frame = found_frame()
        known = all(holds(frame, name) for name in holders(self.kind, frame))
        if known == AtReturn.hides:
            gdb.execute("set print finish " + ("on" if known else "off"))
        AtReturn.hides = not known
        return False

    @classmethod
    def remove(cls):
        while cls.placed:
            breakpoint = cls.placed.pop()
            if breakpoint.is_valid():
                breakpoint.delete()
        if cls.hides:
            cls.hides = False
            gdb.execute("set print finish on")

    @classmethod
    def at_stop(cls, event):
        """Says that a value is not known: GDB has printed `<not displayed>`."""
        if cls.hides and any(each.address == found_frame().pc() for each in cls.placed):
            gdb.write(UNKNOWN)
        cls.remove()


class Finishing(gdb.Command):
    """Let `finish` print a value only where it is known.
Usage: armsnap finishing

armsnap runs it before finish."""

    def __init__(self):
        super().__init__("armsnap finishing", gdb.COMMAND_SUPPORT)
        run_before(["finish"], "armsnap finishing")
        if "finish" not in before:
            # The user's own hook runs instead: no value is better than a wrong one.
            gdb.execute("set print finish off")

    # No `dont_repeat`: that would keep an empty line from repeating the move.
    def invoke(self, argument, from_tty):
        AtReturn.remove()
        # `reverse-finish` is a `finish` that goes back: to the call, where nothing was returned yet.
        if moves_back() or not gdb.parameter("print finish"):
            return
        try:
            frame = gdb.selected_frame()
            kind = frame.function() and frame.function().type.target().strip_typedefs()
            caller = frame.older()
            while caller and caller.type() == gdb.TAILCALL_FRAME:
                caller = caller.older()
        except (gdb.error, RuntimeError):
            return
        # GDB prints no value of an inlined function.
        if not kind or kind.code == gdb.TYPE_CODE_VOID or frame.type() == gdb.INLINE_FRAME:
            return
        if caller and caller.pc() != NO_CALLER:
            AtReturn(caller.pc(), kind)


Finishing()
gdb.events.stop.connect(AtReturn.at_stop)
