//! Raw buffers: their format is found out, and what is known about the trace units is used.

use crate::capture;
use crate::perf_generated::{frames, listed as decode, recorded};
use crate::support::gdb::{armsnap, run, testdata, text};
use armsnap::formatter::FSYNC;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Imports raw buffers, and returns the messages.
fn import(arguments: &[&str], output: &Path) -> String {
    let mut command = armsnap();
    command.arg("import").args(arguments).arg(output);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// Imports what must be refused with this exit status and message.
fn refused(arguments: &[&str], output: &Path, status: i32, says: &str) {
    let output = run(armsnap().arg("import").args(arguments).arg(output));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(says), "{said}");
}

/// The packets without the names of sources and buffers, and without the places in the buffer
/// unless they are comparable.
fn anonymous(mut packets: Vec<Value>, places: bool) -> Vec<Value> {
    for packet in &mut packets {
        let packet = packet.as_object_mut().unwrap();
        packet.remove("source");
        packet.remove("buffer");
        if !places {
            packet.remove("offset");
            packet.remove("trace_id");
        }
    }
    packets.sort_by_key(|packet| packet["trace_id"].as_u64());
    packets
}

#[test]
fn the_edges_written_by_hand_are_in_the_trace() {
    let Some(directory) = capture("branches") else {
        return;
    };
    let text = fs::read_to_string(directory.join("trace1/decoderargs.txt")).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (buffer, id) = (file(words[0]), format!("TRCTRACEIDR={}", words[1]));
    let programs: Vec<String> = words[3..]
        .chunks(3)
        .map(|program| format!("{}@{}", file(program[0]), program[1]))
        .collect();
    let mut arguments = vec!["--raw", &buffer, "--register", &id];
    for program in &programs {
        arguments.extend(["--elf", program]);
    }
    let scratch = tempfile::tempdir().unwrap();
    let written = scratch.path().join("snapshot");
    let said = import(&arguments, &written);
    assert!(
        said.contains("found to be formatter frames: trace ID 0x10, ETMv4"),
        "{said}"
    );
    let base = u64::from_str_radix(words[4].trim_start_matches("0x"), 16).unwrap();
    let starts: Vec<u64> = decode(&written, &[])
        .iter()
        .filter(|element| element["kind"] == "range")
        .map(|range| {
            let start = range["start"].as_str().unwrap().trim_start_matches("0x");
            u64::from_str_radix(start, 16).unwrap().wrapping_sub(base)
        })
        .collect();
    let edges = fs::read_to_string(directory.join("expected_edge_coverage.out")).unwrap();
    let edges: Vec<[u64; 2]> = edges
        .lines()
        .map(|line| {
            let number = |text: &str| u64::from_str_radix(&text.trim()[2..], 16).unwrap();
            let line = line.replace("[0]", "");
            let (from, to) = line.split_once("->").unwrap();
            [number(from), number(to)]
        })
        .collect();
    assert_eq!(edges.len(), 42);
    let pairs: Vec<[u64; 2]> = starts.windows(2).map(|pair| [pair[0], pair[1]]).collect();
    assert!(
        pairs.windows(42).any(|run| *run == edges),
        "not all edges in a row"
    );
}

/// The files of Linux' sysfs that hold the registers of a snapshot's trace unit.
pub fn sysfs(ini: &Path, directory: &Path, cpu: usize) {
    let text = fs::read_to_string(ini).unwrap();
    for line in text.lines().skip_while(|line| *line != "[regs]").skip(1) {
        let (name, value) = line.split_once('=').unwrap();
        let file = match &name.to_ascii_lowercase() as &str {
            "trccccctlr" | "trcccctlr" => "cyc_threshold".to_owned(),
            "trcconfigr" => "mgmt/trcconfig".to_owned(),
            "trctraceidr" => "mgmt/trctraceid".to_owned(),
            name if name.starts_with("trcidr") => format!("trcidr/{name}"),
            name => format!("mgmt/{name}"),
        };
        let path = directory.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The kernel prints no leading zeros.
        let number = u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
        fs::write(path, format!("{number:#x}\n")).unwrap();
    }
    fs::write(directory.join("cpu"), format!("{cpu}\n")).unwrap();
}

