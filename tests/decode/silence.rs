//! Trace that decodes to nothing: `armsnap decode` reports once what it found and what to try.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use armsnap::formatter::encode::Encoder;
use armsnap::quantity::TraceId;

/// 0x1000: add x0, x0, #1; ret; add x0, x0, #1; b 0x1008
const CODE: [u32; 4] = [0x9100_0400, 0xd65f_03c0, 0x9100_0400, 0x17ff_ffff];

/// A snapshot of a core, its ETMv4 and one buffer, `[source_buffers]` as given.
fn snapshot(configr: &str, id: u8, format: &str, sources: &str, trace: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("trace.bin", trace);
    write("code.bin", &CODE.map(u32::to_le_bytes).concat());
    for (name, text) in [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n[trace]\n\
             metadata=trace.ini\n"
                .to_owned(),
        ),
        (
            "cpu.ini",
            "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[dump]\nfile=code.bin\n\
             address=0x1000\n"
                .to_owned(),
        ),
        (
            "etm.ini",
            format!(
                "[device]\nname=ETM\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR={configr}\n\
                 TRCTRACEIDR={id:#x}\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\nTRCIDR2=0x488\n\
                 TRCIDR8=0\n"
            ),
        ),
        (
            "trace.ini",
            format!(
                "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat={format}\n\
                 [source_buffers]\n{sources}\n[core_trace_sources]\ncpu=ETM\n"
            ),
        ),
    ] {
        write(name, text.as_bytes());
    }
    directory
}

