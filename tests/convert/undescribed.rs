//! Trace files that do not list their registers, such as those of GDB before version 8, of its test
//! suite and of tracers in kernels: armsnap compared with GDB's own `target tfile`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::gdb::{armsnap, run, session, testdata, text};

/// The description of the target in a file.
#[derive(Clone, Copy, Debug)]
enum Description {
    None,
    Architecture(&'static str),
}

/// A file of two frames: one with a register block, one without.
fn trace_file(path: &Path, description: Description, block: &[u8], big: bool) {
    let mut file = b"\x7fTRACE0\n".to_vec();
    file.extend(format!("R {:x}\n", block.len()).bytes());
    if let Description::Architecture(name) = description {
        let lines = format!("tdesc <target>\ntdesc <architecture>{name}</architecture>\n");
        file.extend(lines.bytes());
        file.extend(b"tdesc </target>\n");
    }
    file.extend(b"status 0;tstop::0;tframes:2\ntp T1:10340:E:0:0\n\n");
    let number = |value: u32, bytes: usize| -> Vec<u8> {
        match big {
            true => value.to_be_bytes()[4 - bytes..].to_vec(),
            false => value.to_le_bytes()[..bytes].to_vec(),
        }
    };
    let memory = [&b"M"[..], &[0; 6], b"\x03\x40\0\x02", &[7, 7]].concat();
    let memory = match big {
        true => memory,
        false => [&b"M\x40\x03"[..], &[0; 6], b"\x02\0", &[7, 7]].concat(),
    };
    for data in [[b"R", block].concat(), memory] {
        file.extend(number(1, 2));
        file.extend(number(data.len() as u32, 4));
        file.extend(data);
    }
    file.extend([0; 4]);
    std::fs::write(path, file).unwrap();
}

const LOOK: [&str; 6] = [
    "echo <<<\\n",
    "tfind 0",
    "info registers",
    "info registers vector",
    "tfind 1",
    "p/x $pc",
];

/// Lines that name a register and its value, and the last one: `$1 = …`.
fn values(text: &str) -> Vec<Vec<String>> {
    let inside = text
        .split("<<<\n")
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    let lines = inside.lines().map(|line| {
        let words = line.split_whitespace().map(str::to_owned);
        words.take(2).collect::<Vec<_>>()
    });
    let is = |line: &Vec<String>| {
        let value = line.get(1).map_or("", |value| value);
        value.starts_with("0x") || value.starts_with("{") || line[..].concat().starts_with("$1=")
    };
    lines.filter(|line| is(line)).collect()
}

/// The values that GDB itself shows.
fn by_itself(file: &Path, commands: &[String]) -> Vec<Vec<String>> {
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.args(["-ex", &format!("target tfile {}", file.display())]);
    for command in LOOK {
        gdb.args(["-ex", command]);
    }
    values(&text(&run(&mut gdb)))
}

/// Compares the file served and converted with these options with GDB; the status register has GDB's
/// name there and its own name here.
fn same(
    file: &Path,
    options: &[&str],
    wanted: &[Vec<String>],
    status: [&str; 2],
    left_out: &[&str],
) {
    let mut wanted = wanted.to_vec();
    for line in &mut wanted {
        if line[0] == status[0] {
            status[1].clone_into(&mut line[0]);
        }
    }
    wanted.retain(|line| !left_out.contains(&&*line[0]));
    assert!(wanted.len() > 17, "{wanted:?}");
    let shown = session(file, options, &LOOK);
    assert_eq!(values(&shown), wanted, "{shown}");

    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let mut convert = armsnap();
    convert.arg("convert").args(options).args(["--frame", "0"]);
    let told = run(convert.arg(file).arg(&out));
    assert!(told.status.success(), "{}", text(&told));
    assert!(text(&told).contains("GDB's own"), "{}", text(&told));
    let shown = session(
        &out,
        &[],
        &["echo <<<\\n", "info registers", "info registers vector"],
    );
    wanted.retain(|line| !line[0].starts_with('$'));
    assert_eq!(values(&shown), wanted, "{shown}");
}

/// A register block with a different value in each register.
fn block(words: usize) -> Vec<u8> {
    (0..words as u32)
        .flat_map(|word| (0x0100_0100 + 4 * word).to_le_bytes())
        .collect()
}

fn files(name: &'static str) -> [Description; 2] {
    [Description::None, Description::Architecture(name)]
}

fn new_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.tf");
    (directory, path)
}

#[test]
fn aarch64_registers_are_gdbs_defaults() {
    let elf = testdata("tsave-aarch64/program.elf");
    let elf = elf.to_str().unwrap();
    let (_directory, path) = new_file();
    for description in files("aarch64") {
        trace_file(&path, description, &block(788 / 4), false);
        let wanted = by_itself(&path, &["set architecture aarch64".to_owned()]);
        let status = ["cpsr", "cpsr"];
        same(&path, &["--arch", "aarch64"], &wanted, status, &[]);
        same(&path, &["--elf", elf], &wanted, status, &[]);
    }
    // If the file names the architecture, no option is needed; a short block ends early.
    trace_file(
        &path,
        Description::Architecture("aarch64"),
        &block(67),
        false,
    );
    let wanted = by_itself(&path, &[]);
    same(&path, &[], &wanted, ["cpsr", "cpsr"], &[]);
}