#[test]
fn a_sysfs_tree_gives_the_listing_of_its_snapshot() {
    for (name, units, program) in [
        ("etmv4", 2, "program.elf"),
        ("ptm", 2, "cores-a15-bare-a15.elf"),
        ("etmv3", 1, "program.elf"),
    ] {
        let snapshot = testdata("recorded").join(name);
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("devices");
        for unit in 0..units {
            let device = tree.join(format!("etm{unit}"));
            sysfs(&snapshot.join(format!("trace_{unit}.ini")), &device, unit);
        }
        // Directories that are not of a trace unit are skipped.
        let tmc = tree.join("tmc_etr0/mgmt");
        fs::create_dir_all(&tmc).unwrap();
        fs::write(tmc.join("ffcr"), "0x133\n").unwrap();
        let ini = fs::read_to_string(snapshot.join("cpu_0.ini")).unwrap();
        let kind = ini
            .lines()
            .find_map(|line| line.strip_prefix("type="))
            .unwrap();
        let written = scratch.path().join("snapshot");
        let (buffer, program) = (snapshot.join("trace.bin"), snapshot.join(program));
        let said = import(
            &[
                "--raw",
                buffer.to_str().unwrap(),
                "--sysfs",
                tree.to_str().unwrap(),
                "--core",
                kind,
                "--elf",
                program.to_str().unwrap(),
            ],
            &written,
        );
        assert!(!said.contains("assumed"), "{name}: {said}");
        for level in ["packets", "elements"] {
            let options = ["--level", level];
            let ours = anonymous(decode(&written, &options), true);
            let original = anonymous(decode(&snapshot, &options), true);
            assert!(original.len() > 20, "{name}: {}", original.len());
            assert_eq!(ours, original, "{name} {level}");
        }
    }
}

#[test]
fn the_form_and_the_kind_of_trace_are_found_out() {
    use armsnap::formatter::{Deformatter, Demux, FrameKind};
    use armsnap::quantity::{BufferOffset, TraceId};
    for (name, kind) in [
        ("etmv4", "ETMv4"),
        ("ptm", "PTM"),
        // Its few packets are valid in both.
        ("etmv3", "PTM (ETMv3 fits as well"),
    ] {
        let snapshot = testdata("recorded").join(name);
        let frames = fs::read(snapshot.join("trace.bin")).unwrap();
        let mut demux = Demux::new();
        let mut deformatter = Deformatter::new(FrameKind::Memory);
        deformatter.feed(BufferOffset(0), &frames, true, &mut demux);
        let plain = demux.stream(TraceId(0x10)).payload().to_vec();
        // As on the pins of a trace port: what comes before the first FSYNC is cut off, and frames
        // contain HSYNCs.
        let mut port = vec![0x55; 6];
        for frame in frames.chunks(16) {
            port.extend(FSYNC);
            port.extend(&frame[..6]);
            port.extend([0xFF, 0x7F]);
            port.extend(&frame[6..]);
        }
        let original = decode(&snapshot, &["--level", "packets"]);
        let original: Vec<Value> = original
            .into_iter()
            .filter(|packet| packet["trace_id"] == 0x10)
            .collect();
        for (form, bytes, says) in [
            (
                "frames",
                &frames,
                "found to be formatter frames: trace ID 0x10, ",
            ),
            ("plain", &plain, "found to be one source, not formatted: "),
            (
                "port",
                &port,
                "found to be a trace port's stream of formatter frames: trace ID 0x10, ",
            ),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let buffer = scratch.path().join("buffer.bin");
            fs::write(&buffer, bytes).unwrap();
            let written = scratch.path().join("snapshot");
            let mut arguments = vec!["--raw", buffer.to_str().unwrap()];
            // The minor version of PTM and ETMv3, and the profile, change packets.
            let registers = fs::read_to_string(snapshot.join("trace_0.ini")).unwrap();
            let registers: Vec<&str> = registers
                .lines()
                .skip_while(|line| *line != "[regs]")
                .skip(1)
                .filter(|line| !line.contains("TRACEIDR") && !line.starts_with("TRCCCCTLR"))
                .collect();
            let unregistered = import(&arguments, &scratch.path().join("without"));
            assert!(
                unregistered.contains(&format!("{says}{kind}")),
                "{name} {form}: {unregistered}"
            );
            for register in &registers {
                arguments.extend(["--register", register]);
            }
            if name == "etmv3" {
                arguments.extend(["--core", "Cortex-M4"]);
            }
            import(&arguments, &written);
            let packets = decode(&written, &["--level", "packets"]);
            let mut packets: Vec<Value> = match form {
                "port" => packets
                    .into_iter()
                    .filter(|p| p["buffer"] == "buffer_10")
                    .collect(),
                "frames" => packets
                    .into_iter()
                    .filter(|p| p["trace_id"] == 0x10)
                    .collect(),
                _ => packets,
            };
            // The end of a buffer is a packet of its own where its bytes are known.
            packets.truncate(original.len());
            assert_eq!(
                anonymous(packets, false),
                anonymous(original.clone(), false),
                "{name} {form}"
            );
        }
    }
}

