"""armsnap's commands in GDB 10 and later: `help armsnap` lists them.

`armsnap gdb` loads this file; by hand: source armsnap.py
"""

import argparse
import os
import re
import shlex
import shutil
import time

import gdb

# Regions of memory that nobody asked for are saved up to this size.
LARGEST = 64 << 20
# Of M-profile's system control space: what tells of faults, and how exceptions stack. Reading it
# changes nothing (DDI 0403, B3.2), as it would of SysTick and of the debug registers.
SYSTEM_CONTROL = [(0xE000ED00, 0xE000ED90), (0xE000EF30, 0xE000EF48)]
# What is read of a stack, beyond the outermost frame that GDB finds.
STACK = 64 << 10
MAX_STACK = 8 << 20
MAX_FRAMES = 10000
CHUNK = 64 << 10
PAGE = 4 << 10
# A position-independent program, in its ELF header.
ET_DYN = 3

TYPES = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_FLAGS, gdb.TYPE_CODE_ENUM)
TYPES += (gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_RANGE)


class Prefix(gdb.Command):
    """Saved Arm systems: snapshots made and opened, and the history that their trace tells."""

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


class Arguments(argparse.ArgumentParser):
    """Arguments of a command: wrong ones are GDB errors."""

    def __init__(self, name):
        super().__init__(prog=f"armsnap {name}", add_help=False, allow_abbrev=False)

    def error(self, message):
        raise gdb.GdbError(f"{message}\n{self.format_usage().strip()}")


def ask(command):
    """What GDB prints for a command; nothing where it fails."""
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error:
        return ""


def number(expression):
    """An expression of the user's as a number."""
    try:
        return int(gdb.parse_and_eval(f"(unsigned long long)({expression})"))
    except gdb.error as error:
        raise gdb.GdbError(f"{expression}: {error}")


def size_text(size):
    """A size for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


# Registers.

OWN = re.compile(r"[xrvd]\d+|sp|lr|pc|cpsr|fpsr|fpcr|fpscr")


def integer(value, name):
    """The bits of a register as a number; None for a type that is no register's."""
    kind = value.type.strip_typedefs()
    bits = 8 * kind.sizeof
    if kind.code in TYPES and bits <= 64:
        return int(value) & ((1 << bits) - 1)
    if kind.code == gdb.TYPE_CODE_FLT:
        raw = re.search(r"raw (0x[0-9a-f]+)", gdb.execute(f"info registers {name}", False, True))
        return int(raw[1], 16) if raw else None
    if kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        width = 8 * kind.target().sizeof
        parts = [integer(value[index], name) for index in range(low, high + 1)]
        if None in parts:
            return None
        return sum(part << (width * index) for index, part in enumerate(parts))
    if kind.code == gdb.TYPE_CODE_UNION:
        # Views of the same bits: the first that has them all as numbers.
        for field in kind.fields():
            if field.type.sizeof == kind.sizeof and not is_float(field.type):
                found = integer(value[field], name)
                if found is not None:
                    return found
    return None


def is_float(kind):
    """Whether a part of a vector is one of floating-point numbers."""
    kind = kind.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_ARRAY:
        kind = kind.target().strip_typedefs()
    return kind.code == gdb.TYPE_CODE_FLT


def newest_frame():
    """The newest frame, selected; None where GDB cannot tell its caller (a trace frame)."""
    try:
        frame = gdb.newest_frame()
        frame.select()
        return frame
    except gdb.error:
        return None


def registers(architecture):
    """(name in the snapshot, bits, value) of each register that is known."""
    aarch64 = architecture.name().startswith("aarch64")
    # GDB's names for parts of registers and for a floating-point unit of long ago; and the
    # instruction set that armsnap's server tells.
    parts = re.compile(r"isa|" + (r"[wqdshb]\d+" if aarch64 else r"[sq]\d+|f[0-7]|fps"))
    known = {}
    for register in architecture.registers():
        name = register.name
        if parts.fullmatch(name):
            continue
        try:
            value = gdb.parse_and_eval(f"${name}")
            bits = integer(value, name)
        except (gdb.error, ValueError):
            continue
        if bits is None:
            continue
        # The format's names for the core's own; others as the target calls them.
        written = "xPSR" if name == "xpsr" else name.upper() if OWN.fullmatch(name) else name
        known.setdefault(written.upper(), (written, 8 * value.type.sizeof, bits))
    return list(known.values())


