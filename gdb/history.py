"""History commands: wrappers of `monitor` commands that update GDB after moves.

Follows armsnap.py.
"""

import json
import os
import re

import gdb


def monitor(words):
    """Returns the lines of `monitor WORDS` for the selected thread: dictionaries with the `text`, and with the fields
    by which the server names what it says."""
    thread = gdb.selected_thread()
    number = thread.ptid[1] if thread else 0
    try:
        printed = gdb.execute(f"monitor json {number} {words}", to_string=True)
    except gdb.error as error:
        raise gdb.GdbError(printable(str(error)))
    return [line_of(text) for text in printed.splitlines()]


def line_of(text):
    """Reads a line of the server's output."""
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    # If the command was interrupted, or a file of the snapshot was truncated, the server says so in text.
    return line if isinstance(line, dict) else {"text": text}


def show(lines):
    """Prints lines, and makes GDB read again what they say has changed."""
    stale = next((line["stale"] for line in lines if "stale" in line), None)
    # The line itself is a hint for users of plain `monitor`.
    for line in lines:
        if "stale" not in line:
            gdb.write(printable(line["text"]) + "\n")
    if stale == "position":
        show_move()
    elif stale:
        if stale == "values":
            forget_registers()
        forget_memory()


def position_in(lines):
    """Returns the position that the server names; None if there is none."""
    return next((line["position"] for line in lines if "position" in line), None)


def flush(what):
    """Runs `maintenance flush WHAT` silently; returns whether this GDB supports it."""
    # GDB 10 accepts any WHAT, and flushes symbols.
    return GDB_VERSION >= 11 and succeeds(f"maintenance flush {what}")


def forget_memory():
    """Makes GDB read memory again."""
    flush("dcache")
    for cache in ("stack-cache", "code-cache"):
        # Before GDB 13; changing the setting clears the cache.
        if gdb.parameter(cache):
            gdb.execute(f"set {cache} off")
            gdb.execute(f"set {cache} on")


def forget_registers():
    """Makes GDB read registers again. Selects the newest frame: see Callers."""
    try:
        gdb.newest_frame().select()
    except gdb.error:
        pass
    if not flush("register-cache"):
        # Before GDB 11.
        gdb.execute("flushregs", to_string=True)


def reread_watchpoints():
    """Makes GDB read the values of watched expressions, with which it compares at the next stop."""
    kinds = (gdb.BP_HARDWARE_WATCHPOINT, gdb.BP_ACCESS_WATCHPOINT, gdb.BP_WATCHPOINT)
    for breakpoint in gdb.breakpoints() or ():
        if breakpoint.is_valid() and breakpoint.type in kinds and breakpoint.enabled:
            breakpoint.enabled = False
            breakpoint.enabled = True


def show_move():
    """Makes GDB read registers and memory again, and shows the location as at a stop."""
    forget_registers()
    forget_memory()
    reread_watchpoints()
    find_frame()
    # `frame` shows the same; this also updates the TUI and front ends.
    for command in ("up 0", "display"):
        try:
            gdb.execute(command)
        except gdb.error as error:
            gdb.write(printable(f"{error}\n"))


class MonitorCommand(gdb.Command):
    """A command that prints the output of a `monitor` command."""

    words = ()

    def __init__(self, name):
        self.name = name
        super().__init__(f"armsnap {name}", gdb.COMMAND_SUPPORT)

    def complete(self, text, word):
        # GDB first calls this without a word, to determine the word boundaries.
        return [known for known in self.words if known.startswith(word or "")]

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        show(monitor(f"{self.name} {argument}"))


class Info(MonitorCommand):
    """Show the snapshot: its cores, their memory, and notes on them.
Usage: armsnap info"""


class Where(MonitorCommand):
    """Show the position in history: its time, and notes on its reliability.
Usage: armsnap where"""


class History(MonitorCommand):
    """List the positions in history around the current one.
Usage: armsnap history [N]

N positions before the current one and after it (default 10).
`armsnap goto POSITION` goes to one of them."""


class Calls(MonitorCommand):
    """List the calls that led to this position, nested.
Usage: armsnap calls [N]

The last N calls (default 40); * marks calls that are still open."""


class Exceptions(MonitorCommand):
    """List exceptions before this position and after it.
Usage: armsnap exceptions [N]"""


class Memory(MonitorCommand):
    """Show or set how memory is read at past positions.
Usage: armsnap memory [final|unavailable]

final        as it was at the end
unavailable  memory that may have been written since cannot be read"""

    words = ("final", "unavailable")


class Recover(MonitorCommand):
    """Show or set which values are shown at past positions.
Usage: armsnap recover [proved|inferred|off]

proved    those that follow from the trace, the code and the final state
inferred  also those that rest on the calling convention, or on where stores go
off       none but the pc"""

    words = ("inferred", "off", "proved")


