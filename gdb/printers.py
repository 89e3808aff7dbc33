"""libstdc++'s printers of C++ containers, from GDB's data directory: `armsnap printers`.

Follows memory.py.
"""

import importlib
import os
import re
import sys

import gdb

# The file by which GDB loads the printers for a library of this version.
STARTER = re.compile(r"libstdc\+\+\.so\.(\d+(?:\.\d+)*)-gdb\.py")
# Where the printers are, in such a file.
PLACE = re.compile(r"^pythondir *= *'(/[^'\n]+)'", re.MULTILINE)
PRINTERS = "libstdc++-v6"


def starters(data):
    """Returns the files that load printers in GDB's data directory, those of the newest library first."""
    found = []
    for folder, _, names in os.walk(os.path.join(data, "auto-load")):
        for name in names:
            match = STARTER.fullmatch(name)
            if match:
                version = [int(number) for number in match[1].split(".")]
                found.append((version, os.path.join(folder, name)))
    return [path for _, path in sorted(found, reverse=True)]


def printers_directory(data):
    """Returns the directory of the modules; None if the data directory names none.

    The file itself does not run: it looks for the modules relative to the library, which a snapshot has."""
    for path in starters(data):
        with open(path, encoding="utf-8", errors="replace") as text:
            place = PLACE.search(text.read())
        if place and os.path.isdir(os.path.join(place[1], "libstdcxx")):
            return place[1]
    return None


class Printers(gdb.Command):
    """Show C++ containers by their elements, with libstdc++'s printers.
Usage: armsnap printers

They are those of GDB's data directory (`show data-directory`). Scripts of snapshots,
programs and sysroots are not read."""

    def __init__(self):
        super().__init__("armsnap printers", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        if argument.strip():
            raise gdb.GdbError("armsnap printers takes no argument")
        if any(getattr(printer, "name", None) == PRINTERS for printer in gdb.pretty_printers):
            return
        data = gdb.parameter("data-directory")
        directory = printers_directory(data)
        if directory is None:
            raise gdb.GdbError(
                f"{printable(data)}: GDB's data directory has no printers of libstdc++; "
                "the package libstdc++6 has them"
            )
        before = list(sys.path)
        # An empty path is the current directory.
        sys.path[:] = [directory, *filter(None, before)]
        try:
            # For no object file: for all, and without its path.
            importlib.import_module("libstdcxx.v6").register_libstdcxx_printers(None)
        except Exception as error:
            raise gdb.GdbError(f"{printable(directory)}: {printable(str(error))}")
        finally:
            sys.path[:] = before


Printers()