def core_type(thread, architecture, known):
    """The type of a core: a product's name where the target tells it."""
    shown = ask(f"info threads {thread.num}")
    product = re.search(r"\b(?:Cortex-[AMRX]|Neoverse-[A-Z])\d+[A-Z]*", shown, re.IGNORECASE)
    if product:
        return product[0]
    if architecture.startswith("aarch64"):
        return "ARMv8-A"
    return "ARMv7-M" if any(name == "xPSR" for name, _, _ in known) else "ARMv7-A"


# Memory.


def merged(ranges):
    """Ranges in order of address, with those that overlap or touch as one."""
    out = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif start < end:
            out.append((start, end))
    return out


def without(ranges, others):
    """What of `ranges` is in none of `others`, both in order of address."""
    for start, end in ranges:
        for low, high in others:
            if high <= start or end <= low:
                continue
            if start < low:
                yield start, low
            start = max(start, high)
        if start < end:
            yield start, end


def server_ranges():
    """The memory map of a server that knows qMemoryRegionInfo (armsnap, lldb-server)."""
    at, found = 0, []
    while len(found) < 10000:
        reply = ask(f"maintenance packet qMemoryRegionInfo:{at:x}")
        region = re.search(r'received: "start:([0-9a-f]+);size:([0-9a-f]+);(.*)"', reply)
        if not region:
            break
        start, size = int(region[1], 16), int(region[2], 16)
        if "permissions:" in region[3]:
            found.append((start, start + size))
        if size == 0 or start + size >= 1 << 64 or start + size <= at:
            break
        at = start + size
    return found


def addresses(pattern, text):
    """The ranges that the lines of a text tell."""
    found = set()
    for match in re.finditer(pattern, text, re.MULTILINE):
        # `info mem` says 0 for the end of the address space.
        found.add((int(match[1], 16), int(match[2], 16) or 1 << 64))
    return found


def known_ranges():
    """The memory that GDB knows of: of its target, and of the sections of its files."""
    files = ask("info files")
    mapping = r"^\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+(?!.*(?:/dev/|---p|\[v))"
    found = addresses(r"^\s*0x([0-9a-f]+) - 0x([0-9a-f]+) is ", files)
    if "Local core dump file:" in files:
        # A core file does not have all that was mapped: GDB reads zeros there.
        sections = ask("maintenance info sections")
        empty = r"^\s*\[\d+\]\s+0x([0-9a-f]+)->0x([0-9a-f]+) at .*: load(?!.*HAS_CONTENTS)"
        found -= addresses(empty, sections)
    else:
        found |= set(server_ranges())
        found |= addresses(mapping, ask("info proc mappings"))
        found |= addresses(r"^\s*\d+\s+\S+\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s", ask("info mem"))
    ranges = []
    for start, end in sorted(found):
        if end - start <= LARGEST:
            ranges.append((start, end))
        else:
            size = size_text(end - start)
            print(f"left out: {start:#x}-{end - 1:#x} ({size}); --memory names parts of it")
    return merged(ranges)


def stack_range(frame):
    """The stack of the newest frame: up to the outermost frame, and some more."""
    if frame is None:
        return []
    try:
        low = high = int(frame.read_register("sp"))
        for _ in range(MAX_FRAMES):
            frame = frame.older()
            if frame is None:
                break
            at = int(frame.read_register("sp"))
            if low <= at < low + MAX_STACK:
                high = max(high, at)
    except (gdb.error, ValueError):
        return []
    limit = 1 << (8 * gdb.lookup_type("long").pointer().sizeof)
    return [(low, min(high + STACK, limit))] if low else []


def readable(inferior, start, size):
    """(address, bytes) of what can be read of a range, in order."""
    try:
        yield start, bytes(inferior.read_memory(start, size))
        return
    except gdb.MemoryError:
        pass
    except gdb.error as error:
        # In a trace frame; anything else is no answer about memory.
        if "unavailable" not in str(error) and "not available" not in str(error):
            raise
    if size == 1:
        return
    if size <= PAGE and size & (size - 1) == 0 and start % size == 0:
        ends = (start, start + size - 1)
        if size > 2 and not any(list(readable(inferior, end, 1)) for end in ends):
            return
    half = 1 << ((size - 1).bit_length() - 1)
    yield from readable(inferior, start, half)
    yield from readable(inferior, start + half, size - half)


