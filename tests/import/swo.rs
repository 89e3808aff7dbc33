//! Trace that probes and logic analysers captured: an ITM without synchronisation packets, lost
//! bytes, formatter frames that begin anywhere, and trace that fits two protocols.

use crate::capture;
use crate::perf_generated::{frames, listed};
use crate::support::gdb::{armsnap, run, testdata, text};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::quantity::{BufferOffset, TraceId};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Imports a buffer; `None` if no trace is found in it.
fn import(bytes: &[u8], options: &[&str], place: &Path) -> Option<String> {
    let buffer = place.join("swo.bin");
    fs::write(&buffer, bytes).unwrap();
    let mut command = armsnap();
    command.args(["import", "--force", "--raw"]).arg(&buffer);
    let output = run(command.args(options).arg(place.join("snapshot")));
    let said = text(&output);
    if !output.status.success() {
        assert!(said.contains("no trace is found in its"), "{said}");
        return None;
    }
    Some(said)
}

/// The messages about a buffer, and its elements or packets.
fn imported(bytes: &[u8], options: &[&str], level: &str) -> (String, Vec<Value>) {
    let place = tempfile::tempdir().unwrap();
    let said = import(bytes, options, place.path());
    let said = said.unwrap_or_else(|| panic!("no trace in {} bytes", bytes.len()));
    let listed = listed(&place.path().join("snapshot"), &["--level", level]);
    (said, listed)
}

/// The text that was written to port 0.
fn written(elements: &[Value]) -> String {
    let stimulus = elements.iter().filter(|e| e["packet"] == "stimulus");
    let value = |element: &Value| {
        assert_eq!(element["port"], 0, "{element}");
        let value = element["value"].as_str().unwrap();
        u8::from_str_radix(&value[2..], 16).unwrap() as char
    };
    stimulus.map(value).collect()
}

/// ARM DDI 0403E, D4.2.8: a byte written to port 0.
fn of_text(line: &str) -> Vec<u8> {
    line.bytes().flat_map(|byte| [0x01, byte]).collect()
}

/// D4.2.1.
const SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];
const LINE: &str = "temperature 21.5 C, humidity 40 percent, all is well\n";

/// Lines with local timestamps (D4.2.4).
fn log(lines: usize) -> Vec<u8> {
    let line = [&of_text(LINE)[..], &[0xc0, 0xe8, 0x07]].concat();
    line.repeat(lines)
}

/// The number of packets of each name and trace ID.
fn count(packets: &[Value], id: u64, name: &str) -> usize {
    let named = |packet: &&Value| packet["trace_id"] == id && packet["packet"] == name;
    packets.iter().filter(named).count()
}

#[test]
fn an_itm_needs_no_synchronisation_packets() {
    let bytes = log(20);
    for options in [&[][..], &["--register", "ITMTCR=0x00010001"]] {
        let (said, elements) = imported(&bytes, options, "elements");
        assert!(said.contains("one source, not formatted: ITM"), "{said}");
        assert_eq!(written(&elements), LINE.repeat(20));
        assert_eq!(elements[1]["offset"], 0, "{}", elements[1]);
        let lost = elements.iter().filter(|e| e["kind"] == "no_sync");
        assert_eq!(lost.count(), 1);
    }
    // A snapshot that says so.
    let place = tempfile::tempdir().unwrap();
    let unit = "[device]\nname=ITM_0\nclass=trace_source\ntype=ITM\n[regs]\nITMTCR=0x00010001\n";
    for (name, contents) in [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\ndevice0=itm.ini\n[trace]\nmetadata=trace.ini\n",
        ),
        ("itm.ini", unit),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=SWO\nfile=swo.bin\nformat=source_data\n\
             [source_buffers]\nITM_0=SWO\n",
        ),
    ] {
        fs::write(place.path().join(name), contents).unwrap();
    }
    for (bytes, wanted) in [(&bytes[..], &LINE.repeat(20)[..]), (&bytes[..6], "tem")] {
        fs::write(place.path().join("swo.bin"), bytes).unwrap();
        assert_eq!(written(&listed(place.path(), &[])), wanted);
    }
}

