//! Registers, arguments, locals and memory that GDB shows at random places of the past of many
//! programs, compared with GDB on the emulator stopped at the same places. None may be wrong.
//!
//! The programs are in `past_programs/`. `ARMSNAP_PLACES=SEED,COUNT` selects other places, or more.

mod compare;
mod places;

use crate::support::gdb::{run_within, text};
use crate::support::record::installed;
use compare::{Score, agreed_places, compare};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use places::{Dice, Place, choose};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LOOK: &str = include_str!("past_programs/look.py");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/long/past_programs");
const PATIENCE: Duration = Duration::from_secs(300);

/// What is recorded: its source, how it is compiled, and options of `armsnap record`.
#[derive(Clone, Copy)]
struct Program {
    source: &'static str,
    compiler: &'static str,
    options: &'static str,
    record: &'static str,
}

const fn program(
    source: &'static str,
    compiler: &'static str,
    options: &'static str,
    record: &'static str,
) -> Program {
    Program {
        source,
        compiler,
        options,
        record,
    }
}

const A64: &str = "aarch64-linux-gnu-gcc";
const A64_CPP: &str = "aarch64-linux-gnu-g++";
const ARM: &str = "arm-linux-gnueabihf-gcc";
const ARM_CPP: &str = "arm-linux-gnueabihf-g++";

/// The processor has pointer authentication and branch targets.
const SIGNED: &str = "-O2 -mbranch-protection=standard -static";
const LIBRARIES: &str = "--sysroot /usr/aarch64-linux-gnu";
const ARM_LIBRARIES: &str = "--sysroot /usr/arm-linux-gnueabihf";
const GNU: &str = "--target=aarch64-unknown-linux-gnu -Clinker=aarch64-linux-gnu-gcc -Ctarget-feature=+crt-static";
const MUSL: &str =
    "--target=aarch64-unknown-linux-musl -Clinker=aarch64-linux-gnu-gcc -Copt-level=2";

impl Program {
    fn emulator(&self) -> &'static str {
        if self.compiler.starts_with("arm") {
            "qemu-arm"
        } else {
            "qemu-aarch64"
        }
    }

    fn build(&self, into: &Path) {
        let source = Path::new(SOURCES).join(self.source);
        let mut compiler = Command::new(self.compiler);
        match self.compiler {
            "go" => {
                compiler
                    .env("GOOS", "linux")
                    .env("GOARCH", "arm64")
                    .env("CGO_ENABLED", "0");
                compiler.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
                compiler.args(["build", "-trimpath"]);
            }
            "rustc" => {
                compiler.arg("-g");
            }
            _ => {
                compiler.args(["-g", "-w", "-lm", "-pthread"]);
            }
        }
        compiler
            .args(self.options.split_whitespace())
            .arg("-o")
            .arg(into)
            .arg(&source);
        let built = run_within(&mut compiler, PATIENCE);
        assert!(built.status.success(), "{built:?}");
        if self.compiler == "go" {
            never_preempt(into);
        }
    }

    fn name(&self) -> String {
        format!(
            "{} {} {} {}",
            self.compiler, self.source, self.options, self.record
        )
    }

    /// Options of the emulator that are those of the recording.
    fn emulation(&self) -> Vec<&'static str> {
        let mut options = Vec::new();
        let mut words = self.record.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--cpu" => options.extend(["-cpu", words.next().unwrap()]),
                "--sysroot" => options.extend(["-L", words.next().unwrap()]),
                _ => {}
            }
        }
        if self.emulator() == "qemu-aarch64" && !options.contains(&"-cpu") {
            // The recording's.
            options.extend(["-cpu", "max,sve=off"]);
        }
        options
    }
}

/// Whether there is a compiler for the program.
fn builds(what: &Program) -> bool {
    let version = if what.compiler == "go" {
        "version"
    } else {
        "--version"
    };
    let found = Command::new(what.compiler).arg(version).output();
    let target = what
        .options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("--target="));
    let libraries = target.is_none_or(|target| {
        let output = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", target])
            .output();
        output
            .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    });
    let is_there = found.is_ok() && libraries;
    if !is_there {
        crate::support::skip::missing(&format!("{} {}", what.compiler, target.unwrap_or_default()));
    }
    is_there
}

/// Makes `runtime.retake` of a Go program return 0 at once: every 10 ms, which GDB's stops take, it has a goroutine
/// give up its thread, and runs would differ.
fn never_preempt(program: &Path) {
    const RETURN_0: [u32; 2] = [0xd280_0000, 0xd65f_03c0]; // mov x0, #0; ret
    let mut bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let retake = file.symbol_by_name("runtime.retake").unwrap().address();
    let text = file.section_by_name(".text").unwrap();
    let (offset, _) = text.file_range().unwrap();
    let at = (offset + retake - text.address()) as usize;
    let code = RETURN_0.map(u32::to_le_bytes);
    bytes[at..at + 8].copy_from_slice(code.as_flattened());
    std::fs::write(program, bytes).unwrap();
}