def remote_object(name):
    """An object of the remote protocol as text; nothing where the server has none."""
    text = ""
    while len(text) < 16 << 20:
        reply = ask(f"maintenance packet qXfer:{name}:read::{len(text):x},800")
        found = re.search(r'received: "([ml])(.*)"', reply, re.DOTALL)
        if not found:
            return ""
        text += found[2].encode().decode("unicode_escape")
        if found[1] == "l":
            return text
    return ""


def trace_frame_ranges():
    """The memory that was collected in the selected trace frame."""
    collected = r'<memory\s+start="0x([0-9a-f]+)"\s+length="0x([0-9a-f]+)"'
    for match in re.finditer(collected, remote_object("traceframe-info")):
        start, length = int(match[1], 16), int(match[2], 16)
        yield start, start + length


class Dumps:
    """Reads memory into files of a directory."""

    def __init__(self, directory, inferior, total):
        self.directory, self.inferior, self.total = directory, inferior, total
        self.looked_at = self.saved = 0
        self.told = time.monotonic()

    def read(self, ranges, name):
        """Sections of a device file, for what can be read of the ranges."""
        dumps = []
        for start, end in ranges:
            dumps += self.read_range(start, end, name)
        return "".join(
            f"\n[dump_{name}_{start:x}]\nfile={name}_{start:x}.bin\n"
            f"address={start:#x}\nlength={size:#x}\n"
            for start, size in dumps
        )

    def read_range(self, start, end, name):
        dumps, file = [], None
        try:
            at = start
            while at < end:
                size = min(CHUNK - at % CHUNK, end - at)
                for address, data in readable(self.inferior, at, size):
                    if not dumps or sum(dumps[-1]) != address:
                        if file:
                            file.close()
                        path = os.path.join(self.directory, f"{name}_{address:x}.bin")
                        file = open(path, "xb")
                        dumps.append((address, 0))
                    file.write(data)
                    dumps[-1] = (dumps[-1][0], dumps[-1][1] + len(data))
                    self.saved += len(data)
                at += size
                self.looked_at += size
                self.tell()
        finally:
            if file:
                file.close()
        return dumps

    def tell(self):
        """Progress, every two seconds."""
        if time.monotonic() > self.told + 2:
            self.told = time.monotonic()
            gdb.write(f"{size_text(self.looked_at)} of {size_text(self.total)} looked at\n")
            gdb.flush()


# The program.


def program():
    """The file name of the program as GDB has it, or None."""
    space = gdb.current_progspace()
    names = [space.filename] + [objfile.filename for objfile in gdb.objfiles()]
    return next((name for name in names if name), None)


def copy_program(directory):
    """Copies the program; answers its name there, or why there is none."""
    name = program()
    if not name:
        return None, "GDB knows no program"
    local = name[len("target:") :] if name.startswith("target:") else name
    base = re.sub(r"[^\w.+-]", "_", os.path.basename(local)) or "program"
    if base.endswith((".ini", ".bin")) or base.startswith("."):
        base = f"program_{base}"
    to = os.path.join(directory, base)
    if name.startswith("target:") and not os.path.isfile(local):
        ask(f"remote get {shlex.quote(local)} {shlex.quote(to)}")
    else:
        try:
            shutil.copyfile(local, to)
        except OSError as error:
            return None, f"{local}: {error.strerror}"
    if not os.path.isfile(to):
        return None, f"{name} cannot be read"
    with open(to, "rb") as file:
        if file.read(4) != b"\x7fELF":
            os.remove(to)
            return None, f"{name} is no ELF file"
    return base, None


def load_offset(path):
    """How far behind the addresses of its file the program was loaded."""
    shown = re.search(r"^\s*Entry point: 0x([0-9a-f]+)", ask("info files"), re.MULTILINE)
    with open(path, "rb") as file:
        head = file.read(32)
    wide, order = head[4] == 2, "little" if head[5] == 1 else "big"
    entry = int.from_bytes(head[24 : 32 if wide else 28], order)
    if not shown or int.from_bytes(head[16:18], order) != ET_DYN:
        return 0
    return (int(shown[1], 16) - entry) % (1 << (64 if wide else 32))


