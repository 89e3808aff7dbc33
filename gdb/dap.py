"""What GDB's debug adapter lacks for a history: moves back, positions, data breakpoints.

`armsnap dap` loads it in `gdb -i dap`, GDB 16 and later; the functions below are requests of the Debug
Adapter Protocol (https://microsoft.github.io/debug-adapter-protocol/specification). Follows adapter.py.
"""

import os
import re
import time

import gdb

# The commands that connect, in their order.
CONNECTS = []


class WhenAttached(gdb.Command):
    """Keep a command until the editor attaches.
Usage: armsnap when-attached COMMAND"""

    def __init__(self):
        super().__init__("armsnap when-attached", gdb.COMMAND_SUPPORT, gdb.COMPLETE_COMMAND)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        CONNECTS.append(argument)


def to_console(text):
    """Shows text in the editor's console."""
    if text:
        send_event("output", {"category": "console", "output": printable(text)})


def run_and_show(command, *rest, **named):
    """Runs a command that moves. What GDB says, such as the reason of a gap, goes to the console."""
    try:
        to_console(gdb.execute(command, from_tty=True, to_string=True))
    except gdb.error as error:
        # The response was sent before, so only an event shows that nothing runs.
        to_console(f"{error}\n")
        stop = {"reason": "error", "description": printable(str(error)), "allThreadsStopped": True}
        thread = gdb.selected_thread()
        send_event("stopped", {"threadId": thread.global_num if thread else 0, **stop})


run_moves_by(run_and_show)


# Attaching: `launch` and `attach` do the same.


def attach(**arguments):
    def connect_now():
        expect_process("attach")
        expect_stop("entry")
        for command in CONNECTS:
            try:
                to_console(gdb.execute(command, to_string=True))
            except gdb.error as error:
                raise DAPException(printable(str(error)))

    # As GDB's own requests do.
    return after_configuration(connect_now)


for start in ("attach", "launch"):
    replace(start)
    request(start, on_dap_thread=True)(attach)


# Ending. While GDB moves, its own requests wait for the target, possibly forever.

# Seconds that GDB has to quit by itself.
GRACE = 2


def end_soon():
    """Ends GDB, and with it the server that it started. There is nothing to save."""

    def end():
        time.sleep(GRACE)
        os._exit(0)

    gdb.Thread(target=end, daemon=True).start()


def disconnect(**extra):
    shut_down()
    end_soon()


for end in ("disconnect", "terminate"):
    replace(end)
    request(end, on_dap_thread=True, expect_stopped=False)(disconnect)


def read_message(stream):
    """Reads a request. Any other input ends the session: GDB's threads end then, and GDB would wait forever."""
    try:
        message = gdbs_read_message(stream)
        if message is not None:
            # Some editors write `null` where there are no arguments.
            message["arguments"] = message.get("arguments") or {}
            kinds = {"seq": int, "command": str, "arguments": dict}
            for name, kind in kinds.items():
                if not isinstance(message.get(name), kind):
                    raise ValueError(f'"{name}" is missing or of another type')
    except Exception as error:
        to_console(f"not a request of the Debug Adapter Protocol ({error!r}): armsnap dap ends\n")
        message = None
    if message is None:
        # The editor has gone.
        end_soon()
    return message


read_messages_by(read_message)


# Moving back.


def check_thread(number):
    """Answers a request for a thread that does not exist with an error."""
    if number not in [thread.global_num for each in gdb.inferiors() for thread in each.threads()]:
        raise DAPException(f"there is no thread {number}")


def move(thread, alone, command):
    def select():
        check_thread(thread)
        set_thread(thread)
        lock = "on" if alone else "off"
        gdb.execute(f"set scheduler-locking {lock}", to_string=True)
        gdb.newest_frame().select()

    # Errors are in the response; the move ends with an event.
    send_gdb_with_response(select)
    send_gdb(lambda: exec_and_expect_stop(command))


