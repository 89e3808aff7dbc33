//! `armsnap convert --tracepoints`: GDB prints little when it opens the file, shows no address that
//! is not that of the frame, and the file still holds all of them.

use crate::support::convert::{RECORDED, convert, listing};
use crate::support::gdb::{need_gdb, run, testdata, text};
use armsnap::tfile::{Block, File};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cores of [`RECORDED`], each with the program of its functions, which two snapshots contain.
const CORES: [(&str, &str); 3] = [
    ("Cortex-A57_1", "program.elf"),
    ("Cortex-A15_0", "cores-a15-bare-a15.elf"),
    ("Cortex-M4_0", "program.elf"),
];

/// A trace file of one core.
fn made(directory: &Path, which: usize, name: &str, options: &[&str]) -> PathBuf {
    let file = directory.join(format!("{name}.tf"));
    let path = testdata(RECORDED[which]);
    convert(
        &[&["--core", CORES[which].0], options].concat(),
        [&path, &file],
    );
    file
}

/// The output of GDB with a trace file and commands.
fn gdb(file: &Path, commands: &[String]) -> String {
    need_gdb();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set pagination off"]);
    gdb.arg("-ex")
        .arg(format!("target tfile {}", file.display()));
    for command in commands {
        gdb.args(["-ex", command]);
    }
    text(&run(&mut gdb))
}

/// The address in the variable of each frame but the first.
fn addresses(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let variables = &file.description().variables;
    let number = variables.iter().find(|v| v.name == "address").unwrap();
    let found = file.frames().skip(1).map(|frame| {
        let frame = frame.unwrap();
        let value = frame.blocks().find_map(|block| match block {
            Block::Variable { number: n, value } if n == number.number.cast_signed() => Some(value),
            _ => None,
        });
        value.unwrap().cast_unsigned()
    });
    found.collect()
}

/// The addresses of frames by their tracepoints, in a file with one for each address.
fn places(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let known = file.description().addresses();
    let frames = file.frames().skip(1);
    frames
        .map(|frame| known[&frame.unwrap().tracepoint.into()].unwrap())
        .collect()
}

#[test]
fn one_tracepoint_is_announced_and_frames_contain_their_addresses() {
    let directory = tempfile::tempdir().unwrap();
    for which in 0..RECORDED.len() {
        let by_address = made(directory.path(), which, "addresses", &["--force"]);
        let named = ["--force", "--tracepoints", "addresses"];
        let same = made(directory.path(), which, "same", &named);
        assert_eq!(
            std::fs::read(&by_address).unwrap(),
            std::fs::read(same).unwrap()
        );
        let one = ["--force", "--tracepoints", "one"];
        let one = made(directory.path(), which, "one", &one);
        let wanted = places(&by_address);
        assert_eq!(addresses(&one), wanted);
        let opened = gdb(&one, &[]);
        let lines: Vec<&str> = opened.lines().collect();
        assert_eq!(lines.len(), 2, "{opened}");
        assert!(lines[0].starts_with("Tracepoint 1 at "), "{opened}");
        // Thousands of lines are gone, and no address is wrong.
        assert!(gdb(&by_address, &[]).lines().count() > 20);
        let mut commands = Vec::new();
        for frame in [1, wanted.len() / 2, wanted.len()] {
            commands.push(format!("tfind {frame}"));
            for expression in ["output $pc", "output/x $address"] {
                commands.push(format!("echo {expression}:\\n"));
                commands.push(expression.to_owned());
                commands.push("echo \\n".to_owned());
            }
            commands.push("x/i $address".to_owned());
            commands.push("tfind end".to_owned());
        }
        commands.extend(["tfind 0".to_owned(), "output $pc".to_owned()]);
        let shown = gdb(&one, &commands);
        assert!(!shown.contains("warning"), "{shown}");
        let values = |name: &str| -> Vec<&str> {
            let lines: Vec<&str> = shown.lines().collect();
            let pairs = lines.windows(2).filter(|pair| pair[0] == name);
            pairs.map(|pair| pair[1]).collect()
        };
        assert_eq!(values("output $pc:"), ["<unavailable>"; 3], "{shown}");
        let found = [1, wanted.len() / 2, wanted.len()];
        let found: Vec<String> = found
            .iter()
            .map(|frame| format!("{:#x}", wanted[frame - 1]))
            .collect();
        assert_eq!(values("output/x $address:"), found, "{shown}");
        assert!(!shown.contains("Cannot access"), "{shown}");
        assert!(
            !shown.lines().last().unwrap().contains("unavailable"),
            "{shown}"
        );
    }
}

