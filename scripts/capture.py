"""Reads a halted system through GDB and writes it as a snapshot. Runs inside GDB, see make-testdata.

Arguments: the emulator's GDB socket, the name of the system. Writes into the current directory.
"""

import re
import sys
import traceback
from pathlib import Path

import gdb

AARCH64 = [f"x{n}" for n in range(31)] + ["sp", "pc", "cpsr", "fpsr", "fpcr"]
M_PROFILE = [f"r{n}" for n in range(13)] + ["sp", "lr", "pc", "xpsr", "fpscr"]

SYSTEMS = {
    "virt-a57": {
        "description": "Two Cortex-A57, halted: one prices orders, one waits for an interrupt",
        "type": "Cortex-A57",
        "registers": AARCH64,
        "vectors": [f"v{n}" for n in range(32)],
        "dumps": [("code", "code_begin", "code_end"), ("data", "data_begin", "data_end")],
    },
    "mps2-m4": {
        "description": "A Cortex-M4, halted in the service of an SVC exception",
        "type": "Cortex-M4",
        "registers": M_PROFILE,
        "vectors": [f"d{n}" for n in range(16)],
        "dumps": [
            ("code", "0", "&data_load + (&data_end - &data_begin)"),
            ("ram", "&data_begin", "&stack_top"),
            ("scs", "0xe000e000", "0xe000f000"),
        ],
    },
}

# QEMU uses AArch32 names for some AArch64 registers.
AARCH32_NAMES = re.compile(r"(ID_\w+|MVFR\d|SCTLR|CPACR|VBAR|CLIDR|CSSELR|AIDR|CNTKCTL|L2ACTLR)$")


def system_name(name):
    """The architecture's name, or None if the register is not written."""
    if re.search(r"RESERVED$|^RES_", name):
        return None
    # QEMU updates SP_EL1 only when the exception level changes.
    if name == "SP_EL1":
        return None
    if name == "AMAIR0":
        return "AMAIR_EL1"
    return name + "_EL1" if AARCH32_NAMES.match(name) and not re.search(r"_EL\d$", name) else name


def number(expression):
    return int(gdb.parse_and_eval(f"(unsigned long long)({expression})"))


def vector(name):
    """(value, bits) of a whole SIMD register."""
    if name[0] == "v":
        low, high = (number(f"${name}.d.u[{n}]") for n in (0, 1))
        return high << 64 | low, 128
    shown = gdb.execute(f"info registers {name}", to_string=True)
    return int(re.search(r"raw (0x[0-9a-f]+)", shown)[1], 16), 64


def core_file(core, system):
    lines = ["[device]", f"name={core}", "class=core", f"type={system['type']}", "", "[regs]"]
    shown = []
    known = set()
    wide = system["registers"] is AARCH64
    for name in system["registers"]:
        small = name in ("cpsr", "fpsr", "fpcr") or not wide
        value, digits = number(f"${name}"), 8 if small else 16
        key = "xPSR" if name == "xpsr" else name.upper()
        lines.append(f"{key}{'' if small else '(size:64)'}=0x{value:0{digits}X}")
        shown.append(f"{name} 0x{value:x}")
        known.add(name.upper())
    for name in system["vectors"]:
        value, bits = vector(name)
        lines.append(f"{name.upper()}(size:{bits})=0x{value:0{bits // 4}X}")
        shown.append(f"{name} 0x{value:x}")
        known.add(name.upper())
    architecture = gdb.selected_frame().architecture()
    # QEMU's group of system registers; an M-profile core has none.
    group = "cp_regs" if "cp_regs" in {g.name for g in architecture.register_groups()} else None
    system_registers = architecture.registers(group) if group else []
    for qemu_name in sorted({register.name for register in system_registers}):
        name = system_name(qemu_name)
        if name and name.upper() not in known:
            known.add(name.upper())
            lines.append(f"{name}(size:64)=0x{number(f'${qemu_name}'):016X}")
    return lines, shown


def main():
    socket, name = sys.argv[1:]
    system = SYSTEMS[name]
    for setting in ("pagination off", "width 0", "confirm off", "breakpoint pending off"):
        gdb.execute(f"set {setting}")
    gdb.execute(f"target remote {socket}")
    gdb.execute("break halt_here")
    gdb.execute("continue")

    inferior = gdb.selected_inferior()
    dumps = []
    for section, begin, end in system["dumps"]:
        address = number(begin if begin[0] in "0&" else f"&{begin}")
        length = number(end if end[0] in "0&" else f"&{end}") - address
        data = inferior.read_memory(address, length).tobytes()
        Path(f"{section}.bin").write_bytes(data)
        dumps += ["", f"[dump_{section}]", f"file={section}.bin", f"address=0x{address:08X}"]
        dumps += [f"length=0x{len(data):X}"]

    devices, threads = [], []
    for thread in sorted(inferior.threads(), key=lambda thread: thread.num):
        thread.switch()
        core = f"{system['type']}_{thread.num - 1}"
        lines, shown = core_file(core, system)
        Path(f"cpu_{thread.num - 1}.ini").write_text("\n".join(lines + dumps) + "\n")
        devices.append(f"device{thread.num}=cpu_{thread.num - 1}.ini")
        threads.append(f"{thread.num} {core} {gdb.selected_frame().name()}")

        expected = Path("expected") / core
        expected.mkdir(parents=True)
        (expected / "registers.txt").write_text("\n".join(shown) + "\n")
        for file, command in (
            ("bt", "bt"),
            ("bt-full", "bt -full"),
            ("args", "info args"),
            ("locals", "info locals"),
        ):
            (expected / f"{file}.txt").write_text(gdb.execute(command, to_string=True))

    Path("expected/threads.txt").write_text("\n".join(threads) + "\n")
    Path("snapshot.ini").write_text(
        "\n".join(
            ["[snapshot]", "version=1.0", f"description={system['description']}", ""]
            + ["[device_list]"]
            + devices
        )
        + "\n"
    )
    try:
        gdb.execute("kill")
    except gdb.error:
        # The emulator may end before it replies.
        pass


try:
    main()
except (gdb.error, KeyError, TypeError, ValueError, OSError):
    traceback.print_exc()
    gdb.execute("quit 1")
