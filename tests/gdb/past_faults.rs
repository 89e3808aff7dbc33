//! What the commands report on values at past positions where none are known, or where the data
//! addresses recorded beside the trace cannot be used; and conditional returns and flags of the
//! floating-point unit in AArch32.

use super::past_values::{
    FIRST_STOP, MARKS, PROGRAM, SETS, in_order, past, recorded, recorded_for, recorded_with,
};
use crate::support::gdb::{armsnap, session, shared};
use crate::support::record::{Guest, forget_start};
use std::path::PathBuf;

/// A capture of Cortex-A15 cores with their system: nothing is known of their instructions.
const SYSTEM: &str = "tc2-ptm-rstk-t32";

#[test]
fn inferred_values_are_announced_where_they_are_shown() {
    let Some(guest) = recorded(MARKS, "-O0") else {
        return;
    };
    forget_start(&guest.directory.path().join("recorded"));
    for (back, announced) in [(1, false), (300, true)] {
        let steps = format!("reverse-stepi {back}");
        let text = past(
            &guest,
            &[
                &steps,
                "armsnap where",
                "echo <registers>\\n",
                "armsnap registers",
            ],
        );
        let (said, registers) = text.split_once("<registers>").unwrap();
        assert_eq!(registers.contains("inferred"), announced, "{back}: {text}");
        assert_eq!(text.contains(FIRST_STOP), announced, "{back}: {text}");
        assert_eq!(
            said.contains("hides inferred ones"),
            announced,
            "{back}: {text}"
        );
        let proved = said.contains("here all known registers are proved");
        assert_eq!(proved, !announced, "{back}: {text}");
    }
    let Some(system) = shared(SYSTEM) else { return };
    let text = session(
        &system,
        &[],
        &["reverse-stepi", "monitor where", "info registers"],
    );
    assert!(text.contains("no value but the pc is known here"), "{text}");
    assert!(!text.contains("inferred"), "{text}");
    assert!(text.contains("<unavailable>"), "{text}");
}

/// Records with data addresses; returns the file that holds them, too.
fn with_addresses(source: &str) -> Option<(Guest, PathBuf)> {
    let guest = recorded_with(SETS[0], source, "-O0", &["--data-addresses"])?;
    let directory = guest.directory.path().join("recorded");
    let ini = std::fs::read_to_string(directory.join("snapshot.ini")).unwrap();
    let (_, section) = ini.split_once("[data_addresses]").unwrap();
    let (_, name) = section
        .trim()
        .lines()
        .next()
        .unwrap()
        .split_once('=')
        .unwrap();
    Some((guest, directory.join(name.trim())))
}

#[test]
fn damaged_data_addresses_are_named() {
    let Some((guest, file)) = with_addresses(PROGRAM) else {
        return;
    };
    let name = file.file_name().unwrap().to_str().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let directory = guest.directory.path().join("recorded");
    let look = ["reverse-stepi 200", "armsnap where", "print $sp"];
    let sound = past(&guest, &look);
    assert!(!sound.contains("data addresses"), "{sound}");
    assert!(sound.contains("$1 = (void *) 0x"), "{sound}");

    // Cut: the index is missing. All commands name it, and values are found without it.
    std::fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    for command in ["check", "decode"] {
        let run = armsnap().arg(command).arg(&directory).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        let wanted = format!(
            "{name:?}: data addresses: at {:#x}: no index",
            whole.len() - 17
        );
        assert!(text.contains(&wanted), "{command}: {wanted}: {text}");
        assert!(text.contains("are not used"), "{command}: {text}");
        assert_eq!(run.status.success(), command == "decode", "{run:?}");
    }
    let text = past(&guest, &[&look[..], &["monitor info"]].concat());
    in_order(
        &text,
        &["$1 = (void *) 0x", "data addresses: at 0x", "are not used"],
    );

    // Further entries of the same core are not reported: the first one counts.
    let ini = directory.join("snapshot.ini");
    let described = std::fs::read_to_string(&ini).unwrap();
    let entry = format!("={name}\n");
    let core = described.split_once(&entry).unwrap().0;
    let core = core.rsplit_once('\n').unwrap().1;
    let again = format!("{core}{entry}").repeat(3);
    std::fs::write(&ini, format!("{described}\n[data_addresses]\n{again}")).unwrap();
    let run = armsnap().arg("check").arg(&directory).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert_eq!(text.matches("no index").count(), 1, "{text}");
    std::fs::write(&ini, described).unwrap();

    // Damage within the file is found when the addresses are read.
    let first = "armsnap data addresses 1\n".len();
    let mut damaged = whole.clone();
    damaged[first..first + 10].fill(0xff);
    std::fs::write(&file, &damaged).unwrap();
    let text = past(&guest, &look);
    let wanted = "recorded data addresses are not used: data addresses: at 0x22: a number of more than 64 bits";
    in_order(&text, &[wanted, "$1 = (void *) 0x"]);

    // The addresses of another execution.
    let other = PROGRAM.replace("i < 40", "i < 39");
    let (_other, others) = with_addresses(&other).unwrap();
    std::fs::copy(others, &file).unwrap();
    let text = past(&guest, &look);
    in_order(
        &text,
        &["they are of another execution", "$1 = (void *) 0x"],
    );
}

/// A loop that a conditional return ends, depending on values that are no longer known.
const RETURNS: &str = r#"
__attribute__((naked, noinline)) static void shuffle(int *values, int count)
{
    __asm__(".syntax unified\n"
            "push {r4, r5, r6, lr}\n"
            "1: ldr r4, [r0]\n"
            "eor r5, r4, r1\n"
            "str r5, [r0]\n"
            "mov r6, #0\n"
            "ldr r6, [r0]\n"
            "eor r6, r6, r1\n"
            "cmp r6, r4\n"
            "it lt\n"
            "poplt {r4, r5, r6, pc}\n"
            "subs r1, r1, #1\n"
            "it lt\n"
            "poplt {r4, r5, r6, pc}\n"
            "b 1b\n");
}
static int values[4];
void _start(void)
{
    for (int i = 0; i < 4; i++)
        shuffle(&values[i], 50);
    for (int i = 0; i < 4; i++)
        values[i] = 0;
    *(volatile int *)8 = 1;
}
"#;

#[test]
fn a_conditional_return_that_was_not_taken_keeps_the_stack_pointer() {
    for set in &SETS[1..] {
        let Some(guest) = recorded_for(*set, RETURNS, "-O0") else {
            return;
        };
        let text = past(
            &guest,
            &[
                "reverse-stepi 300",
                "info symbol $pc",
                "print $sp",
                "print $lr",
            ],
        );
        in_order(&text, &["shuffle", "$1 = (void *) 0x", "$2 = "]);
    }
}

/// The last comparison leaves its flags in FPSCR until the end.
const COMPARES: &str = r#"
static volatile double less = 1.5, more = 2.5;
static volatile int count;
void _start(void)
{
    for (int i = 0; i < 9; i++)
        if (less < more)
            count++;
    *(volatile int *)8 = 1;
}
"#;

#[test]
fn final_floating_point_flags_agree_with_the_last_comparison() {
    for set in &SETS[1..] {
        let Some(guest) = recorded_for(*set, COMPARES, "-O0") else {
            return;
        };
        let text = past(&guest, &["reverse-stepi 60", "armsnap where", "print $sp"]);
        assert!(!text.contains("also written"), "{text}");
        assert!(text.contains("$1 = (void *) 0x"), "{text}");
    }
}
