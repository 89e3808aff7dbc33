"""Callers at past positions, where registers and the stack may be unknown.

GDB finds callers through registers and the stack. The server knows the open calls from the trace. This
unwinder makes frames of them, with functions and lines, and with those registers that the server knows.
"""

import re

import gdb
import gdb.unwinder


# The pc of an unknown caller. GDB stops unwinding there, because that frame is the same again. With the
# frame's own pc it could be in an inlined function, and GDB 13 fails where such a frame occurs twice.
NO_CALLER = 0
# Code that a signal handler of A64 Linux returns to: `mov x8, #139` (rt_sigreturn), `svc #0`.
SIGRETURN = bytes.fromhex("681180d2010000d4")
# Where the pc of the interrupted code is in a signal's frame (struct rt_sigframe of arm64 Linux).
INTERRUPTED_PC = 0x238
# Where the other state is, in parts that each start with a magic number and a size; and the parts that GDB can
# always read (FPSIMD, ESR): it fails at that of SVE if the target has no registers of that size.
SAVED_PARTS = 0x250
SIMPLE_PARTS = (0x46508001, 0x45535201)
# Bits 7 to 31 of the address that a Cortex-M's exception handler returns to. Bit 2: to the process stack;
# bits 6 and 0: the security states of the interrupted code and of the handler.
EXC_RETURN = 0x1FFFFFF
# The message where a move by lines ends in a frame that may be another one.
SWITCHED = "stacks were switched, and SP is not known here: this may be another call of the function\n"
# Maximum number of requests for a reply that takes long. The server continues with each request.
QUESTIONS = 200


# The commands that run before each command, by its name.
before = {}


def run_before(moves, command):
    """Runs a command before each of these moves, except where the user has defined a hook."""
    for move in moves:
        hook = f"hook-{move}"
        if move in before or not succeeds(f"help {hook}"):
            before.setdefault(move, []).append(command)
            gdb.execute("\n".join([f"define {hook}", *before[move], "end"]))


class FrameId:
    """Identifies a frame. `stack` is an address without memory."""

    def __init__(self, stack, call, function):
        self.sp = gdb.Value(stack)
        self.pc = gdb.Value(function)
        if call is not None:
            self.special = gdb.Value(call)

    def __eq__(self, other):
        return vars(self) == vars(other)


class Halted(gdb.Command):
    """Keep the identifier of the newest frame at the halted state, for past positions.
Usage: armsnap halted

armsnap runs it before every command that moves by lines."""

    # GDB compares the frame where such a move started with the frames that it reaches.
    MOVES = "next nexti step reverse-next reverse-nexti reverse-step".split()
    # Per thread: the call and the function of the frame, its FrameId, and the stack address of
    # frames of later calls.
    frames = []

    def __init__(self):
        super().__init__("armsnap halted", gdb.COMMAND_SUPPORT)
        run_before(self.MOVES, "armsnap halted")

    # No `dont_repeat`: that would keep an empty line from repeating the move.
    def invoke(self, argument, from_tty):
        thread = gdb.selected_thread()
        if thread is None or not knows(found_frame(), "sp"):
            return
        names = re.fullmatch("-([0-9a-f]+),([0-9a-f]+),([0-9a-f]+)", ask_callers(0))
        own = frame_id(found_frame())
        kept = [known for known in self.frames if known[0].is_valid() and known[0] != thread]
        Halted.frames = kept
        if names and own:
            below, call, function = (int(digits, 16) for digits in names.groups())
            # GDB's own frames have no `special`.
            frame = FrameId(own[0], None, gdb_function() or function)
            kept.append((thread, call, function, frame, below))

    @classmethod
    def name(cls, stack, call, function):
        """The FrameId of a frame of the selected thread whose stack address is not known."""
        thread = gdb.selected_thread()
        for of, last, _, _, below in cls.frames:
            if of == thread and call > last:
                stack = below
        return FrameId(stack, call, function)

    @classmethod
    def kept(cls, call, function):
        """The FrameId that a frame of the selected thread has at the halted state, if it was kept."""
        thread = gdb.selected_thread()
        for of, last, name, frame, _ in cls.frames:
            if of == thread and (call, function) == (last, name):
                return frame
        return None