@capability("supportsStepBack")
@request("stepBack", on_dap_thread=True)
def step_back(*, threadId: int, singleThread: bool = False, granularity: str = "statement", **extra):
    command = "reverse-stepi" if granularity == "instruction" else "reverse-next"
    move(threadId, singleThread, command)


@request("reverseContinue", on_dap_thread=True)
def reverse_continue(*, threadId: int, singleThread: bool = False, **extra):
    move(threadId, singleThread, "reverse-continue")


gdbs_stack_trace = replace("stackTrace")


@request("stackTrace", on_dap_thread=True)
def stack_trace(*, threadId: int, **extra):
    send_gdb_with_response(lambda: check_thread(threadId))
    return gdbs_stack_trace(threadId=threadId, **extra)


# Positions.


def forget_references():
    """Forgets frames and variables that the editor knows, as GDB does when it moves."""
    forget_frames()
    forget_variables()


shows_move = show_move
forgets_memory = forget_memory


def show_move():
    """A move by `armsnap goto`, `armsnap find` or `goto`: the editor reads all anew."""
    shows_move()
    forget_references()
    thread = gdb.selected_thread()
    if thread:
        stop = {"reason": "goto", "threadId": thread.global_num, "allThreadsStopped": True}
        send_event("stopped", stop)


def forget_memory():
    """Values may have changed: `armsnap recover`, `armsnap memory`."""
    forgets_memory()
    forget_variables()
    send_event("invalidated", {"areas": ["variables"]})


class Targets:
    """Positions that the editor may go to, by number."""

    positions = []

    @classmethod
    def add(cls, position):
        cls.positions.append(position)
        return len(cls.positions)


def places_of(path, line):
    """Returns the places of a source line. Only the file's name is passed to GDB, because directories may contain
    quotes."""
    name = os.path.basename(path)
    if re.search("[\"'\n]", name):
        raise DAPException("a name with quotes or line ends cannot be passed to GDB")
    try:
        _, places = gdb.decode_line(f'"{name}":{line}')
    except gdb.error as error:
        raise DAPException(printable(str(error)))
    wanted = os.path.realpath(path)
    # If a line has no code, GDB returns the next line that has.
    return [
        place
        for place in places or ()
        if place.pc and place.line == line and os.path.realpath(place.symtab.fullname()) == wanted
    ]


@capability("supportsGotoTargetsRequest")
@request("gotoTargets")
def goto_targets(*, source, line: int, **extra):
    line = import_line(line)
    if "path" not in source:
        raise DAPException("the source has no path")
    places = places_of(source["path"], line)
    targets = []
    for way, label in (("back", "before"), ("", "after")):
        if not places:
            break
        wanted = ",".join(hex(place.pc) for place in places)
        position = position_in(monitor(f"find *{wanted} {way}"))
        if position:
            number = Targets.add(position)
            label = f"line {line} {label}, at {position}"
            target = {"id": number, "label": label, "line": export_line(line)}
            targets.append(target)
    return {"targets": targets}


@request("goto")
def goto(*, threadId: int, targetId: int, **extra):
    if not 0 < targetId <= len(Targets.positions):
        raise DAPException("unknown target")
    set_thread(threadId)
    show(monitor(f"goto {Targets.positions[targetId - 1]}"))


# The scope `armsnap`: where in history the thread is.


class Fact:
    """A name and a text, as a variable."""

    def __init__(self, name, text):
        self.name, self.text = name, text

    def to_object(self):
        return {"name": self.name, "value": printable(self.text), "variablesReference": 0}


class HistoryScope(Reference):
    """What `monitor where` shows."""

    def __init__(self, lines):
        super().__init__("armsnap")
        self.facts = []
        if "core" not in lines[0]:
            # The core has no history.
            self.add("core", lines[0]["text"])
        for line in lines:
            for name, text in line.items():
                if name != "text":
                    self.add(name, text)

    def add(self, name, text):
        taken = sum(fact.name.split(" ")[0] == name for fact in self.facts)
        self.facts.append(Fact(f"{name} {taken + 1}" if taken else name, text))

    def to_object(self):
        return {**super().to_object(), "expensive": False, "namedVariables": len(self.facts)}

    def has_children(self):
        return True

    def child_count(self):
        return len(self.facts)

    def fetch_one_child(self, index):
        return self.facts[index].name, gdb.Value(self.facts[index].text)

    def fetch_children(self, start, count):
        yield from self.facts[start : start + count if count else None]