# Commands.


class Save(gdb.Command):
    """Save what GDB is attached to as a snapshot.
Usage: armsnap save DIR [--memory START,LENGTH]... [--force]

DIR      the directory to make; it appears whole or not at all
--memory save this memory, and no other; expressions, as in
         --memory 0x20000000,0x8000 --memory &buffer,sizeof(buffer)
--force  replace a snapshot that is there

Each thread becomes a core with the registers that are known. Without
--memory the memory that GDB knows of is saved: what the target tells of its
memory, a core file's memory, the sections of the program, and the stacks.
What cannot be read is left out. The program is copied.
`armsnap gdb DIR` then shows the same."""

    def __init__(self):
        super().__init__("armsnap save", gdb.COMMAND_SUPPORT)

    def complete(self, text, word):
        if text.split(" ")[-1].startswith("-"):
            # GDB begins a word behind the hyphens.
            return [o for o in ("memory", "force") if o.startswith(word.lstrip("-"))]
        return gdb.COMPLETE_FILENAME

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        arguments = Arguments("save")
        arguments.add_argument("DIR")
        arguments.add_argument("--memory", metavar="START,LENGTH", action="append")
        arguments.add_argument("--force", action="store_true")
        given = arguments.parse_args(gdb.string_to_argv(argument))
        asked = [asked_range(text) for text in given.memory or []]
        thread = gdb.selected_thread()
        if thread is None:
            raise gdb.GdbError(
                "nothing is there to be saved: attach to a target, open a core file, "
                "or start a program first"
            )
        directory = os.path.abspath(os.path.expanduser(given.DIR))
        may_replace(directory, given.force)
        temporary = os.path.join(
            os.path.dirname(directory), f".{os.path.basename(directory)}.{os.getpid()}"
        )
        try:
            frame = gdb.selected_frame()
        except gdb.error:
            frame = None
        try:
            os.mkdir(temporary)
            try:
                print(f"{given.DIR}: {save(temporary, thread, asked)}")
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


def asked_range(text):
    """`START,LENGTH` as a range; the last comma divides."""
    start, comma, length = text.rpartition(",")
    if not comma:
        raise gdb.GdbError(f"--memory: expected START,LENGTH, found {text}")
    start, length = number(start), number(length)
    if length == 0 or start + length > 1 << 64:
        raise gdb.GdbError(f"--memory {text}: no such range of memory")
    return start, start + length


def may_replace(directory, force):
    """Fails where something is that is not to be replaced."""
    if not os.path.lexists(directory):
        return
    if os.path.isdir(directory) and not os.path.islink(directory):
        if not os.listdir(directory):
            return
        if os.path.isfile(os.path.join(directory, "snapshot.ini")):
            if force:
                return
            raise gdb.GdbError(f"{directory}: exists; --force replaces a snapshot")
    raise gdb.GdbError(f"{directory}: exists and is not a snapshot")


def appear(temporary, directory):
    """Gives a directory its name. What was there goes away only after that."""
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