def gdb_function():
    """Returns the start of the newest frame's function in the debug information."""
    block = found_frame().function() and found_frame().block()
    while block and not (block.function and block.superblock.is_static):
        block = block.superblock
    return block and block.start


def find_frame(_=None):
    """Makes GDB find the newest frame; called at each stop. Where the CPSR of AArch32 is not known, the first
    attempt fails: it is made here, so that no command of the user fails."""
    try:
        gdb.newest_frame()
    except gdb.error:
        pass


def found_frame():
    """Returns the newest frame, also before the handlers of a stop have run."""
    find_frame()
    return gdb.newest_frame()


def knows(frame, register):
    """Returns whether a register is known in a frame."""
    try:
        return known(frame.read_register(register))
    except (gdb.error, ValueError):
        return False


def known(value):
    """Returns whether the value of a register is known."""
    try:
        int(value)
    except gdb.error:
        return False
    return True


class Stepping(gdb.Command):
    """Keep the identifiers of frames during a move that ends in one of them.
Usage: armsnap stepping [out|end]

armsnap runs it before every command that moves by lines, with `out` before those that move to the caller,
and with `end` where GDB stops.
Where such a move comes back to a function after stacks were switched, neither its call nor SP may be known
there. GDB would go on to the end of history."""

    # The thread, and the identifiers of two frames where a move started, by their functions. Of two calls of one
    # function it is that in which the move is to end.
    thread, own = None, {}
    # Whether another frame was given the identity of one of them.
    assumed = False

    def __init__(self):
        super().__init__("armsnap stepping", gdb.COMMAND_SUPPORT)
        run_before(Halted.MOVES + ["until"], "armsnap stepping")
        run_before(["finish", "reverse-finish", "advance"], "armsnap stepping out")
        run_before(["stop"], "armsnap stepping end")

    # No `dont_repeat`: that would keep an empty line from repeating the move.
    def invoke(self, argument, from_tty):
        if argument == "end":
            return self.at_stop(None)
        Stepping.thread, Stepping.own, Stepping.assumed = None, {}, False
        thread = gdb.selected_thread()
        if thread is None or not shown_position(found_frame()):
            return
        Stepping.thread = thread
        if argument == "out":
            frames = Callers.with_caller(gdb.selected_frame())[::-1]
        else:
            frames = Callers.with_caller(found_frame())
        for function, identifier in frames:
            Stepping.own.setdefault(function, identifier)

    @classmethod
    def same(cls, frame, inner):
        """The FrameId of a frame where a move started, if this frame, whose identity is unknown, may be the same one. It
        differs from the frames called from it."""
        own = cls.own.get(frame.function)
        if own is None or frame.call or frame.true_stack is not None or cls.thread != gdb.selected_thread():
            return None
        if any(own == called.identifier() for called in inner):
            return None
        cls.assumed = cls.assumed or own != frame.identifier()
        return own

    @classmethod
    def at_stop(cls, event):
        assumed, cls.thread, cls.own, cls.assumed = cls.assumed, None, {}, False
        if assumed:
            # It has no identity of its own, and so no values in its place on the stack.
            forget_registers()
            find_frame()
            gdb.write(SWITCHED)


