"""What GDB lacks where a core's program counter is known and nothing else: callers.

GDB finds callers by registers and the stack. Of the past neither is known, but the server knows
from the trace which calls are open. An unwinder makes frames of those: they have functions and
lines, and no registers but the program counter.
"""

import re

import gdb
import gdb.unwinder


# How often the server is asked for what it takes long to find; each time it gets on.
QUESTIONS = 200


class FrameId:
    """What GDB tells frames apart by. No memory is where such a frame is said to be."""

    def __init__(self, stack, call, function):
        self.sp = gdb.Value(stack)
        self.special = gdb.Value(call)
        self.pc = gdb.Value(function)


class Callers(gdb.unwinder.Unwinder):
    """The frames of past positions, as the server tells them."""

    def __init__(self):
        super().__init__("armsnap-callers")
        # Those of the newest frame's position, as (stack, call, function, pc); and whether there are more.
        self.frames, self.more = [], False
        # Which of them the frame is that was asked for last; and by levels, which count frames of
        # inlined functions too.
        self.last, self.levels = 0, {}

    def __call__(self, pending):
        try:
            sp = pending.read_register("sp")
            # Frames that were made here have none, and the newest one has one that is not known.
            newest = not sp.is_optimized_out
            if newest:
                int(sp)
                return None
        except gdb.error:
            newest = True
        pc = pending.read_register("pc")
        if newest:
            self.start(pending)
        frame = self.find(pending, int(pc), newest)
        if frame is None:
            return alone(pending, pc) if newest else None
        *names, _ = self.frames[frame]
        # A caller that is the same frame again: GDB stops there.
        caller = self.frames[min(frame + 1, len(self.frames) - 1)][-1]
        found = pending.create_unwind_info(FrameId(*names))
        found.add_saved_register("pc", gdb.Value(caller).cast(pc.type))
        return found

    def start(self, pending):
        """Asks for the frames of a position."""
        self.frames, self.more, self.last, self.levels = [], True, -1, {}
        self.ask_more()
        if is_arm(pending.architecture()):
            try:
                choose_instruction_set(pending.read_register("isa"))
            except ValueError:
                pass

    def ask_more(self):
        for _ in range(QUESTIONS):
            reply = callers(gdb.selected_thread(), len(self.frames))
            # The server has not finished; in between a user can press Ctrl-C.
            if reply != "~":
                break
        frames = re.findall(r"([0-9a-f,]+);", reply)
        self.frames += [[int(digits, 16) for digits in frame.split(",")] for frame in frames]
        self.more = bool(frames) and reply.endswith("+")

    def find(self, pending, pc, newest):
        """Which of the frames it is that GDB asks for; the one after it is known too."""
        level = pending.level() if hasattr(pending, "level") else None
        frame = 0 if newest else self.levels.get(level, self.last + 1)
        while self.more and frame + 1 >= len(self.frames):
            self.ask_more()
        # Behind the last one GDB asks for it again.
        frame = min(frame, len(self.frames) - 1)
        if frame < 0 or self.frames[frame][-1] != pc:
            return None
        self.last = frame
        if level is not None:
            self.levels[level] = frame
        return frame


def callers(thread, known):
    """The server's answer to which calls are open, without those that are known."""
    return packet(f"qArmsnap.callers:{thread.ptid[1]:x},{known:x}")


def packet(words):
    """The server's answer to a packet of its own."""
    # To use the connection of GDB's Python would make GDB forget the frame that is being made.
    found = re.search(r'received: "(.*)"', ask(f"maintenance packet {words}"))
    return found[1] if found else ""


def alone(pending, pc):
    """The one frame of a core of 32 bits, which GDB refuses to step without its stack pointer."""
    # GDB 10 fails where a caller that is the same frame seems to be of inlined code. There
    # debug information tells how to unwind. A caller's code is looked for before its pc.
    if not is_arm(pending.architecture()) or is_inlined(int(pc)) or is_inlined(int(pc) - 1):
        return None
    found = pending.create_unwind_info(FrameId(0, 0, int(pc)))
    found.add_saved_register("pc", pc)
    return found


def is_arm(architecture):
    return architecture.name().startswith("arm")


def is_inlined(address):
    """Whether there is code that was inlined into a function."""
    block, functions = gdb.block_for_pc(address), 0
    while block and not block.is_global:
        functions += block.function is not None
        block = block.superblock
    return functions > 1


def choose_instruction_set(isa):
    """Makes GDB read code as the server's register `$isa` says."""
    try:
        mode = ("arm", "thumb")[int(isa)]
    except (gdb.error, IndexError):
        return
    if gdb.parameter("arm fallback-mode") == mode:
        return
    if hasattr(gdb, "set_parameter"):
        gdb.set_parameter("arm fallback-mode", mode)
    else:
        gdb.execute("set arm fallback-mode " + mode)


class Returned:
    """`finish` takes a register that is not known for 0: at past positions it shows no value."""

    hides = False

    @classmethod
    def mind(cls, _=None):
        """At each stop."""
        try:
            int(gdb.newest_frame().read_register("sp"))
            known = True
        except (gdb.error, ValueError):
            known = False
        shown = gdb.parameter("print finish")
        if known and cls.hides:
            gdb.execute("set print finish on")
        elif not known and shown:
            gdb.execute("set print finish off")
        cls.hides = not known and (shown or cls.hides)


gdb.events.stop.connect(Returned.mind)
gdb.unwinder.register_unwinder(None, Callers(), True)
