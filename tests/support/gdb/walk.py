"""Walks in history in GDB and prints each stop, in addition to GDB's output."""

import gdb


class Stops:
    """The last stop that GDB reported."""

    def __init__(self):
        self.event = None
        gdb.events.stop.connect(self.stopped)

    def stopped(self, event):
        self.event = event

    def told(self):
        """The thread, the address, and the signal or `breakpoint`, if any."""
        why = getattr(self.event, "stop_signal", "")
        if isinstance(self.event, gdb.BreakpointEvent):
            why = "breakpoint"
        return f"@{gdb.selected_thread().num} {gdb.newest_frame().pc():#x} {why}"


stops = Stops()


def walk(move, times):
    """Moves a number of times."""
    print("@walk")
    for _ in range(times):
        stops.event = None
        gdb.execute(move)
        print(stops.told())
