"""`armsnap save`: saves the target of GDB as a snapshot.

Follows registers.py, memory.py and signals.py.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile

import gdb

# M-profile system control space: fault status and exception configuration. Reading it has no side
# effects (DDI 0403, B3.2), unlike SysTick and the debug registers.
SYSTEM_CONTROL = [(0xE000ED00, 0xE000ED90), (0xE000EF30, 0xE000EF48)]
# Names of remote files that are safe in a GDB command: without special meaning within quotes.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_./+,:@=~ -]+")


def number(expression):
    """Evaluates an expression from the user as a number. Not by a cast, which some languages lack."""
    try:
        value = gdb.parse_and_eval(expression)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_FUNC):
            value = value.address
        return int(value) % (1 << 64)
    except (gdb.error, TypeError, ValueError) as error:
        raise gdb.GdbError(printable(f"{expression}: {error}"))


def program():
    """Returns the file name of the program in GDB, or None."""
    space = gdb.current_progspace()
    names = [space.filename] + [objfile.filename for objfile in gdb.objfiles()]
    return next((name for name in names if name), None)


def copy_program(directory):
    """Copies the program; returns its name in the snapshot, or why there is none."""
    name = program()
    if not name:
        return None, "GDB has no program"
    local = name[len("target:") :] if name.startswith("target:") else name
    base = safe_name(os.path.basename(local)) or "program"
    if base.endswith((".ini", ".bin")) or base.startswith("."):
        base = f"program_{base}"
    to = os.path.join(directory, base)
    why_not = copy_file(name, to)
    if why_not:
        return None, why_not
    try:
        ElfHeader(to)
    except ValueError:
        os.remove(to)
        return None, f"{on_one_line(name)} is not an ELF file"
    return base, None


def is_remote():
    """Returns whether the target's files are those of a remote system."""
    # GDB sends packets to remote targets only.
    return succeeds("maintenance packet qC")


def copy_file(name, to):
    """Copies a file that GDB names; returns the reason if that fails. A file of this host may have the
    name of another one on the remote system."""
    local = name.removeprefix("target:")
    if name != local and is_remote():
        return fetch(local, to)
    try:
        shutil.copyfile(local, to)
    except OSError as error:
        return f"{on_one_line(local)}: {error.strerror}"
    return None


def fetch(name, to):
    """Copies a file of the remote system; returns the reason if that fails."""
    if not PLAIN_NAME.fullmatch(name):
        return f"{on_one_line(name)}: the name has characters that are not passed to GDB's `remote get`"
    with tempfile.TemporaryDirectory(prefix="armsnap-") as directory:
        fetched = os.path.join(directory, "program")
        if not PLAIN_NAME.fullmatch(fetched):
            return f"{directory}: TMPDIR has characters that are not passed to `remote get`"
        succeeds(f"remote get '{name}' '{fetched}'")
        try:
            shutil.copyfile(fetched, to)
        except OSError:
            return f"target:{name} cannot be read"
    return None


def load_offset(path):
    """Returns the load offset of the program relative to the addresses in its file."""
    header, entry = ElfHeader(path), entry_point()
    if entry is None or header.type != ET_DYN:
        return 0
    return (entry - header.entry) % (1 << (64 if header.is_64_bit else 32))


class Arguments(argparse.ArgumentParser):
    """Parser for the arguments of a command; reports errors as GDB errors."""

    def __init__(self, name):
        super().__init__(prog=f"armsnap {name}", add_help=False, allow_abbrev=False)

    def error(self, message):
        raise gdb.GdbError(f"{message}\n{self.format_usage().strip()}")