/// Variables that make runs alike.
fn alike(command: &mut Command) {
    command.env("QEMU_RAND_SEED", "7");
    command.envs([
        ("GOGC", "off"),
        ("GOMAXPROCS", "1"),
        ("GODEBUG", "asyncpreemptoff=1"),
    ]);
}

/// The variables of a program, as pairs of an address and a size.
fn globals(program: &Path) -> Vec<(u64, u64)> {
    const MOST: usize = 24;
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let offset = places::load_offset(&bytes);
    let data = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0);
    let own = data.filter(|symbol| symbol.name().is_ok_and(|name| name.contains("shared_")));
    own.map(|symbol| (offset + symbol.address(), symbol.size().min(64)))
        .take(MOST)
        .collect()
}

/// Runs GDB with the script; what it found.
fn looked(directory: &Path, name: &str, mut plan: Value, gdb: &mut Command) -> Value {
    let [script, file, out] = ["look.py", "plan", name].map(|name| directory.join(name));
    plan["out"] = json!(out);
    std::fs::write(&script, LOOK).unwrap();
    std::fs::write(&file, plan.to_string()).unwrap();
    gdb.args(["-ex", &format!("python plan = '{}'", file.display())]);
    gdb.args(["-ex", &format!("source {}", script.display())]);
    alike(gdb);
    let said = text(&run_within(gdb, PATIENCE));
    let found = std::fs::read(&out).unwrap_or_else(|_| panic!("{said}"));
    if said.contains("Error") || said.contains(" places: ") {
        eprintln!("{name}: {said}");
    }
    serde_json::from_slice(&found).unwrap()
}

/// What GDB shows in the emulator.
fn truth(
    what: &Program,
    directory: &Path,
    program: &Path,
    run: u32,
    threads: bool,
    places: &[Place],
) -> Value {
    let socket = directory.join(format!("socket{run}"));
    let mut emulator = Command::new(what.emulator());
    emulator
        .args(what.emulation())
        .arg("-g")
        .arg(&socket)
        .arg(program);
    emulator
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    alike(&mut emulator);
    let mut emulator = emulator.spawn().unwrap();
    for _ in 0..3000 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let numbered = places.iter().enumerate();
    let places: Vec<Value> = numbered
        .map(|(number, place)| json!({"number": number, "way": place.way}))
        .collect();
    let plan = json!({"live": true, "threads": threads, "bytes": false, "places": places, "globals": globals(program)});
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).arg(program);
    if let Some(at) = what.emulation().iter().position(|word| *word == "-L") {
        gdb.args(["-iex", &format!("set sysroot {}", what.emulation()[at + 1])]);
    }
    gdb.args(["-ex", &format!("target remote {}", socket.display())]);
    let found = looked(directory, &format!("truth{run}"), plan, &mut gdb);
    let _ = emulator.kill();
    emulator.wait().unwrap();
    found
}

/// Records a program.
fn record(what: &Program, program: &Path, snapshot: &Path, witness: &Path) {
    let mut record = Command::new(crate::support::armsnap());
    record
        .arg("record")
        .arg("-o")
        .arg(snapshot)
        .arg("--witness")
        .arg(witness);
    record
        .args(what.record.split_whitespace())
        .arg("--")
        .arg(program);
    alike(&mut record);
    // What libc does depends on where output goes, too.
    record
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let recorded = record.spawn().unwrap().wait_with_output().unwrap();
    assert!(snapshot.exists(), "{recorded:?}");
}

/// Compares at random places of a program.
fn score(what: &Program, seed: u64, count: usize) -> Score {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let [program, snapshot, witness] =
        ["program", "snapshot", "witness"].map(|name| directory.join(name));
    what.build(&program);
    record(what, &program, &snapshot, &witness);

    let mut dice = Dice(seed);
    let (threads, chosen) = choose(&snapshot, &witness, &program, what.source, count, &mut dice);
    let [one, other] = [1, 2].map(|run| truth(what, directory, &program, run, threads, &chosen));
    let truth = agreed_places(&one, &other);
    // The past, in another order.
    let mut places: Vec<Value> = truth.as_array().unwrap().clone();
    let places: Vec<Value> = (0..places.len())
        .map(|_| {
            let place = places.swap_remove(dice.below(places.len()));
            let number = place["number"].as_u64().unwrap();
            let chosen = &chosen[number as usize];
            let memory: Vec<&Value> = place["addresses"].as_array().unwrap().iter().filter(|address| !address.is_null()).collect();
            json!({"number": number, "core": chosen.core, "position": chosen.position, "memory": memory})
        })
        .collect();
    let plan =
        json!({"live": false, "threads": threads, "bytes": true, "places": places, "globals": []});
    let mut gdb = Command::new(crate::support::armsnap());
    gdb.arg("gdb").arg(&snapshot).args(["--", "-nx", "-batch"]);
    let past = looked(directory, "past", plan, &mut gdb);
    let mut score = compare(&past, &truth);
    score.places = (
        chosen.len(),
        truth.as_array().unwrap().len(),
        past.as_array().unwrap().len(),
    );
    score
}

