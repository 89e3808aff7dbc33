"""Makes moves from many positions of a run, and prints where each ends.

The run is that of `record full`, which knows every value, or a history of armsnap's, where nothing
but the program counter is known. MOVES names a file with a line `PLACE MOVE` for each, in which a
place counts instructions since `main` began, or is `end`.
"""

import os
import re

import gdb


class Full:
    """GDB's own recording, which started at `main`."""

    def __init__(self):
        # The number of the first instruction; it depends on GDB's version.
        self.first = 0
        gdb.execute("record goto begin", to_string=True)
        gdb.execute("stepi", to_string=True)
        self.first = self.place() - 1

    def goto(self, place):
        if place == "end":
            # `record goto end` of GDB 18 goes to the last instruction instead.
            gdb.execute("record goto begin", to_string=True)
            gdb.execute("continue", to_string=True)
            return
        try:
            gdb.execute(f"record goto {self.first + place}", to_string=True)
        except gdb.error as error:
            if "Already at target insn" not in str(error):
                raise

    def place(self):
        told = gdb.execute("info record", to_string=True)
        here = re.search(r"Current instruction number is (\d+)", told)
        return int(here[1]) - self.first if here else "end"


class Trace:
    """armsnap's history."""

    def __init__(self):
        gdb.execute("armsnap goto begin", to_string=True)
        gdb.execute("armsnap find main", to_string=True)
        self.main = self.where()

    def where(self):
        told = gdb.execute("armsnap where", to_string=True)
        return int(re.search(r" at 0\+(\d+)", told)[1])

    def goto(self, place):
        place = place if place == "end" else f"0+{self.main + place}"
        gdb.execute(f"armsnap goto {place}", to_string=True)

    def place(self):
        told = gdb.execute("armsnap where", to_string=True)
        return "end" if "halted state" in told else self.where() - self.main


def functions():
    """The functions of the stack, innermost first."""
    names, frame = [], gdb.newest_frame()
    while frame is not None:
        names.append(frame.name() or "?")
        frame = frame.older()
    return " ".join(names)


def told(run, place, move):
    """Makes a move at a position and returns the result."""
    run.goto(place)
    begin = f"{gdb.newest_frame().pc():#x}"
    first, _, rest = move.partition(";")
    try:
        shown = gdb.execute(first, to_string=True)
        if rest:
            shown += gdb.execute(rest, to_string=True)
    except gdb.error as error:
        return f"{begin} error: {error}"
    if " history" in shown:
        return f"{begin} end"
    if first == "bt":
        return f"{begin} {functions()}"
    return f"{begin} {run.place()} {gdb.newest_frame().pc():#x} {functions()}"


run = Full() if os.environ["RUN"] == "full" else Trace()
with open(os.environ["MOVES"], encoding="ascii") as moves:
    for line in moves:
        place, move = line.rstrip("\n").split(" ", 1)
        place = place if place == "end" else int(place)
        print(f"@{line.rstrip()}@{told(run, place, move)}")