class Save(gdb.Command):
    """Save the target of GDB as a snapshot.
Usage: armsnap save DIR [--memory START,LENGTH]... [--memory SIZE] [--force]

DIR      the directory to create, completely or not at all
--memory START,LENGTH: save only this memory, the stacks and the executing
         code; expressions, as in
         --memory 0x20000000,0x8000 --memory &buffer,sizeof(buffer)
         SIZE: save regions of memory up to this size instead of 64 MiB
--force  replace an existing snapshot

Each thread becomes a core with its known registers. Without --memory, all
memory known to GDB is saved: the target's memory map, a core file's memory,
the sections of the program. The stacks and the code around each PC and return
address are always saved. Memory left out is listed. The program and its
libraries are copied; trace is not. `armsnap gdb DIR` then shows the same."""

    def __init__(self):
        super().__init__("armsnap save", gdb.COMMAND_SUPPORT)

    def complete(self, text, word):
        typed = text.split(" ")[-1]
        if typed.startswith("-"):
            # GDB completes the end of the word: in some versions the part after the hyphens.
            begin = len(typed) - len(word or "")
            return [o[begin:] for o in ("--memory", "--force") if o.startswith(typed)]
        return gdb.COMPLETE_FILENAME

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        arguments = Arguments("save")
        arguments.add_argument("DIR")
        arguments.add_argument("--memory", metavar="START,LENGTH|SIZE", action="append")
        arguments.add_argument("--force", action="store_true")
        given = arguments.parse_args(gdb.string_to_argv(argument))
        memory = given.memory or []
        asked = [asked_range(text) for text in memory if "," in text]
        largest = max([number(text) for text in memory if "," not in text], default=LARGEST)
        thread = gdb.selected_thread()
        if thread is None:
            raise gdb.GdbError(
                "there is nothing to save: attach to a target, open a core file, "
                "or start a program first"
            )
        directory = os.path.abspath(os.path.expanduser(given.DIR))
        may_replace(directory, given.force)
        try:
            frame = gdb.selected_frame()
        except gdb.error:
            frame = None
        try:
            temporary = unfinished(directory)
            try:
                print(printable(f"{given.DIR}: {save(temporary, thread, asked, largest)}"))
                may_replace(directory, given.force)
                appear(temporary, directory)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
                if thread.is_valid():
                    thread.switch()
                    if frame and frame.is_valid():
                        frame.select()
        except OSError as error:
            raise gdb.GdbError(f"{error.filename or directory}: {error.strerror}")


def unfinished(directory):
    """Makes a directory next to another one, with a unique name, so that one left by a killed GDB does not block it.
    It is private if a served file is."""
    made = tempfile.mkdtemp(
        prefix=f".{os.path.basename(directory)}.", dir=os.path.dirname(directory)
    )
    show_as_usual(made, 0o777)
    return made


def show_as_usual(made, mode):
    """Gives a new file or directory the usual mode, unless a served file is private."""
    if packet("qArmsnap.is-private") != "1":
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, mode & ~mask)


def asked_range(text):
    """Parses `START,LENGTH` as a range; the last comma is the separator."""
    start, _, length = text.rpartition(",")
    start, length = number(start), number(length)
    if length == 0 or start + length > 1 << 64:
        raise gdb.GdbError(f"--memory {text}: expected a range of memory within the address space")
    return start, start + length


def may_replace(directory, force):
    """Fails if the destination exists and must not be replaced."""
    if not os.path.lexists(directory):
        return
    if not os.path.isdir(directory) or os.path.islink(directory):
        raise gdb.GdbError(f"{directory}: exists and is not a snapshot; name another directory")
    if not os.listdir(directory):
        return
    not_input(directory)
    if not force and os.path.isfile(os.path.join(directory, "snapshot.ini")):
        raise gdb.GdbError(f"{directory}: exists; --force replaces a snapshot")
    may_write("snapshot", directory, *(["--force"] if force else []))


def not_input(path):
    """Fails if a file, or the directory of a snapshot, is being read, by GDB or by the server of a snapshot."""
    served = packet(f"qArmsnap.is-input:{os.fsencode(os.path.abspath(path)).hex()}") == "1"
    names = [objfile.filename for objfile in gdb.objfiles()]
    names = [name for name in names if name and os.path.exists(name)]
    within = os.path.join(os.path.realpath(path), "")
    own = any(os.path.samefile(name, path) or os.path.realpath(name).startswith(within) for name in names)
    if served or own:
        raise gdb.GdbError(f"{path} is input: it is not overwritten; name another output")


