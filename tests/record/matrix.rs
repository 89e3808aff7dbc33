//! Every program, recorded in every protocol and with every option: decoding the snapshot gives
//! exactly the instructions of the witness, and so does the reference decoder.

use crate::support::program::decode::{by_library, by_reference, cores};
use crate::support::program::record::{FIRST_ID, executed, record};
use crate::support::program::{End, Program, all, same};

const OPTIONS: &[&[&str]] = &[
    &[],
    &["--branch-broadcast"],
    &["--cycles"],
    &["--timestamps"],
    &["--cycles", "--timestamps", "--branch-broadcast"],
    &["--return-stack"],
    &["--sync", "64"],
    &["--last", "1000"],
];

macro_rules! programs {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn etmv4() {
                super::matrix(stringify!($name), "etmv4");
            }
            #[test]
            fn ptm() {
                super::matrix(stringify!($name), "ptm");
            }
            #[test]
            fn etmv3() {
                super::matrix(stringify!($name), "etmv3");
            }
        })*
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

programs! {
    cores_a15_bare_a15 cores_a64_bare_a64 crash_a32 crash_a64 crash_t32 deep_a32 deep_a64 deep_t32
    far_a64 far_arm_arm interwork_arm irq_a15_bare_a15 irq_a64_bare_a64 irq_m4_bare_m4 itblocks_arm
    pac_a64 recursion_a32 recursion_a64 recursion_t32 sensors_a64 signals_a32 signals_a64 signals_t32
    switches_a32 switches_a64 switches_t32 tables_a32 tables_a64 tables_t32 threads_a32 threads_a64
    threads_t32 turns_a15_bare_a15 turns_a64_bare_a64
}

/// Programs with a hundred million instructions, which have their own test.
const LONG: &str = "sieve";

#[test]
fn every_program_is_recorded() {
    let names: Vec<String> = all()
        .iter()
        .filter(|program| !program.name.starts_with(LONG))
        .map(|program| program.name.replace('-', "_"))
        .collect();
    assert_eq!(names, NAMES);
}

/// The recording's message on how the program ended.
fn ended(program: &Program) -> String {
    match (&program.machine, program.end) {
        (Some(_), _) => "halt_here".to_owned(),
        (None, End::Exit(status)) => format!("exit with status {status},"),
        (None, End::Signal(11)) => "SIGSEGV,".to_owned(),
        (None, End::Signal(signal)) => panic!("signal {signal}"),
    }
}

/// After a BLX (immediate) without an address after it, version 1.3.3 of the reference reads the
/// next P-header of an ETMv3 in the previous instruction set.
fn reference_follows(program: &Program, protocol: &str, options: &[&str]) -> bool {
    const EXCHANGE: [&str; 4] = [
        "cores-a15-bare-a15",
        "interwork-arm",
        "itblocks-arm",
        "turns-a15-bare-a15",
    ];
    protocol != "etmv3"
        || !EXCHANGE.contains(&&*program.name)
        || options.contains(&"--branch-broadcast")
}

/// Records a program in a protocol with each option, and compares the decoded instructions with those
/// executed.
fn matrix(name: &str, protocol: &str) {
    let program = all()
        .iter()
        .find(|p| p.name.replace('-', "_") == name)
        .unwrap();
    let code = program.code();
    for options in OPTIONS {
        let what = format!("{} {protocol} {options:?}", program.name);
        let working = tempfile::tempdir().unwrap();
        let snapshot = working.path().join("snapshot");
        let witness = working.path().join("witness");
        let options = [options, &["--protocol", protocol][..]].concat();
        let output = record(program, &snapshot, &witness, &options);
        let told = String::from_utf8_lossy(&output.stderr);
        let none = match protocol {
            "etmv3" => program.is_64bit(),
            // There is no PTM for Cortex-M.
            "ptm" => program.is_64bit() || program.name.ends_with("m4"),
            _ => false,
        };
        if none {
            let fault = format!("--protocol {protocol}: ");
            assert_eq!(output.status.code(), Some(2), "{what}: {told}");
            assert!(
                told.contains(&fault) && told.contains("use "),
                "{what}: {told}"
            );
            assert!(!snapshot.exists(), "{what}");
            return;
        }
        assert!(output.status.success(), "{what}: {told}");
        assert!(told.contains(&ended(program)), "{what}: {told}");
        let executed = executed(&witness);
        let cores = cores(&snapshot);
        assert_eq!(cores.len(), executed.len(), "{what}");
        for (core, id) in cores {
            let executed = &executed[&u32::from(id - FIRST_ID)];
            let mut decoded = Vec::new();
            let beside = by_library(&snapshot, &core, &code, &mut |address, isa| {
                assert_eq!(isa, code.isa(address), "{what}: {address:#x}");
                decoded.push(address);
                true
            });
            assert_eq!(beside.gaps, [], "{what}");
            // With the last bytes only, the trace contains the last instructions.
            let executed = if options.contains(&"--last") {
                assert!(!decoded.is_empty(), "{what}");
                &executed[executed.len().saturating_sub(decoded.len())..]
            } else {
                executed
            };
            same(&decoded, executed, &what);
            if !reference_follows(program, protocol, &options) {
                continue;
            }
            let mut read = Vec::new();
            let trouble = by_reference(&snapshot, id, &code, &mut |address, _| {
                read.push(address);
                true
            });
            assert_eq!(trouble, Vec::<String>::new(), "{what}");
            same(&read, executed, &format!("{what}: the reference"));
        }
    }
}
