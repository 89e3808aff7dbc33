"""Arguments at functions' entries (`k@entry`), where they are known.

GDB computes them from the registers of the caller. Where one of these is not known at a past position, it would
print an error for each argument. There they are left out, unless the user has chosen a setting.

Follows past.py.
"""

import gdb

SETTING = "print entry-values"
# The number of frames of a back trace that are checked.
FRAMES = 64


class Entries(gdb.Command):
    """Leave arguments at functions' entries out where they are not known.
Usage: armsnap entries [all]

armsnap runs it where GDB stops, and with `all` before commands that print other frames."""

    # What armsnap chose last. If the setting is another one, the user chose it.
    chosen = "default"
    # Whether it is printing frames itself.
    looks = False

    def __init__(self):
        super().__init__("armsnap entries", gdb.COMMAND_SUPPORT)
        run_before(["stop"], "armsnap entries")
        run_before(["backtrace", "frame", "up", "down"], "armsnap entries all")

    # No `dont_repeat`: that would keep an empty line from repeating the command.
    def invoke(self, argument, from_tty):
        if self.looks or gdb.parameter(SETTING) != self.chosen or gdb.selected_thread() is None:
            return
        self.choose("default")
        try:
            past = shown_position(found_frame())
        except gdb.error:
            # A core without a pc.
            return
        if past:
            Entries.looks = True
            faulty = entry_values_fail(f"backtrace {FRAMES}" if argument else "frame")
            Entries.looks = False
            self.choose("no" if faulty else "default")

    @classmethod
    def choose(cls, mode):
        if mode != cls.chosen:
            gdb.execute(f"set {SETTING} {mode}")
            Entries.chosen = mode


Entries()
