"""Quiet start of `armsnap gdb`, and `tdump` without tracepoints.

Follows memory.py.
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
# Maximum number of memory ranges listed by `tdump`.
RANGES = 16
# Registers of a core other than the program counter.
OTHERS = re.compile(r"[rx]\d+|sp|lr|[cx]psr")
OWN_TDUMP = "--own-tdump "


class Quietly(gdb.Command):
    """Run a command that connects, without GDB's messages about tracepoints and programs.
Usage: armsnap quietly [--own-tdump] COMMAND

With --own-tdump, `tdump` is replaced by armsnap's version, which needs no tracepoints."""

    def __init__(self):
        super().__init__("armsnap quietly", gdb.COMMAND_SUPPORT, gdb.COMPLETE_COMMAND)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        if argument.startswith(OWN_TDUMP):
            argument = argument[len(OWN_TDUMP) :]
            TraceFrame()
        # As a whole: GDB prints partial lines while it connects.
        try:
            text = connect(argument, from_tty, True)
        except gdb.error as error:
            raise gdb.GdbError(str(error))
        for line in text.splitlines(True):
            if not REMARKS.fullmatch(line):
                gdb.write(line)


class TraceFrame(gdb.Command):
    """Print everything collected in the current trace frame.
Usage: tdump

armsnap's version: GDB's requires the tracepoint in its list of breakpoints."""

    def __init__(self):
        super().__init__("tdump", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        if argument.strip():
            raise gdb.GdbError("tdump takes no argument")
        number, tracepoint = (number_of(name) for name in ("$trace_frame", "$tracepoint"))
        if number is None or number < 0:
            raise gdb.GdbError("No current trace frame.")
        gdb.write(f"Data collected at tracepoint {tracepoint}, trace frame {number}:\n")
        show_registers()
        for name in variables():
            gdb.write(f"{name} = {gdb.parse_and_eval(name)}\n")
        ranges = list(trace_frame_ranges())
        for start, end in ranges[:RANGES]:
            gdb.write(f"memory {start:#x}-{end - 1:#x}\n")
        if len(ranges) > RANGES:
            gdb.write(f"and {len(ranges) - RANGES} more ranges of memory\n")


def number_of(name):
    """Returns a convenience variable as a number; None if it is void."""
    try:
        return int(gdb.parse_and_eval(name))
    except (gdb.error, ValueError):
        return None


def is_known(frame, name):
    """Returns whether a register was collected."""
    try:
        value = str(frame.read_register(name))
    except (gdb.error, ValueError):
        return False
    # An unwinder that knows the program counter alone leaves the others not saved.
    return "<unavailable>" not in value and "<not saved>" not in value


def show_registers():
    """Prints the collected registers; often only the program counter."""
    try:
        frame = gdb.selected_frame()
        registers = list(frame.architecture().registers())
    except gdb.error:
        # To examine a frame of 32-bit Arm, GDB requires CPSR, which trace frames often lack.
        registers = []
    for register in registers:
        if OTHERS.fullmatch(register.name) and is_known(frame, register.name):
            gdb.execute("info registers")
            return
    pc = number_of("$pc")
    if pc is not None:
        gdb.write(f"$pc = {pc:#x}\n")


def variables():
    """Returns the names of trace state variables."""
    table = gdb.execute("info tvariables", to_string=True)
    return re.findall(r"^(\$[A-Za-z_]\w*)\s", table, re.MULTILINE | re.ASCII)


Quietly()
