//! Trace files of `armsnap convert` in GDB: frames equal the listing of `armsnap decode`, the halted
//! state equals a served snapshot; and files saved by GDB are read.

use crate::support::convert::frames::{frames, listed};
use crate::support::convert::{RECORDED, convert, open};
use crate::support::gdb::{armsnap, need_gdb, run, shared, testdata, text};
use armsnap::tfile::{Block, File};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A trace file of one core of a snapshot.
fn trace_file(path: &Path, core: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.tf");
    convert(&[&["--core", core], options].concat(), [path, &file]);
    (directory, file)
}

/// The output of GDB with a trace file and a script.
fn session(file: &Path, script: &str) -> String {
    need_gdb();
    let path = file.with_extension("gdb");
    std::fs::write(&path, script).unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set pagination off"]);
    gdb.arg("-ex")
        .arg(format!("target tfile {}", file.display()));
    gdb.arg("-ex").arg(format!("source {}", path.display()));
    let text = text(&run(&mut gdb));
    assert!(!text.contains("warning"), "{text}");
    assert!(!text.contains("Error"), "{text}");
    text
}

/// The first, the last and `count` other numbers of `0..total`, the same in each run.
fn sample(total: usize, count: usize) -> Vec<usize> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chosen = vec![0, total - 1];
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chosen.push((state % total as u64) as usize);
    }
    chosen
}

/// Compares frames in GDB with the listing.
fn look(name: &str, core: &str) {
    let Some(path) = shared(name) else {
        return;
    };
    let loaded = open(&path);
    let listed = listed(&path, &loaded);
    let wanted = &listed[&loaded.snapshot.device_names().find(core).unwrap()];
    let all = ["--frames", "instructions", "--last", "1000000"];
    let (_whole, file) = trace_file(&path, core, &all);
    let bytes = std::fs::read(&file).unwrap();
    let found = frames(&File::open(&bytes, None).unwrap());
    assert!(
        found == *wanted,
        "{name}: the frames are not the instructions"
    );

    // GDB walks to each frame from the first one on.
    let wanted = &wanted[wanted.len().saturating_sub(10_000)..];
    let options = ["--frames", "instructions", "--last", "10000"];
    let (_directory, file) = trace_file(&path, core, &options);

    let chosen = sample(wanted.len(), 100);
    let mut script = String::new();
    for &number in &chosen {
        // From a 32-bit Arm frame without sp, GDB continues only after leaving it.
        writeln!(script, "tfind end\ntfind {}\necho frame:", number + 1).unwrap();
        script += "output $trace_frame\necho \\npc:\noutput/x $pc\necho \\n\n";
        for variable in wanted[number].variables.keys() {
            writeln!(script, "echo {variable}:\noutput ${variable}\necho \\n\n").unwrap();
        }
        if wanted[number].variables.contains_key("thumb") {
            script += "if $thumb\nset arm fallback-mode thumb\nelse\n\
                       set arm fallback-mode arm\nend\n";
        }
        let bytes = wanted[number].code.len() / 2;
        writeln!(script, "x/{bytes}xb $pc\nx/i $pc\necho sp:\np $sp\ntdump").unwrap();
    }
    let shown = session(&file, &script);
    let mut sections = shown.split("\nframe:").skip(1);
    for &number in &chosen {
        let section = sections.next().unwrap();
        let visit = &wanted[number];
        let (frame, rest) = section.split_once('\n').unwrap();
        assert_eq!(frame, (number + 1).to_string());
        let line = |key: &str| {
            let found = rest.lines().find_map(|line| line.strip_prefix(key));
            found.unwrap_or_else(|| panic!("no {key} in {section}"))
        };
        assert_eq!(line("pc:"), format!("{:#x}", visit.pc));
        for (variable, value) in &visit.variables {
            assert_eq!(line(&format!("{variable}:")), value.to_string());
            let dumped = format!("${variable} = {value}");
            assert!(
                rest.lines().any(|line| line == dumped),
                "{dumped}: {section}"
            );
        }
        let code = rest.lines().find(|line| line.contains(":\t0x")).unwrap();
        let code: String = code.split("\t0x").skip(1).collect();
        assert_eq!(code, visit.code, "{section}");
        assert!(line("sp:").ends_with("<unavailable>"), "{section}");
        // The disassembly is in the right instruction set.
        let arrow = format!("=> {:#x}:\t", visit.pc);
        let mnemonic = line(&arrow);
        assert!(!mnemonic.starts_with("Cannot"), "{section}");
    }
}

#[test]
fn gdb_shows_the_trace_of_tc2_ptm_rstk_t32() {
    look("tc2-ptm-rstk-t32", "Cortex-A15_0");
}

#[test]
fn gdb_shows_the_trace_of_a57_single_step() {
    look("a57_single_step", "Cortex-A57_0");
}

#[test]
fn gdb_shows_the_trace_of_001_ack_test() {
    look("001-ack_test", "cpu_0");
}

#[test]
fn gdb_shows_the_trace_of_recorded_etmv4() {
    look("recorded/etmv4", "Cortex-A57_1");
}

#[test]
fn gdb_shows_the_trace_of_recorded_ptm() {
    look("recorded/ptm", "Cortex-A15_0");
}

#[test]
fn gdb_shows_the_trace_of_recorded_etmv3() {
    look("recorded/etmv3", "Cortex-M4_0");
}

