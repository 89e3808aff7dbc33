"""What GDB lacks where a core's program counter is known and nothing else.

For 64-bit Arm, GDB has all it needs. For 32-bit Arm it cannot tell one stack frame from another
without the stack pointer, nor Arm code from Thumb code without the CPSR: it refuses to step.
"""

import gdb
import gdb.unwinder


class FrameId:
    """A frame of which no stack address is known."""

    def __init__(self, pc):
        self.sp = gdb.Value(0)
        self.pc = pc


class PcAlone(gdb.unwinder.Unwinder):
    """The one frame that is known where the stack pointer is not: that of the pc."""

    def __init__(self):
        super().__init__("armsnap-pc-alone")

    def __call__(self, pending):
        if not is_arm(pending.architecture()):
            return None
        try:
            int(pending.read_register("sp"))
            return None
        except gdb.error:
            pass
        pc = pending.read_register("pc")
        # GDB 10 fails where a caller that is the same frame seems to be of inlined code. There
        # debug information tells how to unwind. A caller's code is looked for before its pc.
        if is_inlined(int(pc)) or is_inlined(int(pc) - 1):
            return None
        try:
            choose_instruction_set(pending.read_register("isa"))
        except ValueError:
            pass
        frame = pending.create_unwind_info(FrameId(pc))
        # A caller that is the same frame again: GDB stops there.
        frame.add_saved_register("pc", pc)
        return frame


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
    if gdb.parameter("arm fallback-mode") != mode:
        gdb.execute("set arm fallback-mode " + mode)


gdb.unwinder.register_unwinder(None, PcAlone(), True)
