"""Writes what GDB shows at some places of a program, in the emulator or of its past.

`plan` is the path of a JSON file: `live`, `threads`, `bytes`, `out`, `places`, and `globals`, pairs of an
address and a number of bytes. A place of a live program is reached by running to addresses, each some number
of times (`way`; with threads, of times since the start). One of the past is a core and a position, and
`memory` lists the addresses of words there.
"""

import json

import gdb

# The fields of a structure, elements of an array and structures behind pointers that are looked at.
MOST = 8
DEPTH = 3
FRAMES = 10
# Around the stack pointer, and behind each register.
BELOW, ABOVE, BEHIND = 8, 48, 3
STRUCTURES = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
KINDS = {gdb.SIGTRAMP_FRAME: "signal", gdb.INLINE_FRAME: "inlined", gdb.TAILCALL_FRAME: "tail call"}
REFERENCES = (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF)


def text(value):
    """Returns a scalar as text, or None if it is not known."""
    try:
        if value.is_optimized_out:
            return None
        kind = value.type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR:
            return hex(int(value))
        shown = value.format_string()
    except (gdb.error, ValueError, OverflowError):
        return None
    return None if "<" in shown and ">" in shown else shown


def leaves(out, name, value, depth=DEPTH, behind=True):
    """Adds the scalars of a value to `out`, by their path."""
    try:
        kind = value.type.strip_typedefs()
        if kind.code in REFERENCES:
            return leaves(out, name, value.referenced_value(), depth, behind)
        if kind.code in STRUCTURES and depth:
            fields = [field for field in kind.fields() if hasattr(field, "bitpos")]
            for number, field in enumerate(fields[:MOST]):
                leaves(out, f"{name}.{field.name or number}", value[field], depth - 1, behind)
            return None
        if kind.code == gdb.TYPE_CODE_ARRAY and depth:
            low, high = kind.range()
            for index in range(low, min(high, low + MOST - 1) + 1):
                leaves(out, f"{name}[{index}]", value[index], depth - 1, behind)
            return None
        if kind.code == gdb.TYPE_CODE_STRUCT or kind.code == gdb.TYPE_CODE_ARRAY:
            return None
        out[name] = text(value)
        if kind.code == gdb.TYPE_CODE_PTR and depth and behind and out[name] not in (None, "0x0"):
            target = kind.target().strip_typedefs()
            if target.code not in (gdb.TYPE_CODE_VOID, gdb.TYPE_CODE_FUNC):
                leaves(out, f"*{name}", value.dereference(), depth - 1, False)
    except (gdb.error, ValueError, RuntimeError, OverflowError):
        out.setdefault(name, None)
    return None


def variables(frame):
    """Returns the scalars of the arguments and locals of a frame."""
    out = {}
    try:
        block = frame.block()
    except RuntimeError:
        return out
    while block and not block.is_static and not block.is_global:
        for symbol in block:
            if not (symbol.is_argument or symbol.is_variable):
                continue
            name = f"{symbol.name}@{symbol.line}"
            if name in out:
                continue
            try:
                leaves(out, name, frame.read_var(symbol, block))
            except (gdb.error, RuntimeError):
                out[name] = None
            if symbol.is_argument:
                try:
                    frame.select()
                    leaves(out, f"{symbol.name}@entry", gdb.parse_and_eval(f"{symbol.name}@entry"))
                except gdb.error:
                    pass
        if block.function:
            break
        block = block.superblock
    return out


def register(frame, name):
    try:
        value = frame.read_register(name)
        if value.is_optimized_out:
            return None
        if name.startswith("v"):
            halves = value["d"]["u"]
            return hex(int(halves[1]) << 64 | int(halves[0]))
        if name.startswith("d"):
            bits = value["u64"] if value.type.strip_typedefs().code in STRUCTURES else value
            shown = bits.format_string(format="z")
            return None if shown.startswith("<") else shown
        return hex(int(value) & (1 << 8 * value.type.sizeof) - 1)
    except (gdb.error, ValueError):
        return None


def frames(names, saved):
    out = []
    frame = gdb.newest_frame()
    while frame and len(out) < FRAMES:
        wanted = saved if out else names
        try:
            pc = frame.pc()
        except gdb.error:
            break
        out.append({
            "pc": pc,
            "name": frame.name(),
            "kind": KINDS.get(frame.type(), "normal"),
            "registers": {name: register(frame, name) for name in wanted},
            "values": variables(frame),
        })
        try:
            frame = frame.older()
        except gdb.error:
            break
    gdb.newest_frame().select()
    return out