/// The messages on standard error, which must be the same at each level and number of threads.
fn said(snapshot: &Path) -> Vec<String> {
    let notes = |arguments: &[&str]| -> Vec<String> {
        let mut command = Command::new(crate::support::armsnap());
        let output = command.arg("decode").arg(snapshot).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let said = notes(&["--jobs", "1"]);
    assert_eq!(notes(&["--jobs", "2", "--format", "none"]), said);
    assert_eq!(notes(&["--level", "instructions"]), said);
    said
}

/// A-sync, trace info, trace on, 0x1008 in EL1, some atoms.
fn sound() -> Vec<u8> {
    let mut trace = vec![0; 11];
    trace.extend([0x80, 0x01, 0x00, 0x04, 0x85, 2, 8, 0, 0, 0, 0, 0, 0, 0x31]);
    trace.extend([0xf7; 200]);
    trace
}

fn framed(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut out = Vec::new();
    for (id, bytes) in parts {
        for piece in bytes.chunks(20) {
            encoder.write(TraceId(*id), piece, &mut out);
        }
    }
    encoder.finish(&mut out);
    out
}

/// Checks that there is one note, which contains all of some texts.
#[track_caller]
fn one(snapshot: &tempfile::TempDir, texts: &[&str]) {
    let said = said(snapshot.path());
    let [note] = &said[..] else {
        panic!("{said:#?}");
    };
    for text in texts {
        assert!(note.contains(text), "{text}: {note}");
    }
}

const NORMAL: &str = "0xc1";
const IN: &str = "ETM=ETB";

#[test]
fn valid_trace_is_decoded_without_notes() {
    let none: [&str; 0] = [];
    let formatted = snapshot(NORMAL, 0x10, "coresight", IN, &framed(&[(0x10, &sound())]));
    assert_eq!(said(formatted.path()), none);
    let raw = snapshot(NORMAL, 0x10, "source_data", IN, &sound());
    assert_eq!(said(raw.path()), none);
}

/// Commands that decode only a part, or nothing yet, print the same note.
#[track_caller]
fn one_everywhere(snapshot: &tempfile::TempDir, texts: &[&str]) {
    one(snapshot, texts);
    let note = &said(snapshot.path())[0];
    let out = snapshot.path().join("out.tf");
    let out = out.to_str().unwrap();
    for (command, arguments) in [
        ("info", &[][..]),
        ("convert", &[out][..]),
        ("serve", &["--stdio"]),
        ("serve", &["--stdio", "--history", "btrace"]),
    ] {
        let mut run = Command::new(crate::support::armsnap());
        run.arg(command).arg(snapshot.path()).args(arguments);
        let output = run.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{run:?}: {output:?}");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(text.matches(note).count(), 1, "{note}: {run:?}: {text}");
    }
}

#[test]
fn trace_ids_of_no_source_are_named() {
    let trace = framed(&[(0x10, &sound()), (0x12, &[5; 100]), (0x2a, &[6; 40])]);
    let two = snapshot(NORMAL, 0x10, "coresight", IN, &trace);
    one_everywhere(
        &two,
        &[
            "0x12 (100 bytes), 0x2a (40 bytes)",
            "ETM (0x10)",
            "[source_buffers]",
        ],
    );
    let trace = framed(&[(0x12, &sound())]);
    let other = snapshot(NORMAL, 0x10, "coresight", IN, &trace);
    one_everywhere(&other, &["0x12 (", "0x12 reads as ETMv4, as that of ETM"]);
    let nobody = snapshot(NORMAL, 0x12, "coresight", "other=ETB", &trace);
    one_everywhere(&nobody, &["0x12 (", "it has no source"]);
    let nobody = snapshot(NORMAL, 0x12, "source_data", "other=ETB", &sound());
    one_everywhere(&nobody, &["no trace source is assigned to it"]);
}

#[test]
fn a_wrong_buffer_format_is_reported() {
    let formatted = framed(&[(0x10, &sound())]);
    let as_raw = snapshot(NORMAL, 0x10, "source_data", IN, &formatted);
    one_everywhere(
        &as_raw,
        &[
            "try format=coresight",
            "trace ID 0x10 is sound (ETMv4 of ETM",
        ],
    );
    let as_frames = snapshot(NORMAL, 0x10, "coresight", IN, &sound());
    one_everywhere(
        &as_frames,
        &["try format=source_data", "from offset 0x0 on"],
    );
}

#[test]
fn empty_padded_and_unsynchronised_buffers_are_reported() {
    for format in ["coresight", "source_data"] {
        one_everywhere(
            &snapshot(NORMAL, 0x10, format, IN, &[]),
            &["trace.bin has no bytes", "trace.ini:3"],
        );
    }
    one_everywhere(
        &snapshot(NORMAL, 0x10, "coresight", IN, &[0; 4096]),
        &["none of its 4096 bytes belongs to a source"],
    );
    let late = &sound()[12..];
    for (format, trace) in [
        ("coresight", framed(&[(0x10, late)])),
        ("source_data", late.to_vec()),
    ] {
        one_everywhere(
            &snapshot(NORMAL, 0x10, format, IN, &trace),
            &[
                "nothing is decoded of ETM (0x10), ETMv4",
                "no synchronisation point",
            ],
        );
    }
}

/// `ret` with an atom after it, twice, and no address.
fn without_target() -> Vec<u8> {
    let mut trace = vec![0; 11];
    trace.extend([0x80, 0x01, 0x00, 0x04]);
    for _ in 0..2 {
        trace.extend([0x85, 0, 8, 0, 0, 0, 0, 0, 0, 0x31, 0xf7, 0xf7, 0xf7]);
    }
    trace
}

#[test]
fn atoms_after_a_branch_without_a_target_are_reported_once() {
    let trace = without_target();
    let off = snapshot("0xc1", 0x10, "source_data", IN, &trace);
    one(
        &off,
        &[
            "and at 1 more places",
            "the instruction before 0x1008",
            "bit 12 of TRCCONFIGR",
        ],
    );
    let on = snapshot("0x10c1", 0x10, "source_data", IN, &trace);
    one(
        &on,
        &["and at 1 more places", "no return address is stacked"],
    );
}

/// History does not lead from such a branch to where the trace names an address again.
#[test]
fn an_atom_after_a_branch_without_a_target_is_a_gap_of_history() {
    let off = snapshot("0xc1", 0x10, "source_data", IN, &without_target());
    let mut gdb = Command::new(crate::support::armsnap());
    gdb.arg("gdb").arg(off.path()).args(["--", "-nx", "-batch"]);
    for command in ["armsnap goto begin", "stepi", "stepi", "stepi", "continue"] {
        gdb.args(["-ex", command]);
    }
    let output = gdb.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let gaps = text.matches("the target of the branch before 0x1008 is not in the trace");
    assert_eq!(gaps.count(), 2, "{text}");
}

/// Every real capture, read in the wrong format: each of its buffers is reported once.
#[test]
fn every_capture_in_the_wrong_format_is_reported() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/snapshots");
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    let mut wrong = Vec::new();
    for entry in fs::read_dir(shared).unwrap() {
        let entry = entry.unwrap();
        if !entry.path().is_dir() {
            continue;
        }
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(entry.path()).unwrap() {
            let file = file.unwrap();
            if file.path().is_file() {
                fs::write(
                    copy.path().join(file.file_name()),
                    fs::read(file.path()).unwrap(),
                )
                .unwrap();
            }
        }
        let metadata = copy.path().join("trace.ini");
        let text = fs::read_to_string(&metadata).unwrap();
        let mut expected = Vec::new();
        let swapped = text.lines().map(|line| match line.trim() {
            "format=source_data" => {
                expected.push("try format=source_data");
                "format=coresight"
            }
            "format=coresight" => {
                expected.push("try format=coresight");
                "format=source_data"
            }
            "format=dstream_coresight" => {
                expected.push("try format=dstream_coresight");
                "format=source_data"
            }
            line => line,
        });
        let swapped: Vec<&str> = swapped.collect();
        fs::write(&metadata, swapped.join("\n")).unwrap();
        let mut command = Command::new(crate::support::armsnap());
        let output = command.args(["decode", "--level", "packets", "--format", "none"]);
        let output = output.arg(copy.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let said = text.lines().filter(|line| line.contains(": buffer "));
        let said: Vec<&str> = said
            .filter(|line| !line.contains("unformatted, so"))
            .collect();
        let mut info = Command::new(crate::support::armsnap());
        let info = info.arg("info").arg(copy.path()).output().unwrap();
        let info = String::from_utf8_lossy(&info.stdout).into_owned();
        let unsaid = said.iter().find(|line| !info.contains(**line));
        if let Some(line) = unsaid {
            wrong.push(format!("{}: info lacks {line}", entry.path().display()));
        }
        let fits = said.len() == expected.len()
            && said
                .iter()
                .zip(&expected)
                .all(|(said, expected)| said.ends_with(expected));
        if !fits {
            wrong.push(format!(
                "{}: {expected:?}: {said:#?}",
                entry.path().display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
