"""Ctrl-C during a move also ends the script or loop that contains the move.

GDB ends a script at a Ctrl-C between two commands, but after a Ctrl-C that stops a move, it runs the
next command of the script. Only an error ends a script, and Python code can raise one only in a command
that GDB runs as part of the script. So a hook after each moving command runs `armsnap end-script`. At
the prompt GDB runs the hook when the move starts, and it does nothing.

Follows past.py.
"""

import gdb

MOVES = (
    "advance continue finish jump next nexti reverse-continue reverse-finish reverse-next"
    " reverse-nexti reverse-step reverse-stepi step stepi until"
).split()


class EndScript(gdb.Command):
    """End the current script if Ctrl-C stopped its last move.
Usage: armsnap end-script

Hooks run it after every command that moves."""

    stopped = False

    def __init__(self):
        super().__init__("armsnap end-script", gdb.COMMAND_SUPPORT)

    # No `dont_repeat`: that would keep an empty line from repeating the move.
    def invoke(self, argument, from_tty):
        if self.stopped and served_by_armsnap():
            EndScript.stopped = False
            raise gdb.GdbError("Quit")

    @classmethod
    def at_move(cls, _):
        cls.stopped = False

    @classmethod
    def at_stop(cls, event):
        cls.stopped = isinstance(event, gdb.SignalEvent) and event.stop_signal == "SIGINT"


def served_by_armsnap():
    """Returns whether the target is armsnap's: other programs may get SIGINT and continue."""
    thread = gdb.selected_thread()
    return thread is not None and bool(callers(thread, 0))


def run_after_moves():
    """Defines a hook after each moving command, except where the user has defined one."""
    for move in MOVES:
        hook = f"hookpost-{move}"
        if not succeeds(f"help {hook}"):
            gdb.execute(f"define {hook}\narmsnap end-script\nend")


EndScript()
gdb.events.cont.connect(EndScript.at_move)
gdb.events.stop.connect(EndScript.at_stop)
run_after_moves()
