//! `armsnap record --system`: the trace of bare-metal programs with interrupts and several cores
//! decodes to exactly what they executed.

mod program_support;
mod record_support;

use armsnap::encode::Place;
use armsnap::quantity::{Address, Isa};
use program_support::{Code, Program, program};
use record_support::{installed, places};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const EMULATORS: [&str; 2] = ["qemu-system-aarch64", "qemu-system-arm"];

/// `armsnap record` of a program on its machine.
fn record(program: &Program, output: &Path, options: &[&str]) -> Output {
    let mut machine = program.machine.as_ref().unwrap().iter();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_armsnap"), "record"]);
    command.arg("--system").arg(machine.next().unwrap());
    for option in machine {
        // -cpu, -smp: the same names with one more dash.
        let dash = if option.starts_with('-') { "-" } else { "" };
        command.arg(format!("{dash}{option}"));
    }
    command.arg("-o").arg(output).args(options);
    command.arg("--").arg(&program.elf).stdin(Stdio::null());
    command.output().unwrap()
}

/// The instructions that the trace of each core decodes to, and its exceptions by name.
fn decoded(snapshot: &Path, source: &str, code: &Code) -> (Vec<Place>, Vec<String>) {
    let run = Command::new(env!("CARGO_BIN_EXE_armsnap"))
        .args(["decode", "--format", "jsonl", "--source", source])
        .arg(snapshot)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let (mut places, mut exceptions) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&run.stdout).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap();
        match text("kind") {
            "range" => {
                let hex = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap();
                let isa = match text("isa") {
                    "A64" => Isa::A64,
                    "A32" => Isa::A32,
                    _ => Isa::T32,
                };
                let (mut here, end) = (hex(text("start")), hex(text("end")));
                while here < end {
                    let address = Address(here);
                    places.push(Place { address, isa });
                    here += code.length(here, isa);
                }
            }
            "exception" => exceptions.push(text("name").to_owned()),
            "memory_missing" => panic!("{line}"),
            _ => {}
        }
    }
    (places, exceptions)
}

/// Records a program with these options: the trace of each core is what the witness says. The
/// exceptions of the first core.
fn exact(name: &str, protocol: &str, options: &[&str]) -> Option<Vec<String>> {
    if !installed(&EMULATORS) {
        return None;
    }
    let program = program(name);
    let directory = tempfile::tempdir().unwrap();
    let (output, witness) = (
        directory.path().join("out"),
        directory.path().join("witness"),
    );
    let mut arguments = vec![
        "--protocol",
        protocol,
        "--witness",
        witness.to_str().unwrap(),
    ];
    arguments.extend(options);
    let run = record(program, &output, &arguments);
    let what = format!("{name} {protocol} {options:?}");
    assert!(run.status.success(), "{what}: {run:?}");
    let code = program.code();
    let mut first = None;
    for (core, executed) in places(&witness) {
        let source = format!("{}_{core}", protocol.to_uppercase());
        let (found, exceptions) = decoded(&output, &source, &code);
        let same = found
            .iter()
            .zip(&executed)
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            found == executed,
            "{what}: {source}: {same} of {} agree, decoded {:x?}, executed {:x?}",
            executed.len(),
            found.get(same.saturating_sub(2)..(same + 3).min(found.len())),
            executed.get(same.saturating_sub(2)..(same + 3).min(executed.len())),
        );
        assert!(found.len() > 100, "{what}: {}", found.len());
        first.get_or_insert(exceptions);
    }
    first
}

fn count(exceptions: &[String], name: &str) -> usize {
    exceptions.iter().filter(|found| *found == name).count()
}

#[test]
fn interrupts_calls_and_faults_of_a_cortex_a57() {
    let Some(exceptions) = exact("irq-a64-bare-a64", "etmv4", &["--return-stack"]) else {
        return;
    };
    for name in ["IRQ", "call", "data fault"] {
        assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
    }
}

#[test]
fn interrupts_calls_and_faults_of_a_cortex_a15() {
    for (protocol, call, fault) in [
        ("etmv4", "call", "data fault"),
        ("ptm", "SVC", "Synchronous data abort"),
        ("etmv3", "SVC", "Synchronous data abort"),
    ] {
        let Some(exceptions) = exact("irq-a15-bare-a15", protocol, &["--sync", "500"]) else {
            return;
        };
        for name in ["IRQ", call, fault] {
            assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
        }
    }
}

#[test]
fn exceptions_of_a_cortex_m4() {
    for protocol in ["etmv4", "etmv3"] {
        for options in [
            &["--sync", "100"][..],
            &["--cycles", "--timestamps"],
            &["--branch-broadcast"],
        ] {
            let Some(exceptions) = exact("irq-m4-bare-m4", protocol, options) else {
                return;
            };
            for name in ["SysTick", "SVC", "PendSV", "BusFault"] {
                assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
            }
        }
    }
}

#[test]
fn two_cores() {
    for options in [&[][..], &["--timestamps"], &["--cycles", "--sync", "64"]] {
        exact("cores-a64-bare-a64", "etmv4", options);
        for protocol in ["etmv4", "ptm", "etmv3"] {
            exact("cores-a15-bare-a15", protocol, options);
        }
    }
}