def words(addresses):
    """Returns the words at some addresses, by address, as hex; None where it is not known."""
    inferior = gdb.selected_inferior()

    def read(address, count):
        try:
            return bytes(inferior.read_memory(address, count))
        except (gdb.error, OverflowError):
            return None

    out = {}
    for address in addresses:
        word = read(address, 8)
        if word is None and plan["bytes"]:
            for at in range(address, address + 8):
                byte = read(at, 1)
                out[f"{at:#x}/1"] = byte and byte.hex()
        else:
            out[f"{address:#x}/8"] = word and word.hex()
    return out


def interesting(registers, stack):
    """Returns the addresses of words that may have been written."""
    out = set()
    for value in registers.values():
        if value:
            start = int(value, 16) & ~7
            out.update(start + 8 * number for number in range(BEHIND))
    start = int(registers[stack], 16) & ~7
    out.update(start + 8 * number for number in range(0 if plan["threads"] else -BELOW, ABOVE))
    for address, count in plan["globals"]:
        out.update(range(address & ~7, address + count, 8))
    return sorted(address for address in out if 4096 <= address < 1 << 48)


def look(place):
    architecture = gdb.newest_frame().architecture().name()
    if architecture.startswith("aarch64"):
        general = [f"x{number}" for number in range(31)]
        others = [f"v{number}" for number in range(32)] + ["cpsr"]
        saved = [f"x{number}" for number in range(19, 29)] + ["sp"]
    else:
        general = [f"r{number}" for number in range(13)] + ["lr"]
        others = [f"d{number}" for number in range(16)] + ["cpsr"]
        saved = [f"r{number}" for number in range(4, 12)] + ["sp"]
    if plan["threads"]:
        # What libc left in the others depends on which thread waited.
        general = saved[:-1]
        others = []
    found = frames(general + ["sp", "pc"] + others, saved)
    first = found[0]["registers"]
    if plan["live"]:
        pointers = {} if plan["threads"] else {name: first[name] for name in general}
        pointers["sp"] = first["sp"]
        place["memory"] = interesting(pointers, "sp")
    return {"number": place["number"], "position": place.get("position"), "frames": found, "memory": words(place["memory"]),
            "addresses": place["memory"]}


def reach(way):
    """Runs to addresses, each some number of times."""
    for address, count in way:
        stop = gdb.Breakpoint(f"*{address:#x}", internal=True)
        stop.ignore_count = count - 1
        said = gdb.execute("continue", to_string=True)
        stop.delete()
        if gdb.newest_frame().pc() != address:
            raise gdb.error(f"stopped at {gdb.newest_frame().pc():#x}, not {address:#x}: {said}")


def reach_in_any_order(places):
    """Looks at places that are each the so manieth time at an address, in the order of execution."""
    stops, wanted = {}, {}
    for place in places:
        [[address, count]] = place["way"]
        wanted.setdefault(address, []).append((count, place))
    for address, at in wanted.items():
        at.sort(key=lambda pair: pair[0])
        stops[address] = gdb.Breakpoint(f"*{address:#x}", internal=True)
        stops[address].ignore_count = at[0][0] - 1
    while stops:
        gdb.execute("continue", to_string=True)
        address = gdb.newest_frame().pc()
        count, place = wanted[address].pop(0)
        yield look(place)
        if wanted[address]:
            stops[address].ignore_count = wanted[address][0][0] - count - 1
        else:
            stops.pop(address).delete()


def go(place):
    """Goes to a place of the past."""
    for thread in gdb.selected_inferior().threads():
        if thread.name == place["core"]:
            command = f"thread {thread.num}"
            try:
                gdb.execute(command, to_string=True)
            except gdb.error:
                # GDB's first attempt to find a frame of AArch32 fails where CPSR is not known.
                gdb.execute(command, to_string=True)
    gdb.execute(f"armsnap goto {place['position']}", to_string=True)
    gone = gdb.execute("armsnap where", to_string=True).split("\n")[0]
    if gone.split(",")[0] != f"{place['core']} at {place['position']}":
        raise gdb.error(f"went to {gone}, not to {place}")


def run():
    out = []
    try:
        if plan["live"] and plan["threads"]:
            out.extend(reach_in_any_order(plan["places"]))
        else:
            for place in plan["places"]:
                if plan["live"]:
                    reach(place["way"])
                else:
                    go(place)
                out.append(look(place))
    except (gdb.error, KeyError) as error:
        print(f"after {len(out)} places: {error}")
    with open(plan["out"], "w") as file:
        json.dump(out, file)


for setting in ("confirm off", "pagination off", "width 0", "print elements 8", "print symbol off",
                "backtrace past-main on", "max-completions 0"):
    gdb.execute(f"set {setting}")
gdb.execute("handle all nostop noprint pass", to_string=True)
with open(plan) as file:
    plan = json.load(file)
run()
