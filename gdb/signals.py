"""Finds the signal that stopped a thread.

Follows armsnap.py.
"""

import struct

import gdb

# A debugger stops a program with these.
OF_DEBUGGERS = ("SIGTRAP", "SIGINT", "SIGSTOP")


def signal_information():
    """Returns the kernel's `siginfo_t` of the selected thread: its words, and their byte order for `struct`; None if
    it is not known."""
    try:
        known = gdb.parse_and_eval("$_siginfo")
        words = [int(known[name]) for name in ("si_signo", "si_errno", "si_code")]
        little = int(gdb.Value(b"\1\0\0\0", known["si_signo"].type)) == 1
        fields = known["_sifields"]
        # Aligned like a pointer.
        if fields["_pad"].type.sizeof == 112:
            words.append(0)
        low, high = fields["_pad"].type.range()
        words += [int(fields["_pad"][index]) for index in range(low, high + 1)]
        return words, "<" if little else ">"
    except (gdb.error, TypeError):
        return None


def signal_lines():
    """Returns lines of a device file with the signal that stopped the selected thread."""
    words, order = signal_information() or ([0], "<")
    if words[0] > 0:
        if words[0] == 5:
            return ""
        digits = "".join(struct.pack(order + "i", word).hex() for word in words)
        return f"signal={words[0]}\nsiginfo={digits}\n"
    name = stop_signal()
    if name:
        return "" if name in OF_DEBUGGERS else f"signal={name}\n"
    # Of a core file, the number in its system.
    number = gdb.convenience_variable("_exitsignal")
    if number is not None and int(number) not in (0, 5) and not is_remote():
        return f"signal={int(number)}\n"
    return ""
