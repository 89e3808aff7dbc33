"""armsnap's commands in GDB 10 and later: `help armsnap` lists them.

`armsnap gdb` loads this file; by hand: source armsnap.py
"""

import locale
import os
import re
import shlex
import shutil

import gdb

# The major version of GDB.
GDB_VERSION = int(re.search(r"\d+", gdb.VERSION)[0])


class Prefix(gdb.Command):
    """Saved Arm systems: save and open snapshots, and navigate the history in their trace."""

    def __init__(self):
        super().__init__("armsnap", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE, True)


class Program(gdb.Parameter):
    """The armsnap program that `armsnap attach` starts."""

    set_doc = "Set the armsnap program that `armsnap attach` starts."
    show_doc = "Show the armsnap program that `armsnap attach` starts."

    def __init__(self):
        super().__init__("armsnap-program", gdb.COMMAND_SUPPORT, gdb.PARAM_FILENAME)
        self.value = globals().get("ARMSNAP", "armsnap")

    def get_set_string(self):
        return ""

    def get_show_string(self, value):
        return f"The armsnap program is {value}."


def succeeds(command):
    """Runs a GDB command without output, and returns whether it succeeds."""
    try:
        gdb.execute(command, to_string=True)
    except gdb.error:
        return False
    return True


def use_utf8():
    """Makes GDB exchange text with Python as UTF-8 where the locale has ASCII only.

    Without any locale, as in a container, other characters in names and paths are errors."""
    # The first function exists since GDB 12, the second not on Windows.
    if hasattr(gdb, "host_charset"):
        charset = gdb.host_charset()
    elif hasattr(locale, "nl_langinfo"):
        charset = locale.nl_langinfo(locale.CODESET)
    else:
        return
    if gdb.parameter("host-charset") == "auto" and charset == "ANSI_X3.4-1968":
        gdb.execute("set host-charset UTF-8")


def connect(command, from_tty, to_string=False):
    """Runs a command that connects to a snapshot.

    If GDB 17 or later reads the list of libraries of a static glibc program when it connects, it treats the
    program as the dynamic linker, and never stops in it when stepping by lines."""
    if GDB_VERSION < 17 or not has_static_program():
        return gdb.execute(command, from_tty, to_string)
    before = gdb.parameter("osabi")
    gdb.execute("set osabi none")
    try:
        return gdb.execute(command, from_tty, to_string)
    finally:
        gdb.execute(f"set osabi {before}")


def has_static_program():
    """Returns whether GDB has a program, and it needs no dynamic linker."""
    program = gdb.current_progspace().filename
    try:
        return program is not None and ElfHeader(program).is_static()
    except (OSError, ValueError):
        return False


def safe_name(name):
    """Returns a name from the target in ASCII letters, digits, `_`, `.` and `-`.

    Nothing else of a target's text is ever part of a command, an expression, a file name or an
    .ini file."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def printable(text):
    """Escapes untrusted text for the terminal, except line ends."""
    return "\n".join(map(on_one_line, text.split("\n")))


def on_one_line(name):
    """Escapes an untrusted name for the terminal, including line ends."""
    # Not printable: controls, format characters (bidirectional, zero width), surrogates, separators.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


class Attach(gdb.Command):
    """Open a snapshot.
Usage: armsnap attach DIR [OPTION]...

DIR is a snapshot or a trace file; the options are those of `armsnap serve`.
Scripts that come with its programs do not run (`set auto-load off`), unless
`--allow-scripts` is among the options.
If the snapshot does not contain the program, name it before: `file PROGRAM`.
GDB leaves its previous target, and forgets its program.
`set armsnap-program PATH` sets the armsnap program to start."""

    def __init__(self):
        super().__init__("armsnap attach", gdb.COMMAND_SUPPORT, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        words = gdb.string_to_argv(argument)
        allow_scripts = "--allow-scripts" in words
        words = [os.path.expanduser(word) for word in words if word != "--allow-scripts"]
        if not words:
            raise gdb.GdbError("expected a snapshot or a trace file")
        if not os.path.exists(words[0]):
            raise gdb.GdbError(f"{words[0]}: no such file or directory")
        server = gdb.parameter("armsnap-program")
        found = shutil.which(os.path.expanduser(server))
        if not found:
            raise gdb.GdbError(f"{server}: not found; set armsnap-program PATH")
        words = [found, "serve", "--stdio", *words[1:], "--", words[0]]
        if any("\n" in word for word in words):
            raise gdb.GdbError("a name with a line break cannot be passed to GDB")
        if gdb.selected_thread():
            # With two architectures, the program of the first would conflict.
            gdb.execute("with confirm off -- file")
            succeeds("disconnect")
        if not allow_scripts:
            gdb.execute("set auto-load off")
        # GDB's own command lacks the data it needs here.
        CoreFile()
        command = " ".join(shlex.quote(word) for word in words)
        connect(f"target remote | exec {command}", from_tty)


use_utf8()
Prefix()
Program()
Attach()

# In a source tree the other files are next to this one; `armsnap gdb-commands` prints all as one,
# up to this line of this file.
OTHERS = (
    "printed",
    "elf",
    "registers",
    "memory",
    "signals",
    "save",
    "core",
    "history",
    "past",
    "entries",
    "interrupt",
    "finish",
    "leave",
    "quiet",
    "printers",
)
for other in OTHERS:
    other = os.path.join(os.path.dirname(globals().get("__file__", "")), f"{other}.py")
    if "__file__" in globals() and os.path.isfile(other):
        with open(other, encoding="utf-8") as source:
            exec(compile(source.read(), other, "exec"), globals())