gdbs_scopes = replace("scopes")


def history_scope(frame):
    # Selects the thread of the frame, too.
    frame_for_id(frame)
    lines = monitor("where")
    return [HistoryScope(lines).to_object()] if lines else []


@request("scopes", on_dap_thread=True)
def scopes(*, frameId: int, **extra):
    found = gdbs_scopes(frameId=frameId, **extra)
    found["scopes"] += send_gdb_with_response(lambda: history_scope(frameId))
    return found


# Data breakpoints. The name of one is an address and a size.

# By name and kind of access.
WATCHED = {}
ACCESSES = {"read": gdb.WP_READ, "write": gdb.WP_WRITE, "readWrite": gdb.WP_ACCESS}


def watched_value(name, reference, frame):
    """Returns the value of an expression, or of a variable in a structure."""
    if reference:
        return value_of_child(reference, name)
    if frame is not None:
        select_frame(frame)
    try:
        return gdb.parse_and_eval(name)
    except gdb.error as error:
        raise DAPException(printable(str(error)))


@capability("supportsDataBreakpoints")
@request("dataBreakpointInfo")
def data_breakpoint_info(*, name: str, variablesReference: int = 0, frameId=None, **extra):
    value = watched_value(name, variablesReference, frameId)
    if value.address is None:
        return {"dataId": None, "description": f"{name} is not in memory"}
    address, size = int(value.address) % (1 << 64), value.type.sizeof
    return {
        "dataId": f"{address:#x},{size}",
        "description": f"{name}: {size} bytes at {address:#x}",
        "accessTypes": list(ACCESSES),
        "canPersist": False,
    }


def watch(name, access):
    """Returns the watchpoint of a data breakpoint; GDB's commands have the same."""
    found = re.fullmatch(r"(0x[0-9a-f]+),([1-9][0-9]*)", name)
    if not found or access not in ACCESSES:
        raise DAPException(f"{name}: expected ADDRESS,SIZE")
    # A user may have deleted it in the console.
    if (name, access) not in WATCHED or not WATCHED[name, access].is_valid():
        expression = f"*(unsigned char (*)[{found[2]}]) {found[1]}"
        kind = {"type": gdb.BP_WATCHPOINT, "wp_class": ACCESSES[access]}
        WATCHED[name, access] = gdb.Breakpoint(expression, **kind)
    return WATCHED[name, access]


@request("setDataBreakpoints")
def set_data_breakpoints(*, breakpoints, **extra):
    kept, results = set(), []
    with suppress_new_breakpoint_event():
        for wanted in breakpoints:
            key = str(wanted.get("dataId")), wanted.get("accessType", "write")
            try:
                made = watch(*key)
                made.condition = wanted.get("condition")
                # An expression, as for GDB's other breakpoints.
                hits = gdb.parse_and_eval(wanted.get("hitCondition") or "0", global_context=True)
                made.ignore_count = int(hits)
                kept.add(key)
                results.append({"id": made.number, "verified": True})
            except (DAPException, ValueError, gdb.error) as error:
                results.append({"verified": False, "message": printable(str(error))})
        for key in set(WATCHED) - kept:
            watchpoint = WATCHED.pop(key)
            if watchpoint.is_valid():
                watchpoint.delete()
    return {"breakpoints": results}


# A snapshot cannot be changed.
for name in ("supportsSetVariable", "supportsSetExpression", "supportsWriteMemoryRequest"):
    without_capability(name)
# GDB 18 writes colour sequences into errors too, which an editor would show.
gdb.execute("set style enabled off")
WhenAttached()
