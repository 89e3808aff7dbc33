//! The MTB of small Cortex-M: packets made of what a core executed give it back.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::program::record::Recording;
use crate::support::program::{Code, program};
use crate::support::record::{decoded, installed, places};
use armsnap::encode::{CodeAddress, TAIL_CHAIN};
use armsnap::quantity::Isa;
use armsnap::record::witness::{Reader, Record};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// EXC_RETURN to Thread mode with the main stack (Armv7-M ARM DDI 0403, B1.5.8).
const EXC_RETURN: u32 = 0xFFFF_FFF9;
const RAM: u64 = 0x2000_0000;
/// Beyond what the program uses.
const RING: u64 = 0x10_0000;

/// The words of the packets of an execution, and for each the number of instructions that were
/// executed before it. The core halts at `pc`.
fn packets(witness: &Path, code: &Code, pc: u32) -> Vec<([u32; 2], usize)> {
    let mut reader = Reader::new(BufReader::new(File::open(witness).unwrap())).unwrap();
    let mut out: Vec<([u32; 2], usize)> = Vec::new();
    let mut count = 0;
    // The last instruction, the address after it, and where an exception returns to.
    let (mut last, mut after) = (None, None);
    let mut taken: Option<u32> = None;
    let mut returns: Vec<u32> = Vec::new();
    let branch = |from: u32, to: u32, count: usize, returns: &mut Vec<u32>, out: &mut Vec<_>| {
        if returns.last() == Some(&to) {
            returns.pop();
            out.push(([from, EXC_RETURN & !1], count));
            out.push(([EXC_RETURN, to], count));
        } else {
            out.push(([from, to], count));
        }
    };
    while let Some(record) = reader.read().unwrap() {
        match record {
            Record::Ran {
                block,
                count: some,
                times,
                ..
            } => {
                let places: Vec<CodeAddress> =
                    reader.block(block).unwrap().places().take(some).collect();
                for _ in 0..times {
                    for place in &places {
                        let here = place.address.0 as u32;
                        if let Some(source) = taken.take() {
                            out.push(([source | 1, here], count));
                        } else if let (Some(last), true) =
                            (last, after.is_some_and(|after| after != here))
                        {
                            branch(last, here, count, &mut returns, &mut out);
                        }
                        count += 1;
                        last = Some(here);
                        after = Some(here + code.length(here.into(), Isa::T32) as u32);
                    }
                }
            }
            Record::Exception { return_to, .. } if return_to == TAIL_CHAIN => {
                out.push(([last.unwrap(), EXC_RETURN & !1], count));
                taken = Some(EXC_RETURN & !1);
            }
            Record::Exception { return_to, .. } => {
                let to = return_to.address.0 as u32;
                if let (Some(last), true) = (last, after.is_some_and(|after| after != to)) {
                    branch(last, to, count, &mut returns, &mut out);
                }
                taken = Some(to);
                returns.push(to);
            }
        }
    }
    if let (Some(last), true) = (last, after != Some(pc)) {
        branch(last, pc, count, &mut returns, &mut out);
    }
    out[0].0[1] |= 1;
    out
}