def save(directory, selected, asked):
    """Writes the files of a snapshot; answers what is in it."""
    inferior = gdb.selected_inferior()
    threads = sorted(inferior.threads(), key=lambda thread: thread.num)
    if any(thread.is_running() for thread in threads):
        raise gdb.GdbError("threads run: `interrupt -a` stops them")
    cores, stacks, used = [], [], {"snapshot"}
    for thread in threads:
        thread.switch()
        frame = newest_frame()
        known = registers(inferior.architecture())
        if not known:
            raise gdb.GdbError(f"thread {thread.num}: no register can be read")
        name = re.sub(r"[^\w.+-]", "_", thread.name or "").strip("_.") or f"cpu_{thread.num - 1}"
        if name.lower() in used:
            name = f"{name}_{thread.num - 1}"
        used.add(name.lower())
        kind = core_type(thread, inferior.architecture().name(), known)
        cores.append((thread, name, kind, known))
        stacks.append([] if asked else stack_range(frame))
    selected.switch()
    m_profile = any(name == "xPSR" for _, _, _, known in cores for name, _, _ in known)
    if asked:
        ranges = merged(asked)
    elif int(gdb.convenience_variable("trace_frame") or -1) >= 0:
        ranges = merged(trace_frame_ranges()) or known_ranges()
    else:
        ranges = merged(known_ranges() + (SYSTEM_CONTROL if m_profile else []))
    if not asked and ask("info auxv"):
        # A process: its threads share one memory.
        ranges = merged(ranges + [stack for own in stacks for stack in own])
    stacks = [list(without(own, ranges)) for own in stacks]
    total = sum(end - start for own in stacks + [ranges] for start, end in own)
    dumps = Dumps(directory, inferior, total)
    shared = dumps.read(ranges, "memory")
    for (thread, name, kind, known), own in zip(cores, stacks):
        thread.switch()
        with open(os.path.join(directory, f"{name}.ini"), "x", encoding="utf-8") as file:
            file.write(f"[device]\nname={name}\nclass=core\ntype={kind}\n\n[regs]\n")
            for register, bits, value in known:
                size = "" if bits == 32 else f"(size:{bits})"
                file.write(f"{register}{size}={value:#0{2 + bits // 4}x}\n")
            file.write(dumps.read(own, f"stack_{thread.num}") + shared)
    if asked and not dumps.saved:
        raise gdb.GdbError("none of this memory can be read")
    copied, why_not = copy_program(directory)
    offset = load_offset(os.path.join(directory, copied)) if copied else 0
    with open(os.path.join(directory, "snapshot.ini"), "x", encoding="utf-8") as file:
        file.write("[snapshot]\nversion=1.0\n")
        file.write(f"description=Saved from GDB {gdb.VERSION.split('-')[0]}\n\n[device_list]\n")
        for index, (_, name, _, _) in enumerate(cores):
            file.write(f"device{index}={name}.ini\n")
        if copied:
            file.write(f"\n[program]\nfile={copied}\noffset={offset:#x}\n")
    if not all(thread.is_valid() for thread in threads):
        raise gdb.GdbError("the target went away")
    count = "1 core" if len(cores) == 1 else f"{len(cores)} cores"
    copied = f"program {copied}" if copied else f"no program: {why_not}"
    return f"{count}, {size_text(dumps.saved)} of memory, {copied}"


class Attach(gdb.Command):
    """Open a snapshot.
Usage: armsnap attach DIR [OPTION]...

DIR is a snapshot or a trace file; the options are those of `armsnap serve`.
The program is found if the snapshot has it, or named before: `file PROGRAM`.
What GDB was attached to before is left, and its program forgotten.
`set armsnap-program PATH` names the armsnap that is started."""

    def __init__(self):
        super().__init__("armsnap attach", gdb.COMMAND_SUPPORT, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        words = gdb.string_to_argv(argument)
        if not words:
            raise gdb.GdbError("expected a snapshot or a trace file")
        words = [os.path.expanduser(word) for word in words]
        if not os.path.exists(words[0]):
            raise gdb.GdbError(f"{words[0]}: no such file or directory")
        server = gdb.parameter("armsnap-program")
        found = shutil.which(os.path.expanduser(server))
        if not found:
            raise gdb.GdbError(f"{server}: not found; set armsnap-program PATH")
        words = [found, "serve", "--stdio", *words[1:], "--", words[0]]
        if any("\n" in word for word in words):
            raise gdb.GdbError("GDB cannot be given a name with a line break")
        if gdb.selected_thread():
            # Of two architectures the program of the first would stand in the way.
            gdb.execute("with confirm off -- file")
            ask("disconnect")
        command = " ".join(shlex.quote(word) for word in words)
        gdb.execute(f"target remote | exec {command}", from_tty)


Prefix()
Program()
Save()
Attach()

# In a source tree the other files lie beside this one; `armsnap gdb-commands` prints all as one,
# up to this line of this file.
for other in ("history.py", "past.py"):
    other = os.path.join(os.path.dirname(globals().get("__file__", "")), other)
    if "__file__" in globals() and os.path.isfile(other):
        with open(other, encoding="utf-8") as source:
            exec(compile(source.read(), other, "exec"), globals())