#[test]
fn arm_registers_are_gdbs_defaults_with_space_for_the_fpa() {
    let elf = testdata("recorded/ptm/cores-a15-bare-a15.elf");
    let elf = elf.to_str().unwrap();
    let (_directory, path) = new_file();
    for description in files("armv7") {
        trace_file(&path, description, &block(168 / 4), false);
        let wanted = by_itself(&path, &["set architecture armv7".to_owned()]);
        let fpa = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "fps"];
        same(&path, &["--arch", "arm"], &wanted, ["cpsr", "cpsr"], &fpa);
        same(&path, &["--elf", elf], &wanted, ["cpsr", "cpsr"], &fpa);
    }
}

#[test]
fn m_profile_is_detected_from_build_attributes() {
    let elf = testdata("mps2-m4/program.elf");
    let elf = elf.to_str().unwrap();
    let (_directory, path) = new_file();
    for description in files("arm") {
        trace_file(&path, description, &block(168 / 4), false);
        let wanted = by_itself(&path, &[format!("file {elf}")]);
        let fpa = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "fps"];
        same(&path, &["--elf", elf], &wanted, ["cpsr", "xpsr"], &fpa);
        same(
            &path,
            &["--arch", "m-profile"],
            &wanted,
            ["cpsr", "xpsr"],
            &fpa,
        );
    }
}

/// The file that GDB saved from a live session, without the lines of its description.
#[test]
fn a_saved_session_without_its_description_is_the_same() {
    let saved = std::fs::read(testdata("tsave-aarch64/saved.tf")).unwrap();
    let (_directory, path) = new_file();
    let end = saved.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
    let head = String::from_utf8_lossy(&saved[..end]).into_owned();
    let head = head.split_inclusive('\n');
    let kept: String = head.filter(|line| !line.starts_with("tdesc")).collect();
    std::fs::write(&path, [kept.as_bytes(), &saved[end..]].concat()).unwrap();
    let elf = testdata("tsave-aarch64/program.elf");
    let expected = std::fs::read_to_string(testdata("tsave-aarch64/expected.txt")).unwrap();
    let first = expected.split("frame:").nth(1).unwrap();
    let shown = session(
        &path,
        &["--elf", elf.to_str().unwrap()],
        &["tfind 0", "info registers"],
    );
    let registers = first.lines().filter(|line| {
        let name = line.split_whitespace().next().unwrap_or_default();
        name.starts_with('x') || matches!(name, "sp" | "pc")
    });
    let mut count = 0;
    for line in registers {
        assert!(shown.contains(line), "{line}: {shown}");
        count += 1;
    }
    assert_eq!(count, 33);
    // `--trace` takes the same options.
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let mut convert = armsnap();
    convert.args(["convert", "--trace", "--elf"]).arg(&elf);
    let told = run(convert.arg(&path).arg(&out));
    assert!(told.status.success(), "{}", text(&told));
    let info = run(armsnap().arg("info").arg(&out));
    assert!(text(&info).contains("frames"), "{}", text(&info));
}

#[test]
fn big_endian_frames_are_read() {
    let (_directory, path) = new_file();
    let block: Vec<u8> = (0..42_u32)
        .flat_map(|word| (0x100 + word).to_be_bytes())
        .collect();
    trace_file(&path, Description::None, &block, true);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let mut convert = armsnap();
    convert.args(["convert", "--arch", "arm", "--frame", "0"]);
    let told = run(convert.arg(&path).arg(&out));
    assert!(told.status.success(), "{}", text(&told));
    let core = std::fs::read_to_string(out.join("device1.ini")).unwrap();
    for line in [
        "R0(size:32)=0x00000100",
        "PC(size:32)=0x0000010f",
        "CPSR(size:32)=0x00000129",
    ] {
        assert!(core.contains(line), "{line}: {core}");
    }
}

#[test]
fn an_unknown_or_contradictory_architecture_is_an_error() {
    let (_directory, path) = new_file();
    let out = path.with_file_name("out");
    let elf = testdata("mps2-m4/program.elf");
    let elf = elf.to_str().unwrap();
    for (description, options, wanted) in [
        (
            Description::None,
            &[][..],
            "--arch names it, or --elf the program",
        ),
        (
            Description::Architecture("aarch64"),
            &["--elf", elf][..],
            "it says AArch64, and the program says M-profile",
        ),
        (
            Description::None,
            &["--elf", elf, "--arch", "aarch64"][..],
            "--arch says AArch64, and ",
        ),
    ] {
        trace_file(&path, description, &block(42), false);
        for command in ["convert", "serve"] {
            let mut run_it = armsnap();
            run_it.arg(command).args(options).arg(&path);
            match command {
                "convert" => run_it.arg(&out),
                _ => run_it.arg("--stdio"),
            };
            let output = run(&mut run_it);
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            assert!(text(&output).contains(wanted), "{}", text(&output));
        }
    }
}