class Registers(MonitorCommand):
    """List the registers of the core; at past positions those that can be known, with their status.
Usage: armsnap registers [PATTERN]

PATTERN is a part of the name, or has * and ?."""


class Why(MonitorCommand):
    """Show where a value came from: the instructions that made it, from the nearest on.
Usage: armsnap why EXPRESSION

EXPRESSION is a register ($x0), or something in memory (list->next).
`armsnap goto POSITION` goes to one of the instructions."""

    def complete(self, text, word):
        return gdb.COMPLETE_EXPRESSION

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        show_way(f"why {self.place(argument.strip())}")

    def place(self, expression):
        """Returns the name of a register, or the address of an expression's value."""
        register = re.fullmatch(r"\$([a-z]+[0-9]*)", expression)
        if register:
            return register[1]
        try:
            value = gdb.parse_and_eval(expression)
            place = value.address
        except gdb.error as error:
            raise gdb.GdbError(printable(str(error)))
        if place is None:
            raise gdb.GdbError("expected a register ($x0), or something in memory")
        return hex(int(place) % (1 << 64))


class Ask(MonitorCommand):
    """Ask about the whole history of the selected core.
Usage: armsnap ask QUESTION [--from POSITION] [--to POSITION] [--most N]

calls FUNCTION                     each call: arguments, caller, end, result
accesses ADDRESS[+LENGTH]          each load and store; also of an EXPRESSION
variable EXPRESSION                each change of its value
where POSITION                     the instruction
values POSITION                    all registers
memory POSITION ADDRESS LENGTH     memory
why POSITION EXPRESSION|0xADDRESS  where a value came from, the oldest first
uses POSITION EXPRESSION|0xADDRESS  the instructions that used a value

POSITION is as of `armsnap where`, or `here`. There are 200 answers at most unless
--most says otherwise. Values that are not proved are marked."""

    words = ("accesses", "calls", "memory", "uses", "values", "variable", "where", "why")


class Uses(MonitorCommand):
    """Show what became of a register's value: the instructions that used it.
Usage: armsnap uses $REGISTER"""

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        register = re.fullmatch(r"\$?([a-z]+[0-9]*)", argument.strip())
        if not register:
            raise gdb.GdbError("expected a register ($x0)")
        show_way(f"uses {register[1]}")


def show_way(words):
    """Prints a list of instructions, with their source lines."""
    for line in monitor(words):
        text = line["text"]
        place = gdb.find_pc_line(int(line["pc"], 16)) if "pc" in line else None
        if place and place.symtab:
            text += f"  {os.path.basename(place.symtab.filename)}:{place.line}"
        gdb.write(printable(text) + "\n")


class Goto(MonitorCommand):
    """Go to a position in history.
Usage: armsnap goto POSITION|begin|end|time T|cycle N

`armsnap history` and `armsnap find` show positions."""

    words = ("begin", "cycle", "end", "time")

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        if not argument.strip():
            raise gdb.GdbError("expected POSITION, begin, end, time T or cycle N")
        show(monitor(f"goto {argument}"))


class Find(MonitorCommand):
    """Go to the next visit of a function or an address, or to the one before.
Usage: armsnap find LOCATION [back]

LOCATION is as for `break`: a function, FILE:LINE, *ADDRESS; or an expression for an
address. For a function it is the first instruction."""

    def complete(self, text, word):
        return gdb.COMPLETE_SYMBOL

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        what, _, back = argument.strip().rpartition(" ")
        if back != "back":
            what, back = argument.strip(), ""
        if not what:
            raise gdb.GdbError("expected a function or an address, optionally followed by back")
        try:
            wanted = ",".join(map(hex, sorted(code_addresses(what))))
            # For an IFUNC, GDB returns the address of the resolver. The server replaces it by the
            # chosen function, unless the user gave an address.
            if what.startswith("*"):
                wanted = "*" + wanted
            found = monitor(f"find {wanted} {back}")
        except gdb.GdbError:
            # The server knows names that GDB cannot parse, such as those of Rust functions in C.
            found = monitor(f"find {what} {back}")
            if any("unknown" in line for line in found):
                raise
        position = position_in(found)
        show(monitor(f"goto {position}") if position else found)


def code_addresses(what):
    """Returns the addresses of a location as for `break`, or of an expression."""
    where = None
    if not what.startswith("*"):
        try:
            rest, places = gdb.decode_line(what)
            # Followed by more text, as in `f + 4`: an expression.
            found = {place.pc for place in places or () if place.pc}
            if found and not rest:
                return found
        except gdb.error as error:
            where = error
    try:
        value = gdb.parse_and_eval(what.lstrip("*"))
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_FUNC:
            value = value.address
        return {int(value) % (1 << 64)}
    except gdb.error as error:
        raise gdb.GdbError(printable(str(where or error)))


COMMANDS = Info, Where, History, Calls, Exceptions, Memory, Recover, Registers, Why, Uses, Ask, Goto, Find
for command in COMMANDS:
    command(command.__name__.lower())