#[test]
fn a_handful_of_bytes_is_trace() {
    for (bytes, packets) in [
        // D4.2.8, a byte and a word; D4.3, PC samples, exceptions with timestamps.
        (of_text("hello"), 5),
        (of_text("ok\r\n"), 4),
        (
            [[0x03, 1, 0, 0, 0], [0x03, 2, 0, 0, 0], [0x03, 3, 0, 0, 0]].concat(),
            3,
        ),
        (
            [
                [0x17, 0x54, 0x12, 0, 8],
                [0x17, 0x58, 0x12, 0, 8],
                [0x17, 0x60, 0x12, 0, 8],
            ]
            .concat(),
            3,
        ),
        (
            [
                [0x0e, 0x0f, 0x10, 0xc0, 0x17],
                [0x0e, 0x0f, 0x20, 0xc0, 0x30],
                [0x0e, 0, 0x30, 0xc0, 0x40],
            ]
            .concat(),
            6,
        ),
    ] {
        let (said, elements) = imported(&bytes, &[], "elements");
        assert!(said.contains(": ITM"), "{said}");
        let itm = elements.iter().filter(|e| e["kind"] == "itm");
        assert_eq!(itm.count(), packets, "{bytes:x?}");
    }
    // The user says so.
    let said = ["--register", "ITMTCR=0x00010001"];
    let (_, elements) = imported(&of_text("a"), &said, "elements");
    assert_eq!(written(&elements), "a");
}

#[test]
fn a_lost_byte_costs_what_is_around_it() {
    // As in `../shared/cases/itm-lost-byte`: synchronisation packets are sparse, or there are none.
    for sync in [&SYNC[..], &[]] {
        let whole = [sync, &log(8)].concat().repeat(20);
        let all = LINE.len() * 8 * 20;
        for at in (1..whole.len()).step_by(whole.len() / 12) {
            let mut bytes = whole.clone();
            bytes.remove(at);
            let (said, elements) = imported(&bytes, &[], "elements");
            assert!(said.contains("not formatted: ITM"), "{said}");
            let found = elements.iter().filter(|e| e["packet"] == "stimulus");
            let found = found.count();
            assert!(found + 70 >= all && found <= all, "{found} of {all}, {at}");
        }
    }
}

#[test]
fn what_is_skipped_after_a_loss_says_nothing() {
    let Some(shared) = capture("../snapshots") else {
        return;
    };
    let bytes = fs::read(shared.join("stm_only/cstraceitm.bin")).unwrap();
    let mut demux = Demux::new();
    Deformatter::new(FrameKind::Memory).feed(BufferOffset(0), &bytes, true, &mut demux);
    let whole = demux.stream(TraceId(0x20)).payload().to_vec();
    let ptm = fs::read(shared.join("tc2-ptm-rstk-t32/PTM_0_2.bin")).unwrap();
    for (name, whole) in [("STM", whole), ("PTM", ptm)] {
        for at in (500..whole.len()).step_by(whole.len() / 10) {
            let mut bytes = whole.clone();
            bytes.remove(at);
            let place = tempfile::tempdir().unwrap();
            let said = import(&bytes, &[], place.path());
            let is_found =
                said.is_some_and(|said| said.contains(&format!("not formatted: {name}")));
            assert!(is_found, "{name} without byte {at}");
        }
    }
}

