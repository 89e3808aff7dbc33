//! Shared libraries at past positions: the server reports where they were loaded, so GDB does not
//! read the program's memory.

use std::process::Command;

use object::{Object, ObjectSection};

use crate::support::gdb::{
    ends_of_history, forget_registers, gdb_version, need_gdb, run, session, text,
};
use crate::support::record::{Guest, build, decoded};

const PROGRAM: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    static int compare(const void *a, const void *b)
    {
        return strcmp(a, b);
    }
    static int twice(int of)
    {
        int sum = of;
        sum += of;
        return sum;
    }
    int main(void)
    {
        char names[4][8] = { "wheel", "spoke", "frame", "bell" };
        qsort(names, 4, 8, compare);
        int sum = twice(3);
        sum += twice(4);
        *(volatile int *)8 = sum;
        return 0;
    }
"#;

/// A recorded program that crashed; `None` without a compiler for it.
fn recorded(architecture: &'static str, program: &str, options: &[&str]) -> Option<Guest> {
    need_gdb();
    let guest = build(architecture, "sort.c", program, options)?;
    let mut record = Command::new(crate::support::armsnap());
    record.args(["record", "--exit-zero", "-o"]);
    record.arg(guest.directory.path().join("saved"));
    let run = run(record.arg("--").arg(&guest.program));
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

/// The output of GDB without armsnap's commands.
fn plain(guest: &Guest, commands: &[&str]) -> String {
    let saved = guest.directory.path().join("saved");
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).arg(&guest.program);
    let libraries = saved.join("libraries");
    for setting in ["sysroot", "solib-search-path"] {
        gdb.args(["-iex", &format!("set {setting} {}", libraries.display())]);
    }
    gdb.arg("-ex").arg(format!(
        "target remote | exec {} serve --stdio {}",
        crate::support::armsnap(),
        saved.display()
    ));
    for command in commands {
        gdb.args(["-ex", command]);
    }
    text(&run(&mut gdb))
}

/// The distance from `main` to the entry DT_DEBUG of the dynamic section.
fn list_entry(guest: &Guest) -> u64 {
    let bytes = std::fs::read(&guest.program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section = file.section_by_name(".dynamic").unwrap();
    let (words, _) = section.data().unwrap().as_chunks::<8>();
    let mut tags = words.iter().step_by(2);
    let entry = tags.position(|tag| *tag == 21_u64.to_le_bytes()).unwrap();
    section.address() + 16 * entry as u64 - guest.symbol("main")
}

/// The output between two marks.
fn between<'t>(text: &'t str, first: &str, last: &str) -> &'t str {
    let inside = text.split(first).nth(1).and_then(|t| t.split(last).next());
    inside.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn libraries_stay_loaded_at_past_positions() {
    let Some(guest) = recorded("aarch64", PROGRAM, &["-O0"]) else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let commands = [
        "echo <1>\\n",
        "info sharedlibrary",
        "backtrace",
        "echo <2>\\n",
        &format!("set $entry = (long)&main + {}", list_entry(&guest)),
        "echo <debug>\\n",
        "x/gx $entry + 8",
        "armsnap find compare back",
        "echo <past>\\n",
        "x/gx $entry + 8",
        "x/gx $entry",
        "echo <3>\\n",
        "info sharedlibrary",
        "echo <4>\\n",
        "backtrace",
        "finish",
        "reverse-finish",
        "armsnap goto begin",
        "continue",
        "echo <5>\\n",
        "info sharedlibrary",
        "backtrace",
        "echo <6>\\n",
    ];
    let shown = session(&saved, &[], &commands);
    let list = between(&shown, "<1>\n", "#0 ");
    assert!(list.contains("libc.so.6"), "{shown}");
    assert!(list.contains("ld-linux-aarch64.so.1"), "{shown}");
    assert_eq!(between(&shown, "<3>\n", "<4>"), list, "{shown}");
    // Only the pointer to the list is shown even if it is unknown; other data of the linker is not.
    let pointer = between(&shown, "<debug>\n", "\n");
    let words = between(&shown, "<past>\n", "<3>");
    let mut lines = words.lines();
    assert_eq!(lines.next(), Some(pointer), "{shown}");
    let tag = lines.next().unwrap().trim_end();
    let is_right = tag.ends_with(':') || tag.ends_with("0x0000000000000015");
    assert!(is_right, "DT_DEBUG: {shown}");
    let past = between(&shown, "<4>\n", "<5>");
    assert!(past.contains("in qsort"), "{shown}");
    assert!(past.contains(" in main () at "), "{shown}");
    // At the end, everything is as before.
    let (end, first) = (
        between(&shown, "<5>\n", "<6>"),
        between(&shown, "<1>\n", "<2>"),
    );
    assert_eq!(end, first, "{shown}");
    assert!(!shown.contains("warning:"), "{shown}");
}