def may_write(kind, path, *options):
    """Fails if an existing file or directory must not be replaced; armsnap has the rule."""
    server = gdb.parameter("armsnap-program")
    found = shutil.which(os.path.expanduser(server))
    if not found:
        raise gdb.GdbError(
            f"{path}: exists, and {server}, which decides whether it may be replaced, is not found; "
            "set armsnap-program PATH"
        )
    asked = subprocess.run(
        [found, "may-write", kind, *options, "--", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if asked.returncode:
        said = os.fsdecode(asked.stderr).strip()
        raise gdb.GdbError(said or f"{path}: exists")


def appear(temporary, directory):
    """Renames a directory to its final name. Removes the old one only after that."""
    if not os.path.lexists(directory):
        os.rename(temporary, directory)
        return
    old = f"{temporary}.old"
    os.rename(directory, old)
    try:
        os.rename(temporary, directory)
    except OSError:
        os.rename(old, directory)
        raise
    shutil.rmtree(old)


def save(directory, selected, asked, largest):
    """Writes the files of a snapshot; returns a description of its contents."""
    inferior = gdb.selected_inferior()
    threads = sorted(inferior.threads(), key=lambda thread: thread.num)
    if any(thread.is_running() for thread in threads):
        raise gdb.GdbError("threads are running: `interrupt -a` stops them")
    cores, stacks, code, used = [], [], [], {"snapshot"}
    for thread in threads:
        thread.switch()
        frame = newest_frame()
        known = registers(inferior.architecture(), frame)
        if not known:
            raise gdb.GdbError(f"thread {thread.num}: no register can be read")
        name = safe_name(thread.name or "").strip("_.-") or f"cpu_{thread.num - 1}"
        while name.lower() in used:
            name = f"{name}_{thread.num - 1}"
        used.add(name.lower())
        kind = core_type(thread, inferior.architecture().name(), known)
        cores.append((thread, name, kind, known))
        stacks.append(stack_range(frame))
        code += code_ranges(frame)
    selected.switch()
    m_profile = any(name == "xPSR" for _, _, _, known in cores for name, _, _ in known)
    more = merged(code)
    trace_frame = gdb.convenience_variable("trace_frame")
    if asked:
        ranges = merged(asked)
    elif trace_frame is not None and int(trace_frame) >= 0:
        ranges, more = merged(trace_frame_ranges()) or known_ranges(largest), []
    else:
        ranges = merged(known_ranges(largest) + (SYSTEM_CONTROL if m_profile else []))
    if succeeds("info auxv"):
        # A process: its threads share their memory.
        more = merged(more + [stack for own in stacks for stack in own])
    more = list(without(more, ranges))
    taken = merged(ranges + more)
    stacks = [list(without(own, taken)) for own in stacks]
    total = sum(end - start for own in stacks + [taken] for start, end in own)
    dumps = Dumps(directory, inferior, total)
    shared = dumps.read(ranges, "memory")
    if asked and not dumps.saved:
        raise gdb.GdbError("none of this memory can be read")
    left_out = dumps.left_out()
    # Much of the memory around code and stacks may not exist.
    shared += dumps.read(more, "memory")
    for (thread, name, kind, known), own in zip(cores, stacks):
        thread.switch()
        with open(os.path.join(directory, f"{name}.ini"), "x", encoding="utf-8") as file:
            file.write(f"[device]\nname={name}\nclass=core\ntype={kind}\n")
            file.write(f"{signal_lines()}\n[regs]\n")
            for register, bits, value in known:
                size = "" if bits == 32 else f"(size:{bits})"
                file.write(f"{register}{size}={value:#0{2 + bits // 4}x}\n")
            file.write(dumps.read(own, f"stack_{thread.num}") + shared)
    copied, why_not = copy_program(directory)
    offset = load_offset(os.path.join(directory, copied)) if copied else 0
    with open(os.path.join(directory, "snapshot.ini"), "x", encoding="utf-8") as file:
        file.write("[snapshot]\nversion=1.0\n")
        file.write(f"description=Saved from GDB {gdb.VERSION.split('-')[0]}\n\n[device_list]\n")
        for index, (_, name, _, _) in enumerate(cores):
            file.write(f"device{index}={name}.ini\n")
        if copied:
            # The readable part of its writable memory is in the dumps; the rest is unknown.
            file.write(f"\n[program]\nfile={copied}\noffset={offset:#x}\nmemory=read-only\n")
    copied_libraries = copy_libraries(directory)
    if not all(thread.is_valid() for thread in threads):
        raise gdb.GdbError("the target went away")
    count = "1 core" if len(cores) == 1 else f"{len(cores)} cores"
    copied = f"program {copied}" if copied else f"no program: {why_not}"
    if copied_libraries:
        copied += f", {copied_libraries}"
    for line in filter(None, (left_out, trace_left_out())):
        print(line)
    return f"{count}, {size_text(dumps.saved)} of memory, {copied}"


def copy_libraries(directory):
    """Copies the libraries of the program to where `armsnap gdb` searches them; returns the count."""
    count, missing = 0, []
    for objfile in gdb.objfiles():
        name = objfile.filename
        # Separate debug information and the vDSO have no file to copy.
        if not name or objfile.owner or name == program() or name.startswith("system-supplied"):
            continue
        local = name[len("target:") :] if name.startswith("target:") else name
        base = os.path.basename(local)
        os.makedirs(os.path.join(directory, "libraries"), exist_ok=True)
        to = os.path.join(directory, "libraries", base)
        if not base or safe_name(base) != base.replace("+", "_") or os.path.exists(to):
            missing.append(on_one_line(local))
            continue
        if copy_file(name, to):
            missing.append(on_one_line(local))
        else:
            count += 1
    if missing:
        print(f"left out: {', '.join(missing)}: cannot be copied")
    return "" if not count else "1 library" if count == 1 else f"{count} libraries"


def trace_left_out():
    """Returns a note if there is a trace, which GDB cannot copy."""
    if re.match(r"T[01];(?!tnotrun)", packet("qTStatus")):
        return "left out: the trace, which stays in the served snapshot; `tsave FILE` saves its frames"
    return ""


Save()