#[test]
fn frames_may_begin_at_any_byte() {
    // Two ITMs, whose trace alternates; what is before the first whole frame is lost.
    let sources: Vec<(u8, Vec<u8>)> = (0..60).map(|n| (1 + n % 2, log(1))).collect();
    let sources: Vec<(u8, &[u8])> = sources
        .iter()
        .map(|(id, bytes)| (*id, &bytes[..]))
        .collect();
    let whole = frames(&sources);
    for cut in 0..16 {
        let from = (16 - cut) % 16;
        let (said, elements) = imported(&whole[cut..], &[], "elements");
        let frames = match from {
            0 => "formatter frames: ".to_owned(),
            from => format!("formatter frames from offset {from} on: "),
        };
        let wanted = format!("{frames}trace ID 0x01, ITM, trace ID 0x02, ITM");
        assert!(said.contains(&wanted), "{cut}: {said}");
        let text = written(&elements);
        assert!(text.len() + 16 >= 59 * LINE.len(), "{cut}: {}", text.len());
        assert!(text.matches(LINE.trim()).count() >= 50, "{cut}: {text}");
    }
    // Frames with the trace of an ETMv3, which has few synchronisation points.
    let Some(directory) = capture("swo-etmv3-lpc1769") else {
        return;
    };
    let bytes = fs::read(directory.join("swo.bin")).unwrap();
    let (said, packets) = imported(&bytes, &["--core", "Cortex-M3"], "packets");
    let wanted = "formatter frames from offset 5 on: trace ID 0x02, ETMv3\n";
    assert!(said.contains(wanted), "{said}");
    for (name, wanted) in [
        ("async", 42),
        ("i_sync", 42),
        ("p_header", 24_729),
        ("branch_address", 6747),
        ("exception_exit", 1063),
        ("reserved", 0),
        ("bad_sequence", 0),
    ] {
        assert_eq!(count(&packets, 2, name), wanted, "{name}");
    }
    for from in [0, 1, 2, 8, 15, 22] {
        let (said, _) = imported(&bytes[5 + from..], &["--core", "Cortex-M3"], "packets");
        assert!(said.contains("trace ID 0x02, ETMv3"), "{from}: {said}");
    }
}

#[test]
fn captures_of_a_debugger_are_read() {
    let Some(directory) = capture("swo-ctrace") else {
        return;
    };
    let bytes = |name: &str| fs::read(directory.join(name)).unwrap();
    let (_, packets) = imported(&bytes("Arm.SWO.raw"), &[], "packets");
    for (name, wanted) in [
        ("lts1", 26_183),
        ("event_counter", 26_125),
        ("data_trace_data_value", 60),
        ("bad_sequence", 1),
    ] {
        assert_eq!(count(&packets, 0, name), wanted, "{name}");
    }
    let (said, packets) = imported(&bytes("Blinky+Arm.TB.raw"), &[], "packets");
    assert!(
        said.contains("formatter frames: trace ID 0x01, ITM, trace ID 0x02, ITM"),
        "{said}"
    );
    for (id, name, wanted) in [
        (1, "lts1", 313),
        (1, "pc_sample", 121),
        (1, "exception_trace", 165),
        (1, "data_trace_data_value", 26),
        (2, "lts1", 214),
        (2, "pc_sample", 129),
        (2, "exception_trace", 84),
    ] {
        assert_eq!(count(&packets, id, name), wanted, "{id} {name}");
    }
    // Another reader waits for synchronisation packets; what it has is in a row in what is found.
    let (_, packets) = imported(&bytes("Blinky+Arm.SWO.raw"), &[], "packets");
    let values = packets
        .iter()
        .filter(|packet| packet["packet"] == "data_trace_data_value");
    let values: Vec<u64> = values
        .map(|packet| u64::from_str_radix(&packet["value"].as_str().unwrap()[2..], 16).unwrap())
        .collect();
    let table = String::from_utf8(bytes("Blinky+Arm.SWO.csv")).unwrap();
    let wanted: Vec<u64> = table
        .lines()
        .filter(|line| line.ends_with(",0x0800b8aa,,"))
        .filter_map(|line| line.split(',').nth(4)?.strip_prefix("0x"))
        .map(|value| u64::from_str_radix(value, 16).unwrap())
        .collect();
    // The last one before the lost bytes has no value.
    assert_eq!(wanted.len(), 527);
    let mut rest = values.iter();
    assert!(
        wanted
            .iter()
            .all(|wanted| rest.any(|value| value == wanted))
    );
    assert_eq!(values.len(), 876);
}