/// Compares the frame of the halted state with a served snapshot.
fn halted(path: &Path, core: &str, program: Option<&Path>) {
    let (_directory, file) = trace_file(path, core, &["--state-only"]);
    let expressions = ["p $pc", "p $sp", "x/4i $pc", "info registers", "bt"];
    let mut commands = Vec::new();
    for expression in expressions {
        commands.push(format!("echo <\\n\n{expression}\necho >\\n\n"));
    }
    let load = program.map(|p| format!("file {}\n", p.display()));
    let load = load.unwrap_or_default();
    let shown = session(&file, &format!("{load}tfind 0\n{}", commands.concat()));
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, commands.concat()).unwrap();
    let mut source = vec!["set pagination off".to_owned()];
    source.push(format!("source {}", script.display()));
    let source: Vec<&str> = source.iter().map(|line| &**line).collect();
    let mut options = vec!["--core", core];
    let program = program.map(|p| p.to_str().unwrap().to_owned());
    if let Some(program) = &program {
        options.extend(["--elf", program]);
    }
    let served = crate::support::gdb::session(path, &options, &source);
    let pieces = |text: &str| -> Vec<String> {
        let pieces = text.split("<\n").skip(1);
        pieces
            .map(|piece| piece.split(">\n").next().unwrap().to_owned())
            .collect()
    };
    let (shown, served) = (pieces(&shown), pieces(&served));
    assert_eq!(shown.len(), expressions.len());
    for (number, expression) in expressions.iter().enumerate() {
        // The registers that the server adds for past positions are not those of the core.
        let lines = served[number].split_inclusive('\n');
        let own = |line: &&str| line.starts_with("isa ") || line.starts_with("position ");
        let served: String = lines.filter(|line| !own(line)).collect();
        assert_eq!(shown[number], served, "{expression}");
    }
}

#[test]
fn the_halted_state_equals_the_served_snapshot() {
    for name in ["virt-a57", "mps2-m4"] {
        let path = testdata(name);
        let loaded = open(&path);
        for device in &loaded.snapshot.devices {
            halted(&path, &device.name, Some(&path.join("program.elf")));
        }
    }
    for (name, core, program) in [
        ("recorded/etmv4", "Cortex-A57_1", "program.elf"),
        ("recorded/ptm", "Cortex-A15_1", "cores-a15-bare-a15.elf"),
        ("recorded/etmv3", "Cortex-M4_0", "program.elf"),
    ] {
        let path = testdata(name);
        halted(&path, core, Some(&path.join(program)));
    }
    if let Some(path) = shared("tc2-ptm-rstk-t32") {
        halted(&path, "Cortex-A15_0", None);
    }
}

#[test]
fn gdb_loads_every_file_without_warnings() {
    let own = ["virt-a57", "mps2-m4"].into_iter().chain(RECORDED);
    let own = own.map(testdata);
    let real = [
        "juno_r1_1",
        "TC2",
        "stm_only",
        "itm_only_raw",
        "ts_marker",
        "event_test",
        "init-short-addr",
    ];
    let real = real.iter().filter_map(|name| shared(name));
    for path in own.chain(real) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("x.tf");
        convert(&[], [&path, &out]);
        let files = std::fs::read_dir(directory.path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "tf"));
        assert!(!files.is_empty());
        for file in files {
            let shown = session(&file, "tstatus\ninfo tvariables\ntfind 0\ntfind end\n");
            assert!(shown.contains("Trace notes: "), "{shown}");
        }
    }
}

/// A file that `tsave` writes in a live session is read completely; its architecture is not Arm.
#[test]
fn a_trace_file_of_a_live_session_is_read() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("saved.tf");
    let script = directory.path().join("script");
    let lines = format!(
        "set confirm off\nset pagination off\nset sysroot /nowhere\n\
         target remote | gdbserver --once - /bin/true\n\
         tvariable $cycles = 7\ntrace *($pc + 3) if $cycles > 1\n\
         actions\ncollect $regs, $cycles, *(char (*)[64])$rsp\nend\n\
         tstart\nstepi 4\ntstop\ntsave {}\nkill\n",
        saved.display()
    );
    std::fs::write(&script, lines).unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-x"]).arg(&script);
    let shown = text(&run(&mut gdb));
    if !saved.exists() {
        // Containers may forbid tracing; elsewhere gdbserver must work.
        assert!(shown.contains("ptrace"), "{shown}");
        crate::support::skip::unavailable("no process can be debugged here");
        return;
    }
    let bytes = std::fs::read(&saved).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let description = file.description();
    assert!(description.unknown.is_empty(), "{:?}", description.unknown);
    assert!(description.variables.iter().any(|v| v.name == "cycles"));
    assert_eq!(description.tracepoints.len(), 1);
    assert!(description.tracepoints[0].options[0].starts_with('X'));
    assert_eq!(
        file.count() as u64,
        description.status.as_ref().unwrap().frames.unwrap()
    );
    assert_eq!(file.count(), 1, "{shown}");
    let frame = file.frame(0).unwrap().unwrap();
    let kinds: Vec<u8> = frame
        .blocks()
        .map(|block| match block {
            Block::Registers(_) => b'R',
            Block::Memory { bytes, .. } => {
                assert_eq!(bytes.len(), 64);
                b'M'
            }
            Block::Variable { value, .. } => {
                assert_eq!(value, 7);
                b'V'
            }
            Block::Unreadable { .. } => b'?',
        })
        .collect();
    for kind in [b'R', b'M', b'V'] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(!kinds.contains(&b'?'));
    let out = directory.path().join("out");
    let output = run(armsnap().arg("convert").arg(&saved).arg(&out));
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(
        told.contains("expected the architecture of an Arm core, found i386:x86-64"),
        "{told}"
    );
    assert!(!out.exists());
}
