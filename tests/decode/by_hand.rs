//! Trace made by hand, in a snapshot, decoded with `armsnap decode`: cases that neither a
//! capture nor armsnap's encoder produces.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A-sync and trace info of ETMv4 and ETE.
const BEGIN: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x00];

const NOP: u32 = 0xd503_201f;
/// `tstart x0`
const TSTART: u32 = 0xd523_3060;
/// `cbnz x0, .+8`
const CBNZ: u32 = 0xb500_0040;
/// `b .`
const STOP: u32 = 0x1400_0000;
/// `b .+8`
const SKIP: u32 = 0x1400_0002;

/// The type and registers of the source, and pieces of code with their address.
struct Traced<'a> {
    kind: &'a str,
    registers: &'a str,
    code: &'a [(u64, &'a [u32])],
}

/// An ETE 1.0 without speculation.
fn ete<'a>(idr0: &'a str, code: &'a [(u64, &'a [u32])]) -> (String, &'a [(u64, &'a [u32])]) {
    let registers = format!(
        "TRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0={idr0}\nTRCIDR1=0x4100fff0\n\
         TRCIDR2=0xd0001088\nTRCIDR8=0\nTRCDEVARCH=0x47705a13\n"
    );
    (registers, code)
}

impl Traced<'_> {
    /// The elements of `trace` in short form, without the `no_sync` at the start.
    fn elements(&self, trace: &[u8]) -> Vec<String> {
        let mut elements = self.listed(&[trace]);
        assert_eq!(elements.remove(0), "no_sync start");
        assert_eq!(elements.pop().as_deref(), Some("end"));
        elements
    }

    /// The elements of the buffers.
    fn listed(&self, buffers: &[&[u8]]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        self.write(directory.path(), buffers);
        let output = Command::new(crate::support::armsnap())
            .args(["decode", "--format", "jsonl"])
            .arg(directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(short).collect()
    }

    fn write(&self, directory: &Path, buffers: &[&[u8]]) {
        let write = |name: &str, content: &[u8]| fs::write(directory.join(name), content).unwrap();
        let mut core = "[device]\nname=cpu\nclass=core\ntype=ARMv9-A\n".to_owned();
        for (index, (address, words)) in self.code.iter().enumerate() {
            let name = format!("code{index}.bin");
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            write(&name, &bytes);
            core += &format!("[dump{index}]\nfile={name}\naddress={address:#x}\n");
        }
        let source = format!(
            "[device]\nname=source\nclass=trace_source\ntype={}\n[regs]\n{}",
            self.kind, self.registers
        );
        write("cpu.ini", core.as_bytes());
        write("source.ini", source.as_bytes());
        let mut sections = String::new();
        for (index, trace) in buffers.iter().enumerate() {
            let file = format!("trace{index}.bin");
            sections += &format!("[b{index}]\nname=B{index}\nfile={file}\nformat=source_data\n");
            write(&file, trace);
        }
        let list = |letter: char| -> String {
            let names = (0..buffers.len()).map(|index| format!("{letter}{index}"));
            names.collect::<Vec<_>>().join(",")
        };
        let trace = format!(
            "[trace_buffers]\nbuffers={}\n{sections}[core_trace_sources]\ncpu=source\n\
             [source_buffers]\nsource={}\n",
            list('b'),
            list('B'),
        );
        write("trace.ini", trace.as_bytes());
        write(
            "snapshot.ini",
            b"[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=source.ini\n\
              [trace]\nmetadata=trace.ini\n",
        );
    }
}

fn short(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    let field = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let kind = field("kind");
    match &*kind {
        "range" => {
            let last = &line["last"];
            let taken = if last["taken"] == true { "E" } else { "N" };
            let what = last["kind"].as_str().unwrap();
            format!("{}-{} {what} {taken}", field("start"), field("end"))
        }
        "no_sync" | "trace_on" => format!("{kind} {}", field("reason")),
        "context" => format!("EL{}", line["el"]),
        "memory_missing" => format!("missing {}", field("address")),
        "transaction" => field("state"),
        "event" => format!("event {}", line["number"]),
        "exception" => format!("exception {}", field("return_address")),
        _ => kind,
    }
}

/// Trace on at 0x1000, at EL1, AArch64.
const AT_1000: [u8; 7] = [0x04, 0x82, 0x00, 0x08, 0x00, 0x00, 0x31];