#[test]
fn trace_is_found_after_other_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let buffer = scratch.path().join("dump.bin");
    let written = scratch.path().join("snapshot");
    let trace = fs::read(testdata("recorded/etmv4/trace.bin")).unwrap();
    for (name, before) in [
        ("zeros", vec![0; 3 << 20]),
        ("text", b"memory, ".repeat(5 << 17)),
    ] {
        fs::write(&buffer, [&before[..], &trace].concat()).unwrap();
        let said = import(&["--force", "--raw", buffer.to_str().unwrap()], &written);
        assert!(said.contains("trace ID 0x10, ETMv4"), "{name}: {said}");
    }
    let words = trace.chunks_exact(4);
    let reversed: Vec<u8> = words.flat_map(|word| word.iter().rev().copied()).collect();
    fs::write(&buffer, reversed).unwrap();
    let arguments = ["--force", "--raw", buffer.to_str().unwrap()];
    refused(
        &arguments,
        &written,
        1,
        "of each word of 32 bits are reversed",
    );
}

/// A source's recorded trace, repeated up to a length.
fn long(name: &str, length: usize) -> Vec<u8> {
    recorded(name, 0x10)
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

#[test]
fn frames_of_a_wrapped_ring_need_no_id() {
    let options = ["--level", "packets"];
    for name in ["etmv4", "ptm"] {
        let scratch = tempfile::tempdir().unwrap();
        let (ring, plain) = (
            scratch.path().join("ring.bin"),
            scratch.path().join("plain.bin"),
        );
        let written = scratch.path().join("snapshot");
        let frames = frames(&[(0x10, &long(name, 40_000))]);
        // Only the first frame and the end contain the ID.
        let kept = &frames[1600..32_000];
        fs::write(&ring, kept).unwrap();
        let payload: Vec<u8> = kept
            .chunks(16)
            .flat_map(|frame| {
                let low = |at: usize| match at % 2 {
                    0 => frame[15] >> (at / 2) & 1,
                    _ => 0,
                };
                let bytes = (0..15).map(move |at| frame[at] | low(at));
                bytes.collect::<Vec<u8>>()
            })
            .collect();
        fs::write(&plain, payload).unwrap();
        let ring = ring.to_str().unwrap();
        let said = import(&["--raw", ring], &written);
        assert!(
            said.contains("the first ones without a trace ID")
                && said.contains(&name.to_uppercase().replace("ETMV", "ETMv")),
            "{said}"
        );
        let found = anonymous(decode(&written, &options), false);
        let expected = scratch.path().join("expected");
        import(&["--raw", plain.to_str().unwrap()], &expected);
        assert!(found.len() > 1000, "{}", found.len());
        assert_eq!(found, anonymous(decode(&expected, &options), false));
        // With a unit's registers, the trace is that of the unit.
        let id = if name == "ptm" {
            "ETMTRACEIDR=0x33"
        } else {
            "TRCTRACEIDR=0x33"
        };
        let said = import(&["--force", "--raw", ring, "--register", id], &written);
        assert!(said.contains("the first ones without a trace ID"), "{said}");
        let found = decode(&written, &["--level", "elements"]);
        let is_unit = |element: &Value| element["trace_id"] == 0x33;
        assert!(found.iter().all(is_unit), "{:?}", found[0]);
    }
}

#[test]
fn a_source_that_starts_late_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let buffer = scratch.path().join("buffer.bin");
    let (first, second) = (long("etmv4", 3 << 20), long("ptm", 300_000));
    fs::write(
        &buffer,
        frames(&[(0x10, &first), (0x15, &second), (0x10, &first)]),
    )
    .unwrap();
    let path = buffer.to_str().unwrap();
    let written = scratch.path().join("snapshot");
    let said = import(&["--raw", path], &written);
    let says = "formatter frames: trace ID 0x10, ETMv4, trace ID 0x15, PTM";
    assert!(said.contains(says), "{said}");
    let info = text(&run(armsnap().arg("info").arg(written)));
    assert!(info.contains("PTM_15"), "{info}");
}