class Frame:
    """A frame as the server reports it."""

    def __init__(self, fields):
        # A handler of a signal, whose caller here is the code that it interrupted.
        self.signal = fields[0].startswith("s")
        fields[0] = fields[0].lstrip("s")
        self.stack, self.call, self.function, self.pc = (int(field, 16) for field in fields[:4])
        self.true_stack = int(fields[4], 16) if len(fields) > 4 else None
        named = (field.split(":") for field in fields[5:])
        self.caller_registers = {name: int(digits, 16) for name, digits in named}
        # Whether GDB finds the interrupted code of a handler, by the code that the handler returns to.
        # It stays as it is when it is first needed.
        self.shows_signal = None

    @property
    def sigreturn(self):
        """The code that a signal handler returns to; None if unknown, or not a handler."""
        return self.caller_registers.get("x30")

    def is_signal(self, interrupted):
        """Returns whether GDB can unwind this handler's signal by itself, to the interrupted frame."""
        if self.shows_signal is None:
            saved_pc = self.caller_registers.get("sp", 0) + INTERRUPTED_PC
            self.shows_signal = (
                self.sigreturn is not None
                and memory(self.sigreturn, 8) == SIGRETURN
                and memory(saved_pc, 8) == interrupted.pc.to_bytes(8, "little")
                and is_simple(self.caller_registers["sp"] + SAVED_PARTS)
            )
        return self.shows_signal

    def identifier(self):
        """Its FrameId: the same at every position of its call."""
        kept = Halted.kept(self.call, self.function)
        if kept is None and self.true_stack is not None:
            # As GDB identifies it where it unwinds by itself: a coroutine's frame may lose its call.
            return FrameId(self.true_stack, None, self.function)
        return kept or Halted.name(self.stack, self.call, self.function)


class Stack:
    """The frames of a thread at a position, requested when GDB needs them."""

    def __init__(self, position):
        self.position = position
        # The frames so far, newest first, as Frame, and whether there are more.
        self.frames, self.more = [], True
        # Where the last frame returns to, if GDB unwinds by itself from there, or at the newest frame.
        self.alone, self.beyond = False, NO_CALLER
        # The index of the frame requested last, and of each frame by its level. Levels also count the
        # frames of inlined functions.
        self.last, self.levels = -1, {}

    def ask_more(self):
        reply = ask_callers(len(self.frames))
        frames = re.findall(r"([0-9a-z,:]+);", reply)
        self.frames += [Frame(frame.split(",")) for frame in frames]
        self.more = bool(frames) and reply.endswith("+")
        beyond = re.search(r"\^([0-9a-f]*)$", reply)
        if beyond:
            self.alone, self.beyond = not self.frames, int(beyond[1] or "0", 16)

    def end_at(self, frame):
        """Forgets the frames after one."""
        del self.frames[frame + 1 :]
        self.more, self.beyond = False, NO_CALLER

    def find(self, pending, pc, newest):
        """Returns the index of the frame that GDB requests, after fetching its caller too."""
        level = pending.level() if hasattr(pending, "level") else None
        frame = 0 if newest else self.levels.get(level, self.last + 1)
        while self.more and frame + 1 >= len(self.frames):
            self.ask_more()
        inner = self.frames[frame - 1] if 0 < frame <= len(self.frames) else None
        if inner and inner.shows_signal and pc == inner.sigreturn:
            # Between the handler of a signal and the interrupted code.
            return None
        # The caller of the last frame is that frame again.
        known = min(frame, len(self.frames) - 1)
        if known < 0 or pc != (self.frames[known].pc if known == frame else NO_CALLER):
            return None
        self.last = frame
        if level is not None:
            self.levels[level] = frame
        return known


