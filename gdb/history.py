"""The decoded trace as a history: armsnap's commands for what `monitor` does, and GDB told of moves.

Follows armsnap.py.
"""

import re

import gdb


def monitor(words):
    """What the server answers to `monitor WORDS` for the selected thread."""
    try:
        # The server's core is the one that GDB asked about last.
        pc = int(gdb.parse_and_eval("(unsigned long long)$pc"))
        gdb.selected_inferior().read_memory(pc, 1)
    except gdb.error:
        pass
    try:
        return gdb.execute(f"monitor {words}", to_string=True)
    except gdb.error as error:
        raise gdb.GdbError(printable(str(error)))


def flush(what):
    """Runs `maintenance flush WHAT` in silence, if this GDB has it."""
    # GDB 10 takes any WHAT, and flushes symbols.
    if what in gdb.execute("help maintenance flush", to_string=True):
        gdb.execute(f"maintenance flush {what}", to_string=True)
        return True
    return False


def forget_memory():
    """Makes GDB read memory again."""
    flush("dcache")
    for cache in ("stack-cache", "code-cache"):
        # Before GDB 13; to switch it is to empty it.
        if gdb.parameter(cache):
            gdb.execute(f"set {cache} off")
            gdb.execute(f"set {cache} on")


def show_move():
    """Makes GDB ask for registers and memory again, and shows where it is, as at a stop."""
    if not flush("register-cache"):
        # Before GDB 11.
        gdb.execute("flushregs", to_string=True)
    forget_memory()
    Returned.mind()
    # `frame` shows the same; this also tells the TUI and front ends of another place.
    for command in ("up 0", "display"):
        try:
            gdb.execute(command)
        except gdb.error as error:
            gdb.write(printable(f"{error}\n"))


def go(words):
    """`monitor goto`: moves if the server moves."""
    text, moved = without_advice(monitor(f"goto {words}"))
    gdb.write(printable(text))
    if moved:
        show_move()


def without_advice(text):
    """An answer without what a user of `monitor` alone must do, and whether that was in it."""
    lines = text.splitlines(True)
    kept = [line for line in lines if "maintenance flush" not in line]
    return "".join(kept), len(kept) < len(lines)


class Told(gdb.Command):
    """A command that prints what the server tells."""

    words = ()

    def __init__(self, name):
        self.name = name
        super().__init__(f"armsnap {name}", gdb.COMMAND_SUPPORT)

    def complete(self, text, word):
        # First GDB asks without a word, to learn where words end.
        return [known for known in self.words if known.startswith(word or "")]

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        gdb.write(printable(monitor(f"{self.name} {argument}")))


class Info(Told):
    """Tell of the snapshot: its cores, their memory, what is to be known of them.
Usage: armsnap info"""


class Where(Told):
    """Tell the position in history: its time, and its reason to doubt.
Usage: armsnap where"""


class History(Told):
    """List positions in history around here.
Usage: armsnap history [N]

N positions before this one and after it, 10 if not said. `armsnap goto POSITION`
goes to one of them."""


class Calls(Told):
    """List the calls that led to this position, nested.
Usage: armsnap calls [N]

The last N calls, 40 if not said; * marks those that are still open."""


class Exceptions(Told):
    """List exceptions before this position and after it.
Usage: armsnap exceptions [N]"""


class Memory(Told):
    """Say how memory is read at past positions.
Usage: armsnap memory [final|unavailable]

final        as it was at the end
unavailable  what may have been written since cannot be read"""

    words = ("final", "unavailable")

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        text, changed = without_advice(monitor(f"memory {argument}"))
        gdb.write(printable(text))
        if changed:
            forget_memory()


class Goto(Told):
    """Go to a position in history.
Usage: armsnap goto POSITION|begin|end|time T|cycle N

`armsnap history` and `armsnap find` tell positions."""

    words = ("begin", "cycle", "end", "time")

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        if not argument.strip():
            raise gdb.GdbError("expected POSITION, begin, end, time T or cycle N")
        go(argument)


class Find(Told):
    """Go to the next visit of a function or an address, or to the one before.
Usage: armsnap find LOCATION [back]

LOCATION is what `break` takes: a function, FILE:LINE, *ADDRESS; or the expression of an
address. Of a function it is the first instruction."""

    def complete(self, text, word):
        return gdb.COMPLETE_SYMBOL

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        what, _, back = argument.strip().rpartition(" ")
        if back != "back":
            what, back = argument.strip(), ""
        if not what:
            raise gdb.GdbError("expected a function or an address, and maybe back")
        try:
            wanted = ",".join(map(hex, sorted(code_addresses(what))))
            found = monitor(f"find {wanted} {back}")
        except gdb.GdbError:
            # The server knows a name that GDB does not read, as that of a Rust function in C.
            found = monitor(f"find {what} {back}")
            if "is neither an address nor a function" in found:
                raise
        goes = re.search(r"; monitor goto ([0-9/+-]+) goes there", found)
        if not goes:
            gdb.write(printable(found))
            return
        go(goes[1])


def code_addresses(what):
    """The addresses that a location means, as `break` has it, or else an expression."""
    where = None
    if not what.startswith("*"):
        try:
            rest, places = gdb.decode_line(what)
            # Something behind it, as in `f + 4`: an expression.
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


for command in (Info, Where, History, Calls, Exceptions, Memory, Goto, Find):
    command(command.__name__.lower())
