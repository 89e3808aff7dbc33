"""Quiet start of `armsnap gdb`, and `tdump` without tracepoints.

Follows memory.py.
"""

import re

import gdb

# Maximum number of memory ranges listed by `tdump`.
RANGES = 16
# Registers of a core other than the program counter.
CORE_REGISTERS = re.compile(r"[rx]\d+|sp|lr|[cx]psr")
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
        gdb.write(without_remarks(text))


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


def show_registers():
    """Prints the collected registers; often only the program counter."""
    try:
        frame = gdb.selected_frame()
        registers = list(frame.architecture().registers())
    except gdb.error:
        # To examine a frame of 32-bit Arm, GDB requires CPSR, which trace frames often lack.
        registers = []
    for register in registers:
        if CORE_REGISTERS.fullmatch(register.name) and knows(frame, register.name):
            gdb.execute("info registers")
            return
    pc = number_of("$pc")
    if pc is not None:
        gdb.write(f"$pc = {pc:#x}\n")


def variables():
    """Returns the names of trace state variables, as GDB writes them in expressions."""
    names, reply = [], packet("qTfV")
    # NUMBER:VALUE:BUILTIN:NAME, with the name in hexadecimal digits; `l` ends the list.
    while ":" in reply:
        name = bytes.fromhex(reply.rpartition(":")[2]).decode("ascii", "replace")
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            names.append(f"${name}")
        reply = packet("qTsV")
    return names


Quietly()