class Callers(gdb.unwinder.Unwinder):
    """The frames of past positions, which the server reports.

    GDB fails if a command runs while it looks for an outer frame that was selected before, as it does
    when it returns to a thread. So the frames are kept by thread: that frame has been unwound before."""

    stacks = {}

    def __init__(self):
        super().__init__("armsnap-callers")

    def __call__(self, pending):
        found = self.known(pending)
        if found is None and interrupts_unknown_stack(pending):
            # GDB would look for the caller on the stack of the handler.
            stack = int(pending.read_register("sp")) if knows(pending, "sp") else 0
            found = pending.create_unwind_info(FrameId(stack, None, 0))
            # The same frame again: GDB stops.
            for register in ("pc", "sp") if stack else ("pc",):
                found.add_saved_register(register, pending.read_register(register))
        return found

    def known(self, pending):
        arm = is_arm(pending.architecture())
        position = shown_position(pending)
        newest = not hides_position(pending)
        if newest and not position:
            # The link register is optimized out in frames made here, and may be unavailable in the
            # newest. At past positions it is not read: of all registers, GDB would request them at
            # each step.
            try:
                newest = not pending.read_register("lr" if arm else "x30").is_optimized_out
            except (gdb.error, ValueError):
                pass
        if newest and not position and knows(pending, "sp"):
            self.stacks.pop(gdb.selected_thread().global_num, None)
            return None
        try:
            pc = pending.read_register("pc")
        except gdb.error:
            # The register that it is unwound from is not known.
            return None
        if pc.is_optimized_out:
            return None
        if not known(pc):
            # A trace frame without registers, or a thread.
            trace_frame = gdb.convenience_variable("trace_frame")
            is_thread = trace_frame is None or int(trace_frame) < 0
            return unknown(pending) if is_thread and newest and not position and arm else None
        stack = self.stack(pending, position, newest)
        frame = stack and stack.find(pending, int(pc), newest)
        if frame is None:
            return alone(pending, pc) if newest and not (stack and stack.alone) else None
        this = stack.frames[frame]
        outer = stack.frames[frame + 1] if frame + 1 < len(stack.frames) else None
        caller, registers = outer.pc if outer else stack.beyond, this.caller_registers
        if outer and this.signal:
            if this.is_signal(outer):
                if int(pc) in (this.sigreturn, this.sigreturn + 4):
                    return None
                caller = this.sigreturn
            elif outer.pc == outer.function:
                # GDB would show the function before it: it looks up a caller's code at its pc - 1.
                stack.end_at(frame)
                caller, registers = NO_CALLER, {}
            else:
                # The registers belong to the code that the handler returns to.
                registers = {}
        identifier = Stepping.same(this, stack.frames[:frame]) or this.identifier()
        found = pending.create_unwind_info(identifier)
        found.add_saved_register("pc", gdb.Value(caller).cast(pc.type))
        for name, value in registers.items():
            found.add_saved_register(name, gdb.Value(value).cast(pc.type))
        return found

    @classmethod
    def with_caller(cls, selected):
        """The functions and identifiers of a frame of the selected thread and of its caller, if they are known."""
        level, frame = 0, found_frame()
        while frame and (frame != selected or frame.type() == gdb.INLINE_FRAME):
            if frame == selected:
                selected = frame.older()
            level += frame.type() == gdb.NORMAL_FRAME
            frame = frame.older()
        kept = cls.stacks.get(gdb.selected_thread().global_num)
        if kept and not kept.alone:
            return [(frame.function, frame.identifier()) for frame in kept.frames[level : level + 2]]
        own = frame_id(frame)
        if own is None:
            return []
        stack, function = own
        return [(function, FrameId(stack, None, function))]

    def stack(self, pending, position, newest):
        """The frames of the selected thread; None at the halted state."""
        thread = gdb.selected_thread().global_num
        if newest and is_arm(pending.architecture()):
            try:
                choose_instruction_set(pending.read_register("isa"))
            except ValueError:
                pass
        kept = self.stacks.get(thread)
        # A search that was interrupted is repeated.
        if newest and (kept is None or kept.position != position or not (kept.frames or kept.alone)):
            kept = self.stacks[thread] = Stack(position) if position else None
        return kept


def shown_position(frame):
    """Returns the server's register `$position`; None if it has none, or in a trace frame."""
    try:
        return int(frame.read_register("position"))
    except (gdb.error, ValueError):
        return None


def hides_position(frame):
    """Returns whether `$position` is not passed on to this frame: it is not the newest."""
    try:
        return frame.read_register("position").is_optimized_out
    except (gdb.error, ValueError):
        return False


