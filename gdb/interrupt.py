"""Ctrl-C ends the script or loop that a move is part of, and not the move alone.

GDB ends a script for Ctrl-C between two commands. One that stops a move is spent: the next command
of the script follows. Only an error ends scripts, and of Python's code only a command that GDB runs
as part of the script can raise one; so there is one behind each command that moves. At the prompt
GDB runs it when the move begins, and it does nothing.

Follows past.py.
"""

import gdb

MOVES = (
    "advance continue finish jump next nexti reverse-continue reverse-finish reverse-next"
    " reverse-nexti reverse-step reverse-stepi step stepi until"
).split()


class EndScript(gdb.Command):
    """End the script that goes on behind a move that Ctrl-C has stopped.
Usage: armsnap end-script

armsnap runs it behind every command that moves."""

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
    """Whether it is armsnap's: other targets' programs may get SIGINT and go on."""
    thread = gdb.selected_thread()
    return thread is not None and bool(callers(thread, 0))


def run_behind_moves():
    """Defines the hooks, but for those that the user has defined."""
    for move in MOVES:
        hook = f"hookpost-{move}"
        if not ask(f"help {hook}"):
            gdb.execute(f"define {hook}\narmsnap end-script\nend")


EndScript()
gdb.events.cont.connect(EndScript.at_move)
gdb.events.stop.connect(EndScript.at_stop)
run_behind_moves()
