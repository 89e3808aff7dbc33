"""Callers at past positions, where only the program counter is known.

GDB finds callers through registers and the stack, which are unknown in the past. The server knows
the open calls from the trace. This unwinder makes frames of them, with functions and lines, but
without registers other than the program counter.
"""

import re

import gdb
import gdb.unwinder


# Maximum number of requests for a reply that takes long. The server continues with each request.
QUESTIONS = 200


class FrameId:
    """Identifies a frame. `stack` is an address without memory."""

    def __init__(self, stack, call, function):
        self.sp = gdb.Value(stack)
        self.special = gdb.Value(call)
        self.pc = gdb.Value(function)


class Callers(gdb.unwinder.Unwinder):
    """The frames of past positions, which the server reports."""

    def __init__(self):
        super().__init__("armsnap-callers")
        # The frames so far, newest first, as (stack, call, function, pc), and whether there are more.
        self.frames, self.more = [], False
        # The index of the frame requested last, and of each frame by its level. Levels also count the
        # frames of inlined functions.
        self.last, self.levels = 0, {}

    def __call__(self, pending):
        try:
            sp = pending.read_register("sp")
            # The stack pointer is optimized out in frames made here, and unavailable in the newest.
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
        # GDB stops at a caller that is the same frame again.
        caller = self.frames[min(frame + 1, len(self.frames) - 1)][-1]
        found = pending.create_unwind_info(FrameId(*names))
        found.add_saved_register("pc", gdb.Value(caller).cast(pc.type))
        return found

    def start(self, pending):
        """Requests the first frames of a position."""
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
            # "~": not finished. The user can press Ctrl-C between two requests.
            if reply != "~":
                break
        frames = re.findall(r"([0-9a-f,]+);", reply)
        self.frames += [[int(digits, 16) for digits in frame.split(",")] for frame in frames]
        self.more = bool(frames) and reply.endswith("+")

    def find(self, pending, pc, newest):
        """Returns the index of the frame that GDB requests, after fetching its caller too."""
        level = pending.level() if hasattr(pending, "level") else None
        frame = 0 if newest else self.levels.get(level, self.last + 1)
        while self.more and frame + 1 >= len(self.frames):
            self.ask_more()
        # After the last frame, GDB requests it again.
        frame = min(frame, len(self.frames) - 1)
        if frame < 0 or self.frames[frame][-1] != pc:
            return None
        self.last = frame
        if level is not None:
            self.levels[level] = frame
        return frame


def callers(thread, known):
    """Requests the open calls, without the first `known` of them."""
    return packet(f"qArmsnap.callers:{thread.ptid[1]:x},{known:x}")


def packet(words):
    """Sends a packet of armsnap's own and returns the reply."""
    # gdb.RemoteTargetConnection.send_packet would make GDB discard the frame being unwound.
    found = re.search(r'received: "(.*)"', ask(f"maintenance packet {words}"))
    return found[1] if found else ""


def alone(pending, pc):
    """Unwinds the only frame of a 32-bit core: GDB does not step without a stack pointer."""
    # GDB 10 fails if a caller that is the same frame looks like inlined code. There, debug
    # information says how to unwind. GDB looks up a caller's code at its pc - 1.
    if not is_arm(pending.architecture()) or is_inlined(int(pc)) or is_inlined(int(pc) - 1):
        return None
    found = pending.create_unwind_info(FrameId(0, 0, int(pc)))
    found.add_saved_register("pc", pc)
    return found


def is_arm(architecture):
    return architecture.name().startswith("arm")


def is_inlined(address):
    """Returns whether the code at an address was inlined into a function."""
    block, functions = gdb.block_for_pc(address), 0
    while block and not block.is_global:
        functions += block.function is not None
        block = block.superblock
    return functions > 1


def choose_instruction_set(isa):
    """Makes GDB read code in the instruction set of the server's register `$isa`."""
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
    """Switches off the value of `finish` at past positions: GDB reads unknown registers as 0."""

    hides = False

    @classmethod
    def mind(cls, _=None):
        """Called at each stop."""
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
