//! `monitor` commands: functions that debuggers have no commands for.
//!
//! `monitor json THREAD COMMAND` is for programs: it runs the command for that thread, and prints each line
//! as a JSON object, whose fields say what the line says ([`output`]).

mod ask;
mod calls;
mod console;
mod fault;
mod history;
mod linux;
mod memory;
mod output;
mod peripherals;
mod recover;
mod registers;
mod space;
mod tasks;
mod translate;
mod why;

use gdbstub::common::Tid;

use self::output::Output;
use super::target::SnapshotTarget;
use armsnap_snapshot::stop::Cancel;

const HELP: &str = "\
monitor help                   this list
monitor info                   the snapshot, its cores, their memory, and notes on them
monitor registers [PATTERN]    registers of this core, at past positions with their status; PATTERN
                               with * and ?, or a part of the name
monitor fault                  why this core faulted: its fault registers in words, the instruction,
                               the address
monitor svd [NAME]             registers of a peripheral: UART0, UART0.SR, or all peripherals; needs
                               --svd FILE
monitor console [N]            the text that software wrote to an ITM or STM: its last N lines
                               (default 40)
monitor where                  the position in history: its time, and notes on reliability
monitor history [N]            N positions before this one and after it (default 10)
monitor calls [N]              the last N calls to this position, nested (default 40); * is open
monitor goto POSITION          go there; also begin, end, time T, cycle N
monitor find WHAT [back]       the next visit of an address or a function, or the one before
monitor exceptions [N]         N exceptions before this position and after it (default 20)
monitor memory [MODE]          at past positions: final (memory as at the end), unavailable
                               (memory that may have been written since is not shown)
monitor recover [LEVEL]        which values are shown at past positions: proved, inferred (these too),
                               off; and what ends proof
monitor why REGISTER|0xADDRESS where a value came from: the instructions, from the nearest on
monitor uses REGISTER          what became of a value: the instructions that used it
monitor ask QUESTION           asks about the whole history of this core: calls, accesses, variable,
                               values, memory, why, as `armsnap ask`; here is this position
monitor space                  where memory is read now, and where else it can be
monitor space NAME             read memory of that address space, or of that memory device
monitor space ttbr0=0xTABLE    read memory as another process: by its translation table, or that of
                               asid=N, if a core runs it; also ttbr1=
monitor space current          follow the state of each core again
monitor translate 0xADDRESS    where physical memory has a virtual address: each step of the walk
monitor maps [0xADDRESS]       the mapped ranges from an address on
monitor dmesg [N]              the log of a Linux kernel in physical memory, or its last N records
monitor tasks                  the tasks of a real-time operating system: thread, state, priority,
                               stack, name; or of a Linux kernel: ID, process, state, kernel
                               stack, name
monitor task PID               where a task sleeps: its back trace in the kernel
monitor trace                  the trace frames: their core, their number, and notes on them
monitor trace NAME             select the trace of that core for tfind
";

/// Message shown when there is no such thread.
const NO_CORE: &str = "no core is selected\n";

/// Message shown when a command is interrupted.
pub(super) const STOPPED: &str = "interrupted before the end of the trace\n";

/// Runs a command unless cancelled. Returns text for the user's terminal, or JSON.
pub(super) fn run(target: &mut SnapshotTarget, command: &str, cancel: &Cancel) -> String {
    match for_program(command) {
        Some((thread, command)) => {
            let selected = target.selection;
            // Zero stands for the user's thread.
            match Tid::new(thread) {
                Some(thread) if target.core(thread).is_none() => {
                    return Output::from(NO_CORE.to_owned()).to_json();
                }
                Some(thread) => target.selection.asks_for(thread),
                None => {}
            }
            let output = answer(target, command, cancel);
            target.selection = selected;
            output.to_json()
        }
        None => answer(target, command, cancel).to_text(),
    }
}

/// Returns the number of the thread and the command in `json THREAD COMMAND`.
fn for_program(command: &str) -> Option<(usize, &str)> {
    let rest = command.trim().strip_prefix("json ")?;
    let (thread, command) = rest.split_once(' ')?;
    Some((thread.parse().ok()?, command))
}

fn answer(target: &mut SnapshotTarget, command: &str, cancel: &Cancel) -> Output {
    let (name, rest) = match command.trim().split_once(char::is_whitespace) {
        Some((name, rest)) => (name, rest.trim()),
        None => (command.trim(), ""),
    };
    let looks_at_history = matches!(
        name,
        "where" | "history" | "calls" | "goto" | "find" | "exceptions" | "why" | "uses" | "ask"
    );
    if looks_at_history && !target.positions.reach_end(target.selection.user(), cancel) {
        return STOPPED.to_owned().into();
    }
    if target.core(target.selection.user()).is_none() {
        return NO_CORE.to_owned().into();
    }
    let text = match name {
        "where" => return history::position(target, cancel),
        "goto" => return history::goto(target, rest, cancel),
        "find" => return history::find(target, rest, cancel),
        "memory" => return memory::run(target, rest),
        "recover" => return recover::run(target, rest),
        "why" => return why::origin(target, rest, cancel),
        "uses" => return why::uses(target, rest, cancel),
        "ask" => return ask::run(target, rest, cancel),
        "space" => return space::run(target, rest),
        "" | "help" => HELP.to_owned(),
        "info" => target.endpoint.info(),
        "history" => history::around(target, rest),
        "calls" => calls::run(target, rest),
        "exceptions" => history::exceptions(target, rest),
        "fault" => fault::run(target),
        "svd" => peripherals::run(target, rest),
        "console" => console::run(target, rest),
        "registers" => registers::run(target, rest, cancel),
        "translate" => translate::translate(target, rest),
        "maps" => translate::maps(target, rest),
        "dmesg" => linux::dmesg(target, rest),
        "tasks" => tasks::run(target).unwrap_or_else(|| linux::tasks(target)),
        "task" => linux::task(target, rest),
        "trace" => super::tracepoints::monitor(target, rest),
        _ => format!("no command {name:?}\n{HELP}"),
    };
    text.into()
}