#[test]
fn frames_of_a_function_belong_to_its_tracepoint() {
    let directory = tempfile::tempdir().unwrap();
    for (which, (_, program)) in CORES.into_iter().enumerate() {
        let program = testdata(RECORDED[which]).join(program);
        let elf = program.to_str().unwrap();
        let options = ["--force", "--tracepoints", "functions", "--elf", elf];
        let file = made(directory.path(), which, "functions", &options);
        let bytes = std::fs::read(&file).unwrap();
        let read = File::open(&bytes, None).unwrap();
        let tracepoints = &read.description().tracepoints;
        let all = addresses(&file);
        let distinct: BTreeSet<u64> = all.iter().copied().collect();
        assert!(tracepoints.len() > 2 && tracepoints.len() < distinct.len());
        // The names that objdump gives the addresses are those of the tracepoints.
        let places: Vec<String> = read
            .frames()
            .skip(1)
            .map(|frame| {
                let number = u32::from(frame.unwrap().tracepoint);
                let point = tracepoints.iter().find(|point| point.number == number);
                point.map_or_else(String::new, |point| format!("{:#x}", point.address))
            })
            .collect();
        let mut commands = vec![format!("file {elf}")];
        for (place, address) in places
            .iter()
            .zip(&all)
            .filter(|(place, _)| !place.is_empty())
        {
            commands.push(format!("info symbol {place}"));
            commands.push(format!("info symbol {address:#x}"));
        }
        commands.truncate(201);
        let shown = gdb(&file, &commands);
        let names: Vec<&str> = shown
            .lines()
            .filter_map(|line| Some(line.split_once(" in section")?.0))
            .map(|name| name.split(" + ").next().unwrap())
            .collect();
        assert!(names.len() > 20, "{shown}");
        for pair in names.chunks(2) {
            assert_eq!(pair[0], pair[1], "{shown}");
        }
        // No address of a tracepoint is taken for that of another instruction.
        let mut commands = Vec::new();
        for frame in 1..=all.len().min(60) {
            commands.push(format!("tfind {frame}"));
            commands.push("output/x $pc".to_owned());
            commands.push("echo \\n".to_owned());
            commands.push("tfind end".to_owned());
        }
        let shown = gdb(&file, &commands);
        let values = shown
            .lines()
            .filter(|line| line.starts_with("0x") || line.starts_with("<un"));
        let values: Vec<&str> = values.collect();
        assert_eq!(values.len(), all.len().min(60), "{shown}");
        for (value, address) in values.iter().zip(&all) {
            assert!(
                *value == "<unavailable>" || *value == format!("{address:#x}"),
                "{shown}"
            );
        }
    }
}

#[test]
fn the_trace_made_of_the_frames_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for which in 0..RECORDED.len() {
        let listed = |kind: &str| {
            let options = ["--force", "--state-only", "--frames", "waypoints"];
            let options = [&options[..], &["--tracepoints", kind]].concat();
            let file = made(directory.path(), which, kind, &options);
            let back = directory.path().join(format!("{kind}-{which}"));
            convert(&["--trace"], [&file, &back]);
            listing(&back, "instructions")
        };
        let wanted = listed("addresses");
        assert!(wanted.len() > 50);
        assert_eq!(listed("one"), wanted);
        assert_eq!(listed("functions"), wanted);
    }
}

#[test]
fn a_frame_becomes_a_snapshot_at_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let one = made(directory.path(), 0, "one", &["--tracepoints", "one"]);
    let wanted = addresses(&one)[4];
    let back = directory.path().join("back");
    let said = convert(&["--frame", "5"], [&one, &back]);
    assert!(said.contains("pc is $address"), "{said}");
    let loaded = crate::support::convert::open(&back);
    let registers = &loaded.snapshot.devices[0].registers;
    let pc = registers.iter().find(|r| r.name == "PC").unwrap();
    assert_eq!(pc.value.as_u64(), Some(wanted));
}