/// Compares with each of some programs.
fn nothing_is_wrong(programs: &[Program]) {
    let from = std::env::var("ARMSNAP_PLACES").unwrap_or_default();
    let mut from = from
        .split(',')
        .map(|number| number.parse::<u64>().unwrap_or(0));
    let seed = from.next().filter(|seed| *seed > 0).unwrap_or(11);
    let count = from.next().unwrap_or(16) as usize;
    let mut wrong = Vec::new();
    let only = std::env::var("ARMSNAP_PROGRAM").unwrap_or_default();
    for what in programs.iter().filter(|what| what.name().contains(&only)) {
        if !installed(&[what.emulator(), "gdb-multiarch"]) || !builds(what) {
            continue;
        }
        let begin = std::time::Instant::now();
        let score = score(what, seed, count);
        eprintln!(
            "{}: {:?} {:?} {:.1?}",
            what.name(),
            score.places,
            score.kinds,
            begin.elapsed()
        );
        for line in score.wrong.iter().take(12) {
            eprintln!("  {line}");
            wrong.push(format!("{}: {line}", what.name()));
        }
        // If little is known, little can be wrong.
        let (chosen, looked, past) = score.places;
        let is_enough = chosen * 2 >= count
            && looked * 4 >= chosen * 3
            && past == looked
            && score.known("frames") >= past
            && score.known("registers") >= 3 * past
            // Other threads may write all memory of a Go program.
            && (what.compiler == "go" || score.known("memory") >= past);
        if !is_enough {
            wrong.push(format!(
                "{}: hardly anything was compared: {:?} {:?}",
                what.name(),
                score.places,
                score.kinds
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn c() {
    nothing_is_wrong(&[
        program("values.c", A64, "-O0 -static", ""),
        program("values.c", A64, "-O3 -static", "--data-addresses"),
        program("values.c", A64, "-O2 -flto -static", ""),
        program("values.c", A64, "-O1 -static-pie", ""),
        program("values.c", A64, "-O2", LIBRARIES),
        program("values.c", A64, SIGNED, "--cpu max"),
    ]);
}

#[test]
fn c_of_aarch32() {
    nothing_is_wrong(&[
        program("values.c", ARM, "-O0 -marm -static", ""),
        program("values.c", ARM, "-O2 -marm -static", ""),
        program("values.c", ARM, "-O1 -mthumb -static", ""),
        program("values.c", ARM, "-O3 -mthumb -static", ""),
        program("values.c", ARM, "-Os -mthumb", ARM_LIBRARIES),
    ]);
}

#[test]
fn signals() {
    nothing_is_wrong(&[
        program("signals.c", A64, "-O0 -static", ""),
        program("signals.c", A64, SIGNED, "--cpu max"),
        program("signals.c", ARM, "-O1 -marm -static", ""),
        program("signals.c", ARM, "-O2 -mthumb -static", ""),
    ]);
}

#[test]
fn longjmp() {
    nothing_is_wrong(&[
        program("longjmp.c", A64, "-O0 -static", ""),
        program("longjmp.c", A64, "-O2 -static", ""),
        program("longjmp.c", ARM, "-O1 -mthumb -static", ""),
    ]);
}

#[test]
fn coroutines() {
    nothing_is_wrong(&[
        program("coroutines.c", A64, "-O0 -static", ""),
        program("coroutines.c", A64, "-O2 -static", "--data-addresses"),
        program("coroutines.c", A64, "-O1 -DOWN_SWITCH -static", ""),
        program("coroutines.c", ARM, "-O2 -DOWN_SWITCH -marm -static", ""),
    ]);
}

#[test]
fn threads() {
    nothing_is_wrong(&[
        program("threads.c", A64, "-O0 -static", ""),
        program("threads.c", A64, "-O2 -static", "--data-addresses"),
        program("threads.c", ARM, "-O2 -marm -static", ""),
    ]);
}

#[test]
fn cpp() {
    nothing_is_wrong(&[
        program("exceptions.cpp", A64_CPP, SIGNED, "--cpu max"),
        program("exceptions.cpp", ARM_CPP, "-O0 -marm -static", ""),
        program("exceptions.cpp", ARM_CPP, "-O1 -mthumb -static", ""),
        program("containers.cpp", A64_CPP, "-O2 -flto -static", ""),
        program("containers.cpp", A64_CPP, "-O1", LIBRARIES),
        program("containers.cpp", ARM_CPP, "-O2 -marm -static", ""),
    ]);
}

#[test]
fn rust() {
    nothing_is_wrong(&[
        program("values.rs", "rustc", GNU, ""),
        program("values.rs", "rustc", MUSL, ""),
        program("panics.rs", "rustc", GNU, ""),
        program("panics.rs", "rustc", MUSL, "--data-addresses"),
    ]);
}

/// The callers of a function are known where it has caught an exception or a panic.
#[test]
fn what_catches_has_its_callers() {
    for (what, caught, callers) in [
        (
            program("exceptions.cpp", ARM_CPP, "-O0 -marm -static", ""),
            "sum += error.what()",
            ["#0 tries", "#1 main"],
        ),
        (
            program("exceptions.cpp", ARM_CPP, "-O0 -mthumb -static", ""),
            "sum += error.what()",
            ["#0 tries", "#1 main"],
        ),
        (
            program("panics.rs", "rustc", GNU, ""),
            "Err(payload) =>",
            ["#0 panics::tries", "#1 panics::main"],
        ),
    ] {
        if !installed(&[what.emulator(), "gdb-multiarch"]) || !builds(&what) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let [program, snapshot, witness] =
            ["program", "snapshot", "witness"].map(|name| directory.path().join(name));
        what.build(&program);
        record(&what, &program, &snapshot, &witness);
        let source = std::fs::read_to_string(Path::new(SOURCES).join(what.source)).unwrap();
        let line = source.lines().position(|line| line.contains(caught));
        let line = line.unwrap() + 1;
        let mut gdb = Command::new(crate::support::armsnap());
        gdb.arg("gdb").arg(&snapshot).args(["--", "-nx", "-batch"]);
        gdb.args(["-ex", &format!("break {}:{line}", what.source)]);
        gdb.args(["-ex", "reverse-continue", "-ex", "backtrace"]);
        let said = text(&run_within(&mut gdb, PATIENCE));
        let frames: Vec<String> = said
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let name = words.iter().position(|word| *word == "in");
                format!("{} {}", words[0], words[name.map_or(1, |at| at + 1)])
            })
            .collect();
        assert_eq!(frames, callers, "{}: {said}", what.name());
    }
}

#[test]
fn written_code() {
    nothing_is_wrong(&[
        program("jit.c", A64, "-O1 -static", ""),
        program("jit.c", A64, "-O0 -static", "--data-addresses"),
        program("jit.c", ARM, "-O2 -marm -static", ""),
        program("trampolines.c", A64, "-O0 -static", ""),
        program("trampolines.c", A64, "-O2 -static", ""),
        program("trampolines.c", ARM, "-O1 -mthumb -static", ""),
    ]);
}

#[test]
fn signals_with_data_addresses() {
    nothing_is_wrong(&[program("signals.c", A64, "-O1 -static", "--data-addresses")]);
}

#[test]
fn exceptions_through_cleanups() {
    nothing_is_wrong(&[program("exceptions.cpp", A64_CPP, "-O0 -static", "")]);
}

// The runtime's scheduler makes each run different, so a difference need not be a wrong value.
#[test]
#[ignore = "two runs of a Go program differ, so this does not pass each time"]
fn go() {
    nothing_is_wrong(&[
        program("values.go", "go", "", ""),
        program("values.go", "go", "-gcflags=all=-N", "--data-addresses"),
    ]);
}

/// A value that differs is wrong; an unknown one is not.
#[test]
fn a_wrong_value_is_found() {
    let place = |x0: Value, local: Value, word: &str| {
        let frame = json!({"pc": 4096, "name": "f", "kind": "normal", "registers": {"x0": x0, "sp": "0x9000"}, "values": {"local": local}});
        json!([{"number": 0, "position": "0+1", "frames": [frame], "memory": {"0x9000/8": word}}])
    };
    let truth = place(json!("0x1"), json!("5"), "0102030405060708");
    assert_eq!(compare(&truth, &truth).wrong.len(), 0);
    let unknown = place(Value::Null, Value::Null, "0102030405060708");
    assert_eq!(compare(&unknown, &truth).wrong.len(), 0);
    assert_eq!(compare(&unknown, &truth).known("registers"), 1);
    let wrong = place(json!("0x2"), json!("6"), "0102030405060709");
    assert_eq!(compare(&wrong, &truth).wrong.len(), 3);
    // Where two runs of the emulator differ, nothing can be said.
    assert_eq!(
        compare(&wrong, &agreed_places(&truth, &unknown))
            .wrong
            .len(),
        1
    );
}