#[test]
fn what_is_no_trace_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let buffer = scratch.path().join("noise.bin");
    let noise: Vec<u8> = (0..40_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for bytes in [Vec::new(), vec![0; 4096], noise] {
        fs::write(&buffer, bytes).unwrap();
        let written = scratch.path().join("snapshot");
        let arguments = ["--raw", buffer.to_str().unwrap()];
        refused(&arguments, &written, 1, "no trace is found in its");
        assert!(!written.exists());
    }
    for (register, says) in [
        (
            "TRCSOMETHING=1",
            "is no register of a trace unit that matters",
        ),
        ("TRCIDR0", "expected NAME=VALUE"),
        ("TRCIDR0=x", "expected a number"),
    ] {
        let arguments = ["--raw", buffer.to_str().unwrap(), "--register", register];
        refused(&arguments, &scratch.path().join("unused"), 2, says);
    }
}

/// An ELF file for AArch64 of a type with one executable segment at an address.
fn program(kind: u16, address: u64) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, values: &[u16]| {
        file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    };
    let long = |file: &mut Vec<u8>, values: &[u64]| {
        file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    };
    // Type, machine, version; entry, program headers, sections; flags; sizes and counts.
    half(&mut file, &[kind, 183, 1, 0]);
    long(&mut file, &[address, 64, 0]);
    half(&mut file, &[0, 0, 64, 56, 1, 64, 0, 0]);
    // PT_LOAD, PF_R and PF_X; offset, addresses, sizes, alignment.
    half(&mut file, &[1, 0, 5, 0]);
    long(&mut file, &[0, address, address, 128, 128, 0x1000]);
    file.resize(128, 0);
    file
}

