"""Finds the signal that stopped a thread.

Follows armsnap.py.
"""

import re
import struct

import gdb

# A debugger stops a program with these.
OF_DEBUGGERS = ("SIGTRAP", "SIGINT", "SIGSTOP")


def signal_information():
    """Returns the kernel's `siginfo_t` of the selected thread as words; None if it is not known."""
    try:
        known = gdb.parse_and_eval("$_siginfo")
        words = [int(known[name]) for name in ("si_signo", "si_errno", "si_code")]
        fields = known["_sifields"]
        # Aligned like a pointer.
        if fields["_pad"].type.sizeof == 112:
            words.append(0)
        low, high = fields["_pad"].type.range()
        return words + [int(fields["_pad"][index]) for index in range(low, high + 1)]
    except (gdb.error, TypeError):
        return None


def signal_lines():
    """Returns lines of a device file with the signal that stopped the selected thread."""
    words = signal_information()
    if words and words[0] > 0:
        if words[0] == 5:
            return ""
        order = ">" if "big endian" in ask("show endian") else "<"
        digits = "".join(struct.pack(order + "i", word).hex() for word in words)
        return f"signal={words[0]}\nsiginfo={digits}\n"
    found = re.search(r"stopped (?:at|with) signal (SIG[A-Z0-9]+)", ask("info program"))
    if found:
        return "" if found[1] in OF_DEBUGGERS else f"signal={found[1]}\n"
    # Of a core file, the number in its system.
    number = gdb.convenience_variable("_exitsignal")
    if number is not None and int(number) not in (0, 5) and not is_remote():
        return f"signal={int(number)}\n"
    return ""
