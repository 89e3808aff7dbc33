"""GDB's debug adapter, `gdb.dap`: all that armsnap uses of it, GDB 16 and later.

GDB does not document these modules, and changes them between versions, so no other file names anything in them.
dap.py uses what is imported and defined here. Follows past.py.
"""

import importlib

import gdb
from gdb.dap import breakpoint as adapter_breakpoints
from gdb.dap import events as adapter_events
from gdb.dap import frames as adapter_frames
from gdb.dap import launch as adapter_launch
from gdb.dap import scopes as adapter_scopes
from gdb.dap import varref as adapter_variables
from gdb.dap.startup import DAPException
from gdb.dap.state import set_thread

# `gdb.dap.server` is the running server: an object, not the module of that name.
adapter_server = importlib.import_module("gdb.dap.server")

# Decorators of a function that answers a request, and of one that makes a capability known.
request = adapter_server.request
capability = adapter_server.capability
send_event = adapter_server.send_event
# Reads a request from a stream.
gdbs_read_message = adapter_server.read_json
# Run a function in GDB's thread, without and with waiting for its result.
send_gdb = adapter_server.send_gdb
send_gdb_with_response = adapter_server.send_gdb_with_response
# Line numbers as GDB counts them, and as the editor does.
import_line = adapter_server.import_line
export_line = adapter_server.export_line
expect_process = adapter_events.expect_process
expect_stop = adapter_events.expect_stop
exec_and_expect_stop = adapter_events.exec_and_expect_stop
# By the number that the editor has of it; selects its thread.
frame_for_id = adapter_frames.frame_for_id
select_frame = adapter_frames.select_frame
suppress_new_breakpoint_event = adapter_breakpoints.suppress_new_breakpoint_event
# A scope or a variable with variables in it.
Reference = adapter_variables.BaseReference


def replace(name):
    """Removes a request of GDB, and returns its function."""
    return adapter_server._commands.pop(name)


def without_capability(name):
    """Withdraws a capability of GDB."""
    adapter_server._capabilities.pop(name, None)


def run_moves_by(function):
    """Sets the function that runs commands that move."""
    adapter_events.exec_and_log = function


def read_messages_by(function):
    """Sets the function that reads requests."""
    adapter_server.read_json = function


def after_configuration(function):
    """Answers a request by a function that runs in GDB's thread when the editor has set its breakpoints."""
    return adapter_launch._LaunchOrAttachDeferredRequest(lambda: send_gdb_with_response(function))


def shut_down():
    """Ends the adapter's threads."""
    adapter_server._server.shutdown()


def forget_variables():
    """Forgets the scopes and variables that the editor knows."""
    adapter_variables.clear_vars(None)
    adapter_scopes.clear_scopes(None)


def forget_frames():
    """Forgets the frames that the editor knows."""
    adapter_frames._clear_frame_ids(None)


def value_of_child(reference, name):
    """Returns the value of a variable in another one."""
    variable = adapter_variables.find_variable(reference).find_child_by_name(name)
    # Not by `or`: a value that is 0 counts as false.
    return variable.value if hasattr(variable, "value") else variable._value