#[test]
fn the_core_and_its_code_decide_between_protocols() {
    let Some(directory) = capture("swo-etmv3-stm32f105") else {
        return;
    };
    let bytes = fs::read(directory.join("swo.bin")).unwrap();
    let elf = directory.join("trace_example.elf");
    let elf = elf.to_str().unwrap();
    let (etmidr, ptm) = ("ETMIDR=0x4114f250", "ETMIDR=0x411cf312");
    let both = "trace ID 0x01, ITM, trace ID 0x02, PTM (ETMv3 fits as well";
    let etmv3 = "trace ID 0x01, ITM, trace ID 0x02, ETMv3\n";
    for (options, wanted) in [
        (&[][..], both),
        (&["--core", "Cortex-M3"], etmv3),
        (&["--elf", elf], etmv3),
        (&["--register", etmidr], etmv3),
        (&["--register", etmidr, "--elf", elf], etmv3),
        (&["--register", etmidr, "--core", "Cortex-M4"], etmv3),
        // Registers that are given decide.
        (&["--register", ptm], "trace ID 0x02, PTM\n"),
        (
            &["--register", ptm, "--core", "Cortex-M3"],
            "trace ID 0x02, PTM\n",
        ),
        (&["--core", "Cortex-A9"], "trace ID 0x02, PTM"),
        (&["--core", "Cortex-A53"], both),
    ] {
        let place = tempfile::tempdir().unwrap();
        let said = import(&bytes, options, place.path()).unwrap();
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    let (_, elements) = imported(&bytes, &["--elf", elf], "instructions");
    let instructions = elements.iter().filter(|e| e["kind"] == "instruction");
    let addresses: Vec<&str> = instructions
        .map(|e| e["address"].as_str().unwrap())
        .collect();
    assert_eq!((addresses.len(), addresses[0]), (1200, "0x8000306"));
    let (_, packets) = imported(&bytes, &["--elf", elf], "packets");
    let of_itm = |name: &str| count(&packets, 1, name);
    assert_eq!((of_itm("instrumentation"), of_itm("overflow")), (97, 14));
    let hardware = packets.iter().filter(|packet| packet["trace_id"] == 1);
    assert_eq!(hardware.count(), 475 + 97 + 14);
}

#[test]
fn addresses_that_lead_to_code_decide() {
    // A few packets that PTM and ETMv3 both have, of two cores: only one reading runs in the program.
    for (name, program, wanted) in [
        ("ptm", "cores-a15-bare-a15.elf", "PTM"),
        ("etmv3", "program.elf", "ETMv3"),
    ] {
        let snapshot = testdata("recorded").join(name);
        let bytes = fs::read(snapshot.join("trace.bin")).unwrap();
        let elf = snapshot.join(program);
        let place = tempfile::tempdir().unwrap();
        let said = import(&bytes, &["--elf", elf.to_str().unwrap()], place.path()).unwrap();
        assert!(said.contains(&format!("trace ID 0x10, {wanted}")), "{said}");
        assert!(!said.contains("fits as well"), "{said}");
    }
}

/// A sequence of bytes that no seed repeats.
fn random(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed * 2 + 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    }
}

#[test]
fn text_and_other_files_are_no_trace() {
    let text = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/importing.md")).unwrap();
    let source = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/trace/src/itm/mod.rs"
    ))
    .unwrap();
    let program = fs::read(testdata("mps2-m4/program.elf")).unwrap();
    let wide: Vec<u8> = text.iter().flat_map(|&byte| [byte, 0]).collect();
    let mut next = random(3);
    let noise: Vec<u8> = (0..50_000).map(|_| next()).collect();
    for bytes in [&text, &source, &program, &wide, &noise] {
        for length in [bytes.len(), 5000, 300, 60] {
            let place = tempfile::tempdir().unwrap();
            let said = import(&bytes[..length.min(bytes.len())], &[], place.path());
            assert_eq!(said, None, "{length} of {}", bytes.len());
        }
    }
    let found = (0..60).filter(|seed| {
        let mut next = random(seed + 1000);
        let length = 8 + usize::from(next());
        let noise: Vec<u8> = (0..length).map(|_| next()).collect();
        let place = tempfile::tempdir().unwrap();
        import(&noise, &[], place.path()).is_some()
    });
    assert!(found.count() <= 1);
}