/// Even in a GDB without armsnap's commands.
#[test]
fn reverse_step_in_a_static_program_stays_near() {
    let Some(guest) = recorded("aarch64", PROGRAM, &["-O0", "-static"]) else {
        return;
    };
    let forget = forget_registers();
    let commands = [
        "break twice",
        "reverse-continue",
        forget,
        "stepi",
        "stepi",
        "echo <1>\\n",
        "reverse-step",
        "reverse-step",
        "echo <2>\\n",
    ];
    // GDB 17 and later need armsnap's commands.
    let shown = match gdb_version() {
        ..=16 => plain(&guest, &commands),
        _ => session(&guest.directory.path().join("saved"), &[], &commands),
    };
    let moved = between(&shown, "<1>\n", "<2>");
    assert!(moved.contains("main () at "), "{shown}");
    assert_eq!(ends_of_history(moved), 0, "{shown}");
}

const CHOSEN: &str = r#"
    #include <string.h>
    static char copy[64];
    __attribute__((noinline)) static size_t mine(const char *of) { return (size_t)CALL; }
    int main(int argc, char **argv)
    {
        size_t n = mine("a wheel");
        n += mine("spoke");
        *(volatile int *)8 = n;
        return 0;
    }
"#;

/// In glibc, `strlen` is one of several functions, chosen by a resolver when the program starts; in
/// that of 32-bit Arm `memcpy` is. GDB sets its breakpoint at the resolver, where GDB 13 crashed
/// because it found no caller.
fn stops_in_the_chosen_function(architecture: &'static str, options: &[&str]) {
    let options = [&["-O0", "-fno-builtin"], options].concat();
    let (function, call) = match architecture {
        "aarch64" => ("strlen", "strlen(of)"),
        _ => ("memcpy", "memcpy(copy, of, 6)"),
    };
    let source = CHOSEN.replace("CALL", call);
    let Some(guest) = recorded(architecture, &source, &options) else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let break_there = format!("break {function}");
    let commands = [
        &break_there,
        "reverse-continue",
        "printf \"<1>%#lx\\n\", $pc",
        "backtrace 2",
        "reverse-continue",
        "printf \"<2>%#lx\\n\", $pc",
        "reverse-stepi",
        "continue",
        "printf \"<3>%#lx\\n\", $pc",
    ];
    let shown = session(&saved, &[], &commands);
    let at = |shown: &str, mark: &str| {
        let pc = between(shown, mark, "\n").trim_start_matches("0x");
        u64::from_str_radix(pc, 16).unwrap()
    };
    let stopped = at(&shown, "<1>");
    assert!(
        between(&shown, "<1>", "<2>").contains(" in mine ("),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("breakpoint at {function}: the implementation")),
        "{shown}"
    );
    for mark in ["<2>", "<3>"] {
        assert_eq!(at(&shown, mark), stopped, "{shown}");
    }
    // `mine` called it through a PLT entry, which has three or four instructions.
    let executed = decoded(&saved).into_values().next().unwrap();
    let entered = executed
        .iter()
        .rposition(|place| place.address.0 == stopped)
        .unwrap();
    let mine = guest.symbol("mine") & 0xffe;
    let before = &executed[entered - 5..entered];
    let is_mine = |at: u64| (mine..mine + 64).contains(&(at & 0xfff));
    let caller = before.iter().position(|place| is_mine(place.address.0));
    assert!(caller.is_some_and(|at| at < 3), "{before:x?}");
    let bare = plain(&guest, &commands);
    for mark in ["<1>", "<2>", "<3>"] {
        assert_eq!(at(&bare, mark), stopped, "{bare}");
    }

    let found = session(
        &saved,
        &[],
        &[
            &format!("armsnap find {function} back"),
            "printf \"<1>%#lx\\n\", $pc",
            "armsnap goto end",
            &format!("monitor find {function} back"),
            &format!("armsnap find *{function} back"),
            "printf \"<4>%#lx\\n\", $pc",
        ],
    );
    assert_eq!(at(&found, "<1>"), stopped, "{found}");
    let told = found.lines().find(|line| line.ends_with(" goes there"));
    assert!(
        told.unwrap().contains(&format!(": {stopped:#x}")),
        "{found}"
    );
    // The resolver itself, by its address.
    assert_ne!(at(&found, "<4>"), stopped, "{found}");
}

