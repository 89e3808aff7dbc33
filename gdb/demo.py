"""The walk of `armsnap demo`: `armsnap demo` in GDB shows its next step.

Follows the other files, in the GDB that `armsnap demo` starts.
"""

import gdb

END = ("delete", "armsnap goto end")
# What each step is about, what puts GDB where it starts (unless the step before has), its commands.
STEPS = (
    (
        """A shop adds up its orders, and the program crashes. `armsnap record` saved it:
its memory, and the trace of all that it executed. This is where it ended.""",
        END,
        ("backtrace 3", "print *order"),
    ),
    (
        """The item of this order is a null pointer. The back trace does not show who made
it: whatever did has returned long ago. But the trace has every call, and
after each of them its position in the history.""",
        END,
        ("armsnap calls",),
    ),
    (
        """Where did the null pointer come from?""",
        END,
        ("armsnap why order->item",),
    ),
    (
        """A store in the function `cancel`. Run backwards to it: a watchpoint stops there.
Registers, arguments and memory have the values that they had then.""",
        END,
        ("watch -l order->item", "reverse-continue", "info args", "list"),
    ),
    (
        """Customers count from 1, the table from 0. Line 23 subtracts 1, line 24 forgets
to: it clears the item of the next order. Step back over both, to the call, and
compare: the table was whole before `cancel`, and afterwards two orders are not.""",
        (*END, "watch -l order->item", "reverse-continue"),
        ("delete", "print orders", "reverse-finish", "print orders"),
    ),
)
LAST = """
That was the walk. This is an ordinary GDB session: reverse-step, reverse-next,
reverse-continue, breakpoints, `help armsnap`. `quit` removes the recording.
To record a program of your own: armsnap record -- PROGRAM
"""


def position():
    """Returns what identifies the position in history."""
    return str(gdb.parse_and_eval("$position"))


class Demo(gdb.Command):
    """Show the next step of the walk.
Usage: armsnap demo [STEP]"""

    # The step shown last, and the position where it ended.
    done, at = 0, ""

    def __init__(self):
        super().__init__("armsnap demo", gdb.COMMAND_SUPPORT)

    # No `dont_repeat`: an empty line shows the next step.
    def invoke(self, argument, from_tty):
        wanted = argument.strip() or str(Demo.done + 1)
        if wanted not in map(str, range(1, len(STEPS) + 1)):
            gdb.write(LAST)
            return
        goes_on = int(wanted) == Demo.done + 1 and Demo.at in ("", position())
        Demo.done = int(wanted)
        text, before, commands = STEPS[Demo.done - 1]
        for command in () if goes_on else before:
            gdb.execute(command)
        gdb.write(f"\nStep {Demo.done} of {len(STEPS)}\n{text}\n\n")
        for command in commands:
            gdb.write(f"(gdb) {command}\n")
            gdb.execute(command)
        Demo.at = position()
        if Demo.done == len(STEPS):
            gdb.write(LAST)
        elif Demo.done == 1:
            gdb.write("\nThe next step: armsnap demo; then Enter for each further one\n")


gdb.execute("set pagination off")
gdb.execute("set confirm off")
Demo()