/// A dump of RAM in which a ring of `size` bytes at `RING` has the packets, and POSITION.
fn ram(packets: &[([u32; 2], usize)], size: usize, file: &Path) -> u64 {
    let mut bytes = vec![0xA5; RING as usize + size];
    for (index, (words, _)) in packets.iter().enumerate() {
        let at = RING as usize + 8 * index % size;
        for (word, place) in words.iter().zip([at, at + 4]) {
            bytes[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    fs::write(file, bytes).unwrap();
    let wraps = u64::from(8 * packets.len() >= size);
    (RING + (8 * packets.len() % size) as u64) | (wraps << 2)
}

struct Executed {
    recording: Recording,
    elf: PathBuf,
    packets: Vec<([u32; 2], usize)>,
    places: Vec<CodeAddress>,
    pc: u64,
}

fn executed() -> Option<Executed> {
    if !installed(&["qemu-system-arm"]) {
        return None;
    }
    let program = program("irq-m4-bare-m4");
    let recording = Recording::of(program, &["--protocol", "etmv4"]);
    let places = places(&recording.witness()).remove(&0).unwrap();
    let ini = fs::read_to_string(recording.snapshot().join("cpu_0.ini")).unwrap();
    let pc = ini
        .lines()
        .find_map(|line| line.strip_prefix("PC"))
        .unwrap();
    let pc = u64::from_str_radix(pc.split("0x").nth(1).unwrap(), 16).unwrap();
    let packets = packets(&recording.witness(), &Code::of(&program.elf), pc as u32);
    Some(Executed {
        elf: program.elf.clone(),
        recording,
        packets,
        places,
        pc,
    })
}

/// Imports a ring of 2 to the power of `mask + 4` bytes; returns the messages.
fn import(
    of: &Executed,
    packets: &[([u32; 2], usize)],
    mask: u32,
    into: &Path,
    pc: bool,
) -> String {
    let file = of.recording.place("ram.bin");
    let position = ram(packets, 1 << (mask + 4), &file);
    let mut command = armsnap();
    command.args(["import", "--force", "--core", "Cortex-M4", "--mtb"]);
    command.arg(format!("{}@{RAM:#x}", file.display()));
    command.args(["--register", &format!("POSITION={position:#x}")]);
    command.args(["--register", &format!("MASTER={:#x}", 1 << 31 | mask)]);
    if pc {
        command.args(["--register", &format!("PC={:#x}", of.pc)]);
    }
    command.arg("--elf").arg(&of.elf).arg(into);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

fn history(snapshot: &Path) -> Vec<CodeAddress> {
    decoded(snapshot).remove("mtb").unwrap_or_default()
}

/// The names of the exceptions in a trace, in order.
fn exceptions(snapshot: &Path) -> Vec<String> {
    let mut command = armsnap();
    command.args(["decode", "--format", "jsonl"]).arg(snapshot);
    let output = run(&mut command);
    let lines = String::from_utf8(output.stdout).unwrap();
    let elements = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let exceptions = elements.filter(|element| element["kind"] == "exception");
    let shown =
        exceptions.map(|element| format!("{} {}", element["name"], element["return_address"]));
    shown
        .filter(|shown| !shown.contains("debug halt"))
        .collect()
}

#[test]
fn an_mtb_gives_the_flow_that_made_it() {
    let Some(of) = executed() else {
        return;
    };
    assert!(of.packets.len() > 2000, "{}", of.packets.len());
    let into = of.recording.place("imported");
    // 2^(16 + 4) bytes hold all.
    let said = import(&of, &of.packets, 16, &into, true);
    assert!(
        !said.contains("gaps in the history") && !said.contains("left out"),
        "{said}"
    );
    let first = of.packets[0].1 - 1;
    let found = history(&into);
    assert_eq!(found.len(), of.places.len() - first);
    assert!(found == of.places[first..], "the flow differs");
    let traced = exceptions(&of.recording.snapshot());
    for name in ["SVC", "BusFault", "SysTick", "PendSV"] {
        assert!(
            traced.iter().any(|exception| exception.contains(name)),
            "{traced:?}"
        );
    }
    assert_eq!(exceptions(&into), traced);

    // Up to any packet; without the PC, the trace ends where the last one led.
    for count in [1, 2, 700, of.packets.len() - 1] {
        let said = import(&of, &of.packets[..count], 16, &into, false);
        assert!(
            said.contains(&format!(
                "MTB: {count} packet{} in the 1048576 bytes",
                if count == 1 { "" } else { "s" }
            )),
            "{said}"
        );
        let wanted = &of.places[first..of.packets[count - 1].1];
        assert!(history(&into) == wanted, "{count} packets");
    }
}

#[test]
fn a_wrapped_mtb_has_the_newest_packets() {
    let Some(of) = executed() else {
        return;
    };
    let into = of.recording.place("imported");
    // 4 KiB: 512 packets; and with older ones cut off, so that the ring starts anywhere.
    for skipped in [0, 1, 2, 3, 77] {
        let said = import(&of, &of.packets[skipped..], 8, &into, true);
        assert!(
            said.contains("512 packets in the 4096 bytes from 0x20100000 on, wrapped"),
            "{said}"
        );
        let (words, before) = of.packets[of.packets.len() - 512];
        // The first packet's own instruction was executed, unless the packet is of an exception.
        let begin = before - usize::from(words[0] & 1 == 0);
        let found = history(&into);
        assert_eq!(found.len(), of.places.len() - begin, "{skipped}");
        assert!(found == of.places[begin..], "{skipped}: the flow differs");
    }
}

#[test]
fn gdb_walks_back_in_an_mtb() {
    need_gdb();
    let Some(of) = executed() else {
        return;
    };
    let into = of.recording.place("imported");
    import(&of, &of.packets, 8, &into, true);
    let shown = session(
        &into,
        &[],
        &["reverse-stepi", "p/x $pc", "reverse-stepi", "p/x $pc"],
    );
    for (number, place) in [(1, 1), (2, 2)] {
        let wanted = &of.places[of.places.len() - place];
        let line = format!("${number} = {:#x}", wanted.address.0);
        assert!(shown.contains(&line), "{line}: {shown}");
    }
}

#[test]
fn what_an_mtb_lacks_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("ram.bin");
    // A branch, an exception whose handler is in no vector, a stop, a branch elsewhere.
    let words: [u32; 8] = [0x100, 0x201, 0x205, 0x300, 0x400, 0x501, 0x502, 0x600];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(&file, bytes).unwrap();
    let import = |ram: &str, registers: &[&str]| {
        let mut command = armsnap();
        let into = scratch.path().join("snapshot");
        command.args(["import", "--force", "--mtb", ram]).arg(into);
        for register in registers {
            command.args(["--register", register]);
        }
        let output = run(&mut command);
        (output.status.code(), text(&output))
    };
    let at = format!("{}@0x20000000", file.display());
    let (status, said) = import(&at, &["POSITION=0x20", "MASTER=0x80000002"]);
    assert_eq!(status, Some(0), "{said}");
    for wanted in [
        "BASE: 0x20000000, the address of the RAM, is assumed",
        "1 exception without a number",
        "gaps in the history",
        "what was executed after the last packet is left out",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let plain = file.to_str().unwrap();
    for (ram, registers, status, wanted) in [
        (
            &*at,
            &["POSITION=0x20"][..],
            2,
            "expected --register POSITION=VALUE and --register MASTER=VALUE",
        ),
        (
            &at,
            &["POSITION=0x20", "MASTER=1", "TRCIDR0=0"],
            2,
            "is no register that --mtb needs",
        ),
        (
            &at,
            &["POSITION=0x100000000", "MASTER=1"],
            2,
            "expected 32 bits",
        ),
        (
            &at,
            &["POSITION=0x24", "MASTER=2"],
            1,
            "the RAM has no bytes at 0x20000020: expected the 64 bytes",
        ),
        (
            &at,
            &["POSITION=0x1020", "MASTER=2"],
            1,
            "the RAM has no bytes at 0x20001000",
        ),
        (
            &at,
            &["POSITION=0x24", "MASTER=31"],
            1,
            "34359738368 bytes of trace, as POSITION and MASTER say",
        ),
        (
            plain,
            &["POSITION=0x20", "MASTER=2"],
            2,
            "expected their address after @",
        ),
    ] {
        let (found, said) = import(ram, registers);
        assert_eq!(found, Some(status), "{said}");
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let mut command = armsnap();
    command.args(["import", "--mtb", &at, "--core", "Cortex-A53"]);
    command.args([
        "--register",
        "POSITION=8",
        "--register",
        "MASTER=1",
        "unused",
    ]);
    let said = text(&run(&mut command));
    assert!(said.contains("expected a core of the M-profile"), "{said}");
}