#[test]
fn a_position_independent_program_without_an_address_is_noted() {
    let scratch = tempfile::tempdir().unwrap();
    let ram = scratch.path().join("ram.bin");
    fs::write(&ram, [1, 2, 3, 4]).unwrap();
    let memory = format!("{}@0x80000000", ram.display());
    let elf = scratch.path().join("program.elf");
    let named = elf.to_str().unwrap().to_owned();
    let placed = format!("{named}@0x40000000");
    // ET_DYN at 0, linked elsewhere, and with its address; ET_EXEC.
    for (kind, address, named, noted) in [
        (3, 0, &named, true),
        (3, 0x1000_0000, &named, false),
        (3, 0, &placed, false),
        (2, 0, &named, false),
    ] {
        fs::write(&elf, program(kind, address)).unwrap();
        let arguments = ["--force", "--memory", &memory, "--core", "Cortex-A53"];
        let written = scratch.path().join("snapshot");
        let said = import(&[&arguments[..], &["--elf", named]].concat(), &written);
        let remedy = format!("armsnap import --elf {}@ADDRESS", elf.display());
        assert_eq!(said.contains("assumed at 0x0; "), noted, "{said}");
        assert_eq!(said.contains(&remedy), noted, "{said}");
    }
}

#[test]
fn the_program_tells_the_type_of_the_core() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = testdata("recorded/etmv4/trace.bin");
    let micro = testdata("mps2-m4/program.elf");
    for (elf, wanted) in [
        (testdata("recorded/ptm/cores-a15-bare-a15.elf"), "ARM-AA32"),
        (testdata("recorded/etmv4/program.elf"), "ARMv8-A"),
        (micro, "ARMv7-M"),
    ] {
        let arguments = ["--force", "--raw", trace.to_str().unwrap(), "--elf"];
        let written = scratch.path().join("snapshot");
        let said = import(
            &[&arguments[..], &[elf.to_str().unwrap()]].concat(),
            &written,
        );
        let note = format!("--core does not give its type: {wanted} is assumed");
        assert!(said.contains(&note), "{said}");
    }
}

#[test]
fn files_that_are_not_of_the_snapshot_are_not_lost() {
    let scratch = tempfile::tempdir().unwrap();
    let ram = scratch.path().join("ram.bin");
    fs::write(&ram, [1, 2, 3, 4]).unwrap();
    let memory = format!("{}@0x20000000", ram.display());
    let written = scratch.path().join("snapshot");
    let arguments = ["--memory", &memory, "--core", "Cortex-M4"];
    import(&arguments, &written);
    fs::write(written.join("notes"), "mine").unwrap();
    let again = [&["--force"], &arguments[..]].concat();
    refused(&again, &written, 2, "would be lost");
    assert!(written.join("notes").exists());
}

#[test]
fn dumps_of_memory_become_the_memory_of_a_core() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let raw = file("ram.bin", &[0x11, 0x22, 0x33, 0x44]) + "@0x20000000";
    let hex = file(
        "flash.hex",
        b":020000040800F2\n:0400100001020304E2\n:00000001FF\n",
    );
    let records = file("more.srec", b"S1051000AABB85\nS9030000FC\n") + "@0x90000000";
    let written = scratch.path().join("snapshot");
    let arguments = ["--memory", &raw, "--memory", &hex, "--memory", &records];
    let said = import(
        &[&arguments[..], &["--core", "Cortex-M4"]].concat(),
        &written,
    );
    assert!(
        said.contains("flash.hex: Intel HEX: 4 bytes of memory in 1 run"),
        "{said}"
    );
    assert!(said.contains(": memory: 1 core (cpu0)"), "{said}");
    let output = run(armsnap().arg("info").arg(&written));
    let said = text(&output);
    for shown in ["20000000-", "08000010-", "90001000-", "Cortex-M4"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    for (memory, status, says) in [
        (file("ram2.bin", &[1]), 2, "expected their address after @"),
        // Memory beyond the last address is not left out silently.
        (
            file("high.bin", &[1; 32]) + "@0xfffffffffffffff0",
            2,
            "32 bytes from 0xfffffffffffffff0 on reach beyond 64 bits",
        ),
        (
            file("bad.hex", b":020000040800F2\n:0400100001020304E3\n"),
            1,
            "line 2: checksum e3: expected e2",
        ),
    ] {
        let arguments = ["--memory", &memory];
        refused(&arguments, &scratch.path().join("other"), status, says);
    }
}
