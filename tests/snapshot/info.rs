//! The output of `info`: complete for snapshots in testdata, selected lines for real captures.
//!
//! `UPDATE_GOLDEN=1` rewrites the files in testdata/golden.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use armsnap::report::info::{Info, text};
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use proptest::prelude::*;

fn open(path: &Path) -> Info {
    let loaded = Snapshot::open(path, &OpenOptions::default());
    Info::new(&loaded.unwrap_or_else(|error| panic!("{error}")))
}

fn as_text(info: &Info) -> String {
    text::Text(info).to_string()
}

fn as_json(info: &Info) -> serde_json::Value {
    serde_json::to_value(info).unwrap()
}

/// Compares with a file in testdata/golden.
#[track_caller]
fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert!(
        wanted == found,
        "{} differs; found:\n{found}",
        path.display()
    );
}

fn own(name: &str) -> Info {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/info");
    open(&root.join(name))
}

/// A real capture, or `None` with a warning if there are none.
fn real(name: &str) -> Option<Info> {
    let shared = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return None;
    }
    Some(open(&shared.join("snapshots").join(name)))
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let all: Vec<String> = text.lines().map(squeeze).collect();
    for line in lines {
        assert!(
            all.iter().any(|found| found == line),
            "no line {line:?} in:\n{text}"
        );
    }
}

#[test]
fn two_clusters() {
    let info = own("two-clusters");
    golden("info-two-clusters.txt", &as_text(&info));
    let json = serde_json::to_string_pretty(&info).unwrap() + "\n";
    golden("info-two-clusters.json", &json);
}

#[test]
fn etmv4_stm_itm() {
    golden("info-etmv4-stm-itm.txt", &as_text(&own("etmv4-stm-itm")));
}

/// The golden file is for people; here its values are computed by hand.
#[test]
fn two_clusters_by_hand() {
    let json = as_json(&own("two-clusters"));
    assert_eq!(json["clusters"][1]["devices"][1], "cpu_2");
    let core = &json["cores"][0];
    assert_eq!(core["cluster"], "big");
    assert_eq!(core["placeholder"], serde_json::Value::Null);
    // R0 R1 R2 SP(R13) LR PC CPSR SCR D0(S0)
    assert_eq!(core["registers"]["written"], 11);
    assert_eq!(core["registers"]["distinct"], 9);
    assert_eq!(
        core["status"]["meaning"],
        "Supervisor mode, A32, NZCV=0110, AIF=111"
    );
    assert_eq!(core["current_space"]["name"], "N");
    let missing = core["memory"].as_array().unwrap();
    let missing: Vec<_> = missing.iter().filter(|r| !r["missing"].is_null()).collect();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0]["file"], "lost.bin");
    assert_eq!(missing[0]["end"], "0x90000fff");
    assert!(json["cores"][1]["placeholder"].is_string());
    assert_eq!(json["buffers"][0]["size"], 48);

    let etm_1 = &json["sources"][2];
    assert_eq!(etm_1["cores"], serde_json::json!(["cpu_2"]));
    assert_eq!(etm_1["trace_id"], 0x11);
    assert_eq!(etm_1["protocol"], "ETMv3.5");
    assert_eq!(etm_1["other_registers"], 1);
    let notes = json["notes"].as_array().unwrap();
    assert!(
        notes
            .iter()
            .any(|note| note.as_str().unwrap().contains("PROHIBITED"))
    );
}

#[test]
fn cpsr_combined_from_its_parts_is_marked() {
    let info = own("etmv4-stm-itm");
    let status = info.cores[0].status.as_ref().unwrap();
    assert!(status.assembled);
    assert_eq!(status.meaning, "EL1h, AArch64, NZCV=0110, DAIF=1111");
    assert!(as_text(&info).contains("combined from"));
    // X0(W0) X1 LR SP PC CurrentEL DAIF NZCV SPSel V0(B0)
    let registers = info.cores[0].registers;
    assert_eq!((registers.written, registers.distinct), (12, 10));
    // Two adjacent dumps from one file are one region.
    assert_eq!(info.cores[0].memory.len(), 1);
    assert_eq!(info.cores[0].memory[0].size, Some(0x40));
    let status = info.cores[1].status.as_ref().unwrap();
    assert_eq!(status.meaning, "Handler mode, SysTick, NZCV=0000");
}

#[test]
fn real_etmv3_and_ptm_in_one_buffer() {
    let Some(info) = real("TC2") else { return };
    let text = as_text(&info);
    has(
        &text,
        &[
            "all cores are in one cluster",
            "5 cores",
            "[21,6:4] port size 6 64 bits",
            "[28] timestamp 1 timestamps are traced",
            "[12] cycle-accurate tracing 1 cycle counts are traced",
            "PTM_0 PFTv1.1 trace ID 0x13 core cpu_3 buffer ETB_0",
            "ETM_2 ETMv3.5 trace ID 0x12 core cpu_2 buffer ETB_0",
            "ITM_0 ITM trace ID 0x20 no core buffer ETB_0",
            "- 0xc0008000-0xc0057fff 320 KiB kernel_dump.bin",
        ],
    );
    // ETM_0 to ETM_2 differ only in the trace ID: they are grouped.
    assert_eq!(text.matches("ETMCR 0x10001860").count(), 1);
    assert!(info.cores.iter().all(|core| core.placeholder.is_some()));
}

