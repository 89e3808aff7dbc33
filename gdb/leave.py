"""Moves back out of a function whose caller has no symbol: they stop at the call.

After a step out of a function into code without symbols, GDB continues to where that code returns to.
Backward, this is not executed again, and the move would end at the start of history. This is common: a
function that qsort of a stripped libc calls. A breakpoint at the call ends such a move there.

Follows interrupt.py.
"""

import gdb


class AtCall(gdb.Breakpoint):
    """Stops where a frame calls the next one."""

    # Bytes of the instruction that calls: T32 has short ones. An address within one is never reached.
    LENGTHS = (4, 2)
    placed = []

    def __init__(self, caller, length):
        super().__init__(f"*{caller.pc() - length:#x}", internal=True)
        # GDB would print its number, which nobody has seen.
        self.silent = True
        self.caller = caller
        self.placed.append(self)

    def stop(self):
        # A recursive function gets here in other frames too.
        return gdb.newest_frame() == self.caller

    @classmethod
    def remove(cls):
        while cls.placed:
            cls.placed.pop().delete()

    @classmethod
    def at_stop(cls, event):
        """Removes all, and prints the place as GDB does after a step."""
        ended = getattr(event, "breakpoints", [])
        if ended and all(breakpoint in cls.placed for breakpoint in ended):
            print(location(), end="")
        cls.remove()


class Leaving(gdb.Command):
    """Let a move back out of the selected function stop at its call, if the caller has no symbol.
Usage: armsnap leaving [off]

armsnap runs it before reverse-step and reverse-finish, and with `off` before other moves: one that
failed to start leaves its breakpoints."""

    # Without `step` and `finish`: GDB runs them within reverse-step and reverse-finish.
    OTHERS = (
        "advance continue next nexti reverse-continue reverse-next reverse-nexti reverse-stepi "
        "stepi until"
    ).split()

    def __init__(self):
        super().__init__("armsnap leaving", gdb.COMMAND_SUPPORT)
        run_before(("reverse-step", "reverse-finish"), "armsnap leaving")
        run_before(self.OTHERS, "armsnap leaving off")

    # No `dont_repeat`: that would keep an empty line from repeating the move.
    def invoke(self, argument, from_tty):
        AtCall.remove()
        if argument == "off" or not served_by_armsnap():
            return
        frame = gdb.selected_frame()
        while frame and frame.type() == gdb.INLINE_FRAME:
            frame = frame.older()
        caller = frame and frame.older()
        if caller and caller.name() is None:
            for length in AtCall.LENGTHS:
                AtCall(caller, length)


Leaving()
gdb.events.stop.connect(AtCall.at_stop)