def is_simple(part):
    """Returns whether GDB can read the parts of a signal's frame. It ends at unknown memory."""
    for _ in SIMPLE_PARTS:
        head = memory(part, 8)
        if head is None or head[:4] == bytes(4):
            return True
        if int.from_bytes(head[:4], "little") not in SIMPLE_PARTS:
            return False
        part += int.from_bytes(head[4:], "little")
    return memory(part, 4) in (None, bytes(4))


def memory(address, length):
    """Reads memory; None if it is not known."""
    try:
        return bytes(gdb.selected_inferior().read_memory(address, length))
    except (gdb.error, OverflowError):
        return None


class Moved(gdb.Command):
    """Select the newest frame if the server has moved.
Usage: armsnap moved

armsnap runs it after `monitor`. GDB reads registers again when it is told to, but must not look for an
outer frame then."""

    def __init__(self):
        super().__init__("armsnap moved", gdb.COMMAND_SUPPORT)
        if not succeeds("help hookpost-monitor"):
            gdb.execute("define hookpost-monitor\narmsnap moved\nend")

    # No `dont_repeat`: an empty line repeats the command before.
    def invoke(self, argument, from_tty):
        thread = gdb.selected_thread()
        if thread is None:
            return
        # First: the selected frame is found by it.
        newest = found_frame()
        if gdb.selected_frame() == newest:
            return
        before = shown_position(newest)
        if before is not None and packet(f"qArmsnap.position:{thread.ptid[1]:x}") != f"{before:x}":
            gdb.newest_frame().select()


def ask_callers(known):
    """Requests the open calls of the selected thread until the server has finished."""
    for _ in range(QUESTIONS):
        reply = callers(gdb.selected_thread(), known)
        # "~": not finished. The user can press Ctrl-C between two requests.
        if reply != "~":
            break
    return reply


def callers(thread, known):
    """Requests the open calls, without the first `known` of them."""
    return packet(f"qArmsnap.callers:{thread.ptid[1]:x},{known:x}")


def alone(pending, pc):
    """Unwinds the only frame of a 32-bit core: GDB does not step without a stack pointer."""
    # GDB 10 fails if a caller that is the same frame looks like inlined code. There, debug
    # information says how to unwind. GDB looks up a caller's code at its pc - 1.
    if not is_arm(pending.architecture()) or is_inlined(int(pc)) or is_inlined(int(pc) - 1):
        return None
    found = pending.create_unwind_info(FrameId(0, 0, int(pc)))
    found.add_saved_register("pc", pc)
    return found


def unknown(pending):
    """Unwinds the frame of a thread of a 32-bit core without registers: GDB 13 expects a stack pointer."""
    return pending.create_unwind_info(FrameId(0, None, 0))


def interrupts_unknown_stack(pending):
    """Returns whether a frame of a Cortex-M stands for an exception in code on the process stack or in the other
    security state, and the pointer to that stack is not known."""
    try:
        pending.read_register("xpsr")
        code = int(pending.read_register("pc"))
    except (gdb.error, ValueError):
        return False
    if code >> 7 != EXC_RETURN:
        return False
    on_process_stack, changes_state = code & 1 << 2, (code ^ code >> 6) & 1
    return bool(
        on_process_stack and not uses(pending, "psp") or changes_state and not uses(pending, "psp_ns")
    )


def uses(frame, stack_pointer):
    """Returns whether GDB uses a stack pointer of a Cortex-M: it is known, as it is for all cores. Others have a
    group of their own."""
    try:
        others = [register.name for register in frame.architecture().registers("banked")]
    except (gdb.error, ValueError):
        others = []
    return stack_pointer not in others and knows(frame, stack_pointer)


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


Halted()
Stepping()
Moved()
gdb.events.stop.connect(find_frame)
gdb.events.stop.connect(Stepping.at_stop)
gdb.unwinder.register_unwinder(None, Callers(), True)