#[test]
fn real_debug_view_of_a_cortex_a15() {
    let Some(info) = real("tc2-ptm-rstk-t32") else {
        return;
    };
    let core = &info.cores[0];
    assert_eq!(core.placeholder, None);
    assert!(core.registers.distinct > 200, "{:?}", core.registers);
    let status = core.status.as_ref().unwrap();
    assert!(status.meaning.starts_with("Supervisor mode, A32"));
    assert!(!status.assembled);
    assert!(core.memory.iter().all(|region| region.missing.is_none()));
    has(
        &as_text(&info),
        &[
            "[29] return stack 1 predicted returns are not traced",
            "[13,17:16] port mode 6 1:3",
            "[18] suppress data 1 data are left out when the FIFO is nearly full",
        ],
    );
}

#[test]
fn real_debug_view_of_a_cortex_a57() {
    let Some(info) = real("a57_single_step") else {
        return;
    };
    let core = &info.cores[0];
    assert_eq!(core.architecture, "AArch64");
    let status = core.status.as_ref().unwrap();
    assert_eq!(status.meaning, "EL2h, AArch64, NZCV=0010, DAIF=1111");
    assert_eq!(core.current_space.name, Some("EL2"));
    assert_eq!(core.pc.unwrap().to_string(), "0x00000000fffeb44c");
    assert!(core.registers.distinct < core.registers.written);
    assert_eq!(core.memory[0].space.as_deref(), Some("EL2"));
}

#[test]
fn real_etmv4_and_stm() {
    let Some(info) = real("juno_r1_1") else {
        return;
    };
    let text = as_text(&info);
    has(
        &text,
        &[
            "TRCCONFIGR 0x000000c1",
            "[7] VMID 1 virtual context IDs are traced",
            "[6] CID 1 context IDs are traced",
            "[28:24] TSSIZE 8 64 bits",
        ],
    );
    assert_eq!(info.sources.len(), 7);
    assert_eq!(info.buffers.len(), 2);
}

#[test]
fn info_describes_all_real_snapshots() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots"));
    if !root.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    let mut told = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("snapshot.ini").is_file() {
            continue;
        }
        let info = open(&path);
        let text = as_text(&info);
        for source in &info.sources {
            assert_ne!(source.protocol.to_string(), "unknown", "{}", path.display());
            assert!(!source.registers.is_empty(), "{}", path.display());
            assert!(text.contains(&source.name));
        }
        assert!(as_json(&info).is_object());
        told += 1;
    }
    assert!(told > 0);
}

/// The files of a snapshot in testdata, by path.
fn files(name: &str) -> InMemory {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/info")
        .join(name);
    let mut files = InMemory::default();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.0.insert(name, std::fs::read(&path).unwrap().into());
    }
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random changes of the .ini files: `info` prints something, or the reader refuses.
    #[test]
    fn damaged_snapshots_are_described(
        which in 0..2usize,
        edits in proptest::collection::vec((any::<u16>(), any::<u16>(), 0..5usize), 1..12),
    ) {
        let mut files = files(["two-clusters", "etmv4-stm-itm"][which]);
        let inis: Vec<String> = files.0.keys().filter(|n| n.ends_with(".ini")).cloned().collect();
        for (file, at, edit) in edits {
            let name = &inis[usize::from(file) % inis.len()];
            let mut bytes = files.0[name].to_vec();
            if bytes.is_empty() {
                continue;
            }
            let at = usize::from(at) % bytes.len();
            match edit {
                0 => bytes[at] = at as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b'F'),
                3 => bytes.truncate(at),
                _ => drop(bytes.splice(at..at, *b"\n[dump]\naddress=0xFFFFFFFFFFFFFFF0\nfile=code.bin\n")),
            }
            files.0.insert(name.clone(), bytes.into());
        }
        if let Ok(loaded) = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini") {
            let info = Info::new(&loaded);
            prop_assert!(as_text(&info).starts_with("Snapshot"));
            prop_assert!(as_json(&info).is_object());
        }
    }
}

/// Runs `armsnap info` with more arguments.
fn armsnap(arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(crate::support::armsnap());
    command.arg("info").args(arguments).output().unwrap()
}

#[test]
fn the_command_prints_text_and_json() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/info/two-clusters");
    let done = armsnap(&[root]);
    assert_eq!(done.status.code(), Some(0));
    golden(
        "info-two-clusters.txt",
        std::str::from_utf8(&done.stdout).unwrap(),
    );
    // The path of a snapshot.ini works too.
    let done = armsnap(&[&format!("{root}/snapshot.ini"), "--json"]);
    assert_eq!(done.status.code(), Some(0));
    golden(
        "info-two-clusters.json",
        std::str::from_utf8(&done.stdout).unwrap(),
    );
}

#[test]
fn the_command_fails_with_1_without_a_snapshot_and_2_on_wrong_usage() {
    let done = armsnap(&["no-such-directory"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(done.stdout.is_empty());
    assert!(
        std::str::from_utf8(&done.stderr)
            .unwrap()
            .contains("no-such-directory")
    );
    assert_eq!(armsnap(&[]).status.code(), Some(2));
    assert_eq!(armsnap(&[".", "--no-such-option"]).status.code(), Some(2));
}