/// The elements of an ETE trace that starts at 0x1000, after the context.
#[track_caller]
fn ete_elements(idr0: &str, code: &[(u64, &[u32])], trace: &[u8]) -> Vec<String> {
    let (registers, code) = ete(idr0, code);
    let traced = Traced {
        kind: "ETE",
        registers: &registers,
        code,
    };
    let mut elements = traced.elements(&[&BEGIN[..], &AT_1000, trace].concat());
    assert_eq!(elements[..2], ["trace_on begin_or_filter", "EL1"]);
    elements.split_off(2)
}

const COMMTRANS_0: &str = "0x2801cea1";
const COMMTRANS_1: &str = "0x6801cea1";

#[test]
fn tstart_has_an_atom_with_either_value_of_commtrans() {
    let code = [NOP, TSTART, CBNZ, NOP, NOP, STOP];
    // tstart; start; cbnz taken; commit; b.
    let trace = [0xf7, 0x0a, 0xf7, 0x0b, 0xf7];
    for idr0 in [COMMTRANS_0, COMMTRANS_1] {
        let want = [
            "0x1000-0x1008 transaction E",
            "start",
            "0x1008-0x100c branch E",
            "commit",
            "0x1010-0x1018 branch E",
        ];
        assert_eq!(ete_elements(idr0, &[(0x1000, &code)], &trace), want);
    }
    // It fails, and continues after tstart.
    let trace = [
        0xf7, 0x0a, 0xf7, 0x06, 0x30, 0x70, 0x9a, 0x02, 0x08, 0, 0, 0xf6,
    ];
    for idr0 in [COMMTRANS_0, COMMTRANS_1] {
        let want = [
            "0x1000-0x1008 transaction E",
            "start",
            "0x1008-0x100c branch E",
            "fail",
            "0x1008-0x100c branch N",
        ];
        assert_eq!(ete_elements(idr0, &[(0x1000, &code)], &trace), want);
    }
}

#[test]
fn execution_continues_at_a_source_address_after_a_hole_in_memory() {
    let code: [(u64, &[u32]); 2] = [(0xff8, &[NOP, NOP]), (0x1100, &[SKIP, NOP, STOP])];
    // Source address 0x1100, an atom.
    let want = [
        "missing 0x1000",
        "0x1100-0x1104 branch E",
        "0x1108-0x110c branch E",
    ];
    assert_eq!(ete_elements(COMMTRANS_0, &code, &[0xb4, 0x40, 0xf7]), want);
}

#[test]
fn overflow_and_discard_are_reported_at_the_end_of_a_buffer() {
    let code: [(u64, &[u32]); 1] = [(0x1000, &[STOP])];
    for (packet, reason) in [(0x05, "overflow"), (0x03, "discard")] {
        let trace = [0xf7, 0x72, 0x00, packet];
        let want = [
            "0x1000-0x1004 branch E",
            "event 2",
            &format!("no_sync {reason}"),
        ];
        assert_eq!(ete_elements(COMMTRANS_0, &code, &trace), want);
    }
}

#[test]
fn an_overflow_is_reported_between_two_buffers() {
    let code: [(u64, &[u32]); 1] = [(0x1000, &[STOP])];
    let (registers, code) = ete(COMMTRANS_0, &code);
    let traced = Traced {
        kind: "ETE",
        registers: &registers,
        code,
    };
    let first = [&BEGIN[..], &AT_1000, &[0xf7, 0x00, 0x05]].concat();
    let second = [&BEGIN[..], &AT_1000, &[0xf7]].concat();
    let begin = ["trace_on begin_or_filter", "EL1", "0x1000-0x1004 branch E"];
    let want = [
        &["no_sync start"][..],
        &begin,
        &["no_sync overflow", "end", "no_sync start"],
        &begin,
        &["end"],
    ];
    assert_eq!(traced.listed(&[&first, &second]), want.concat());
}

#[test]
fn a_bad_packet_keeps_elements_that_are_not_speculative() {
    let code: [(u64, &[u32]); 1] = [(0x1000, &[STOP])];
    // b; event; trace on; EL0; a reserved header; an atom, which is ignored.
    let trace = [0xf7, 0x71, 0x04, 0x81, 0x30, 0x07, 0xf7];
    let want = [
        "0x1000-0x1004 branch E",
        "event 1",
        "trace_on begin_or_filter",
        "EL0",
        "no_sync bad_packet",
    ];
    assert_eq!(ete_elements(COMMTRANS_0, &code, &trace), want);
}