#[test]
fn moves_stop_in_the_function_chosen_by_a_static_program() {
    stops_in_the_chosen_function("aarch64", &["-static"]);
}

#[test]
fn moves_stop_in_the_function_chosen_by_the_dynamic_linker() {
    stops_in_the_chosen_function("aarch64", &[]);
}

#[test]
fn moves_stop_in_the_function_chosen_by_a_static_program_of_32_bits() {
    stops_in_the_chosen_function("arm", &["-static"]);
}

#[test]
fn moves_stop_in_the_function_chosen_by_the_dynamic_linker_of_32_bits() {
    stops_in_the_chosen_function("arm", &[]);
}

/// A library without symbols calls back: its function calls what it is given, which calls it again.
const CALLBACK: &str = r#"
    __asm__(".pushsection .text\n .p2align 2\n"
            ".type before, %function\n before: ret\n .size before, . - before\n"
            ".Lwalk: stp x29, x30, [sp, #-16]!\n mov x29, sp\n blr x1\n ldp x29, x30, [sp], #16\n ret\n"
            ".popsection\n");
    void walk(int n, void (*each)(int)) __asm__(".Lwalk");
    volatile int total;
    __attribute__((noinline)) static void each(int n)
    {
        total += n;
        if (n > 0)
            walk(n - 1, each);
        total ^= 1; /* last line */
    }
    int main(void)
    {
        walk(3, each);
        *(volatile int *)8 = total;
        return 0;
    }
"#;

/// GDB alone would run to the address that the library returns to, which is not executed backward.
#[test]
fn moves_back_to_a_caller_without_symbols_stop_at_its_call() {
    let Some(guest) = recorded("aarch64", CALLBACK, &["-O0", "-static"]) else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let line = CALLBACK.lines().position(|line| line.contains("last line"));
    let last = format!("break sort.c:{}", line.unwrap() + 1);
    let commands = [
        &last,
        "reverse-continue",
        "echo <at>\\n",
        "backtrace",
        "echo <finish>\\n",
        "delete",
        "reverse-finish",
        "echo <called>\\n",
        "backtrace",
        "x/i $pc",
        "echo <step>\\n",
        "stepi",
        "reverse-step",
        "echo <stepped>\\n",
        "backtrace",
        "info breakpoints",
        "echo <end>\\n",
    ];
    let shown = session(&saved, &[], &commands);
    // The outermost call is the last one to get here.
    assert_eq!(
        between(&shown, "<at>\n", "<finish>").lines().count(),
        3,
        "{shown}"
    );
    let finish = between(&shown, "<finish>\n", "<called>");
    assert!(finish.contains(" in ?? ()\n"), "{shown}");
    assert!(!finish.contains("Breakpoint"), "{shown}");
    for (from, to) in [("<called>\n", "<step>"), ("<stepped>\n", "<end>")] {
        let there = between(&shown, from, to);
        let mut lines = there.lines();
        assert!(lines.next().unwrap().contains(" in ?? ()"), "{shown}");
        assert!(lines.next().unwrap().contains("main () at "), "{shown}");
    }
    assert!(
        between(&shown, "<called>\n", "<step>").contains("blr\tx1"),
        "{shown}"
    );
    assert!(shown.contains("No breakpoints or watchpoints."), "{shown}");
    assert_eq!(ends_of_history(&shown), 0, "{shown}");
}
