//! `armsnap save` in GDB, with live emulators, core files and other snapshots: `armsnap gdb` on the
//! result shows the same registers, memory and back traces.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gdb::{armsnap, need_gdb, run, session, shared, testdata, text};
use tempfile::TempDir;

/// A timeout longer than an emulator takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An emulator behind a socket, ended when dropped.
struct Emulator {
    child: Child,
    socket: PathBuf,
}

impl Emulator {
    fn start(program: &str, package: &str, arguments: &[&str], directory: &Path) -> Self {
        let socket = directory.join("gdb");
        let place = match program.contains("system") {
            true => format!("unix:{},server=on,wait=off", socket.display()),
            false => socket.display().to_string(),
        };
        let mut command = Command::new(program);
        match program.contains("system") {
            true => command.args(["-gdb", &place]),
            false => command.args(["-g", &place]),
        };
        let child = command
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|_| panic!("{program} is not installed: install {package}"));
        let mut emulator = Self { child, socket };
        let start = Instant::now();
        while !emulator.socket.exists() {
            assert!(emulator.child.try_wait().unwrap().is_none(), "{program}");
            assert!(start.elapsed() < PATIENCE, "{program} does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        emulator
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file to be sourced, as the program prints it.
fn commands_file(directory: &Path) -> PathBuf {
    let output = run(armsnap().arg("gdb-commands"));
    assert!(output.status.success());
    let file = directory.join("armsnap.py");
    std::fs::write(&file, output.stdout).unwrap();
    file
}

/// The output of a GDB session with armsnap's commands, not started by `armsnap gdb`.
fn plain_gdb(directory: &Path, arguments: &[&str], commands: &[String]) -> String {
    need_gdb();
    let file = commands_file(directory);
    let mut command = Command::new("gdb-multiarch");
    command.args(["-nx", "-batch", "-ex"]);
    command.arg(format!("source {}", file.display()));
    command.args(arguments);
    for line in commands {
        command.args(["-ex", line]);
    }
    text(&run(&mut command))
}

/// Commands that show what must be the same on the live target and on the snapshot.
fn looks(threads: &[u32], registers: &[String], more: &[&str]) -> Vec<String> {
    let mut commands = Vec::new();
    for thread in threads {
        commands.push(format!("thread {thread}"));
        commands.push("echo <<<\\n".to_owned());
        commands.push("backtrace -full".to_owned());
        for name in registers {
            // Targets have different views of a vector register, but the same bits.
            let view = if name.starts_with('v') { ".d.u" } else { "" };
            commands.push(format!("echo {name}\\ "));
            commands.push(format!("output/x ${name}{view}"));
            commands.push("echo \\n".to_owned());
        }
        commands.extend(more.iter().map(ToString::to_string));
        commands.push("echo >>>\\n".to_owned());
    }
    commands
}

/// The output between the marks.
fn shown(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text
        .split("<<<\n")
        .skip(1)
        .map(|part| part.split_once(">>>\n").expect(text).0)
        .collect();
    assert!(!parts.is_empty(), "{text}");
    parts
}

fn names(list: &[(&str, u32)]) -> Vec<String> {
    list.iter()
        .flat_map(|(prefix, count)| (0..*count).map(move |n| format!("{prefix}{n}")))
        .collect()
}

fn aarch64_registers() -> Vec<String> {
    let mut all = names(&[("x", 31), ("v", 32)]);
    all.extend(["sp", "pc", "cpsr", "fpsr", "fpcr"].map(str::to_owned));
    all
}

/// Runs the same commands on the snapshot and compares the output.
fn snapshot_shows(snapshot: &Path, before: &str, commands: &[String]) {
    let checked = run(armsnap().arg("check").arg(snapshot));
    assert!(checked.status.success(), "{}", text(&checked));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let after = session(snapshot, &[], &commands);
    let lines = |text| -> Vec<String> {
        let parts: Vec<&str> = shown(text);
        parts
            .iter()
            .flat_map(|part| part.lines())
            .map(str::to_owned)
            .collect()
    };
    let (before, after) = (lines(before), lines(&after));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
}

/// The entries of a directory, with hidden files.
fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_live_two_core_system() {
    let directory = tempfile::tempdir().unwrap();
    let program = testdata("virt-a57").join("program.elf");
    let program = program.to_str().unwrap();
    let emulator = Emulator::start(
        "qemu-system-aarch64",
        "qemu-system-arm",
        &[
            "-M",
            "virt",
            "-cpu",
            "cortex-a57",
            "-smp",
            "2",
            "-m",
            "16M",
            "-nodefaults",
            "-display",
            "none",
            "-icount",
            "shift=0",
            "-S",
            "-kernel",
            program,
        ],
        directory.path(),
    );
    let saved = directory.path().join("saved");
    let mut registers = aarch64_registers();
    registers.extend(["SCTLR", "TTBR0_EL1", "VBAR", "ESR_EL1"].map(str::to_owned));
    let look = looks(
        &[1, 2],
        &registers,
        &["x/64xg &book", "x/32xw main", "x/16xg $sp", "print ring"],
    );
    let mut commands = vec![
        format!("target remote {}", emulator.socket.display()),
        "break halt_here".to_owned(),
        "continue".to_owned(),
    ];
    commands.extend(look.clone());
    commands.push("thread 2".to_owned());
    commands.push("frame 1".to_owned());
    commands.push(format!("armsnap save {}", saved.display()));
    commands.push("echo still:\\n".to_owned());
    commands.push("frame".to_owned());
    let live = plain_gdb(directory.path(), &[program], &commands);
    assert!(live.contains("saved: 2 cores, "), "{live}");
    // The selected thread and frame do not change.
    let (_, after) = live.split_once("still:\n").unwrap();
    assert!(after.starts_with("#1 "), "{live}");
    assert_eq!(
        entries(directory.path()),
        ["armsnap.py", "gdb", "saved"],
        "{live}"
    );
    snapshot_shows(&saved, &live, &look);
}

#[test]
fn a_live_microcontroller_in_an_exception() {
    let directory = tempfile::tempdir().unwrap();
    let program = testdata("mps2-m4").join("program.elf");
    let program = program.to_str().unwrap();
    let machine = "-M mps2-an386 -nodefaults -display none -S -kernel";
    let mut arguments: Vec<&str> = machine.split(' ').collect();
    arguments.push(program);
    let emulator = Emulator::start(
        "qemu-system-arm",
        "qemu-system-arm",
        &arguments,
        directory.path(),
    );
    let saved = directory.path().join("saved");
    let mut registers = names(&[("r", 13), ("d", 16)]);
    registers.extend(["sp", "lr", "pc", "xpsr", "fpscr"].map(str::to_owned));
    let look = looks(&[1], &registers, &["x/16xw $sp", "x/xw 0xe000ed08"]);
    let mut commands = vec![
        format!("target remote {}", emulator.socket.display()),
        "break halt_here".to_owned(),
        "continue".to_owned(),
    ];
    commands.extend(look.clone());
    commands.push(format!("armsnap save {}", saved.display()));
    let live = plain_gdb(directory.path(), &[program], &commands);
    // Through the exception, whose stack frame has floating-point registers.
    assert!(live.contains("<signal handler called>"), "{live}");
    assert!(live.contains("in main ()"), "{live}");
    snapshot_shows(&saved, &live, &look);
}

/// A recursive program without libraries that crashes.
const CRASH: &str = r#"
struct node { struct node *next; int value; };
static struct node nodes[6];
static volatile double ratio = 0.5;
__attribute__((noinline)) static int deep(struct node *node, int depth) {
    double local = ratio * depth;
    if (!node->next)
        *(volatile int *)8 = (int)local + node->value;
    return deep(node->next, depth + 1) + 1;
}
void _start(void) {
    for (int i = 0; i < 6; i++) {
        nodes[i].value = 4711 + i;
        nodes[i].next = i < 5 ? &nodes[i + 1] : 0;
    }
    deep(nodes, 0);
}
"#;

/// Compiles it in a temporary directory: for fixed addresses (`-static`), or position independent
/// (`-static-pie`).
fn crashing_program(kind: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("crash.c"), CRASH).unwrap();
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-g", "-O0", kind, "-nostdlib", "-ffreestanding"])
        .args(["-fno-stack-protector", "-o", "crash", "crash.c"])
        .current_dir(directory.path())
        .status()
        .expect("aarch64-linux-gnu-gcc is not installed: install gcc-aarch64-linux-gnu");
    assert!(status.success());
    let program = directory.path().join("crash");
    (directory, program)
}

fn crash_look(registers: &[String]) -> Vec<String> {
    looks(
        &[1],
        registers,
        &[
            "print nodes",
            "print ratio",
            "x/32xg $sp",
            "x/i $pc",
            "frame 3",
            "print *node",
        ],
    )
}

fn live_user_program(kind: &str) {
    let (directory, program) = crashing_program(kind);
    let program = program.to_str().unwrap();
    let emulator = Emulator::start("qemu-aarch64", "qemu-user", &[program], directory.path());
    let saved = directory.path().join("saved");
    let look = crash_look(&aarch64_registers());
    let mut commands = vec![
        format!("target remote {}", emulator.socket.display()),
        "continue".to_owned(),
    ];
    commands.extend(look.clone());
    commands.push(format!("armsnap save {}", saved.display()));
    let live = plain_gdb(directory.path(), &[program], &commands);
    assert!(
        live.contains("#6  ") && live.contains("_start ()"),
        "{live}"
    );
    assert!(live.contains("saved: 1 core, "), "{live}");
    assert!(live.contains("program crash\n"), "{live}");
    snapshot_shows(&saved, &live, &look);
}

#[test]
fn a_live_user_program() {
    live_user_program("-static");
}

#[test]
fn a_live_position_independent_program() {
    live_user_program("-static-pie");
}

/// Saves a core file and compares the registers that it contains.
fn core_file_becomes_a_snapshot(directory: &Path, program: &str, core: &str) {
    let saved = directory.join("saved");
    let look = crash_look(&aarch64_registers());
    let mut commands = look.clone();
    commands.push(format!("armsnap save {}", saved.display()));
    let before = plain_gdb(directory, &[program, core], &commands);
    assert!(
        before.contains("#6  ") && before.contains("_start ()"),
        "{before}"
    );
    assert!(before.contains("saved: 1 core, "), "{before}");
    snapshot_shows(&saved, &before, &look);
}

#[test]
fn a_core_file_in_the_kernels_format() {
    let (directory, program) = crashing_program("-static");
    // The emulator writes the core file of its program as Linux would, and then crashes itself:
    // its own core file is kept small.
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 65536 && exec qemu-aarch64 ./crash"])
        .current_dir(directory.path());
    run(&mut command);
    let core = entries(directory.path())
        .into_iter()
        .find(|name| name.starts_with("qemu_crash") && name.ends_with(".core"))
        .expect("the emulator wrote no core file");
    let core = directory.path().join(core);
    core_file_becomes_a_snapshot(
        directory.path(),
        program.to_str().unwrap(),
        core.to_str().unwrap(),
    );
}

fn core_file_of_gdb(kind: &str) {
    let (directory, program) = crashing_program(kind);
    let program = program.to_str().unwrap();
    let emulator = Emulator::start("qemu-aarch64", "qemu-user", &[program], directory.path());
    let core = directory.path().join("made.core");
    let commands = [
        format!("target remote {}", emulator.socket.display()),
        "continue".to_owned(),
        format!("generate-core-file {}", core.display()),
    ];
    plain_gdb(directory.path(), &[program], &commands);
    core_file_becomes_a_snapshot(directory.path(), program, core.to_str().unwrap());
}

#[test]
fn a_core_file_of_gdb() {
    core_file_of_gdb("-static");
}

#[test]
fn a_core_file_of_a_position_independent_program() {
    core_file_of_gdb("-static-pie");
}

#[test]
fn another_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    for (name, threads, registers, more) in [
        (
            "mps2-m4",
            &[1][..],
            [
                names(&[("r", 13), ("d", 16)]),
                ["sp", "lr", "pc", "xpsr", "fpscr"]
                    .map(str::to_owned)
                    .to_vec(),
            ]
            .concat(),
            ["x/64xw 0x20000f00", "x/4xw 0xe000ef34"],
        ),
        (
            "virt-a57",
            &[1, 2][..],
            [aarch64_registers(), vec!["TTBR0_EL1".to_owned()]].concat(),
            ["x/64xg &book", "print ring"],
        ),
    ] {
        let snapshot = testdata(name);
        let saved = directory.path().join(name);
        let look = looks(threads, &registers, &more);
        let save = format!("armsnap save {}", saved.display());
        let mut commands: Vec<&str> = look.iter().map(String::as_str).collect();
        commands.push(&save);
        let before = session(&snapshot, &[], &commands);
        // Source files are searched for beside the program.
        snapshot_shows(&saved, &before, &look);
        let device = std::fs::read_to_string(saved.join(format!(
            "{}.ini",
            ["Cortex-M4_0", "Cortex-A57_0"][usize::from(name == "virt-a57")]
        )))
        .unwrap();
        let kind = ["type=Cortex-M4\n", "type=Cortex-A57\n"][usize::from(name == "virt-a57")];
        assert!(device.contains(kind), "{device}");
    }
}

#[test]
fn unknown_registers_and_memory_are_left_out() {
    let Some(snapshot) = shared("tc2-ptm-rstk-t32") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("saved");
    let save = format!("armsnap save {}", saved.display());
    // In a trace frame, the program counter and the instruction there are known.
    let text = session(
        &snapshot,
        &["--core=Cortex-A15_0"],
        &["tfind 5", "output/x $pc", "echo \\n", &save],
    );
    assert!(text.contains("saved: 1 core, "), "{text}");
    let pc = text
        .lines()
        .find(|line| line.starts_with("0x8000") && !line.contains(' '))
        .expect(&text);
    let device = std::fs::read_to_string(saved.join("Cortex-A15_0.ini")).unwrap();
    let registers: Vec<&str> = device
        .lines()
        .skip_while(|line| *line != "[regs]")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .collect();
    assert_eq!(registers, [format!("PC={pc}")], "{device}");
    assert_eq!(device.matches("[dump").count(), 1, "{device}");
}

#[test]
fn requested_memory_is_saved_with_stacks_and_code() {
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("saved");
    let save = format!(
        "armsnap save '{}' --memory &book,sizeof(book) --memory=0x400ffff0,32",
        saved.display()
    );
    let text = session(
        &testdata("virt-a57"),
        &[],
        &[&save, "print sizeof(book)", "backtrace"],
    );
    // Stacks and the code of all callers are always saved.
    let again = session(&saved, &[], &["backtrace"]);
    let (_, frames) = text.split_once("\n#0 ").unwrap();
    let frames: Vec<&str> = frames
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    assert_eq!(frames.len(), 7, "{text}");
    assert!(frames.iter().all(|frame| again.contains(frame)), "{again}");
    let files = entries(&saved);
    // There is no memory below 0x40100000: that part is left out.
    let memory = ["memory_40100000.bin", "memory_40101028.bin"];
    for name in memory {
        assert!(files.iter().any(|file| file == name), "{files:?}");
    }
    let wanted = "left out: 16 bytes that cannot be read, at 0x400ffff0-0x400fffff\n";
    assert!(text.contains(wanted), "{text}");
    let size = |name: &str| std::fs::metadata(saved.join(name)).unwrap().len();
    assert_eq!(size(memory[0]), 16);
    assert!(text.contains(&format!("= {}\n", size(memory[1]))), "{text}");
}

#[test]
fn requested_memory_is_saved_in_any_language() {
    let directory = tempfile::tempdir().unwrap();
    for language in ["rust", "ada", "pascal", "fortran", "asm"] {
        let saved = directory.path().join(language);
        let save = format!("armsnap save '{}' --memory 1074790400,16", saved.display());
        let language = format!("set language {language}");
        let text = session(&testdata("virt-a57"), &[], &[&language, &save]);
        assert!(saved.join("memory_40100000.bin").exists(), "{text}");
    }
}

#[test]
fn a_board_without_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let program = testdata("mps2-m4").join("program.elf");
    let machine = "-M mps2-an386 -nographic -monitor none -serial none -S -kernel";
    let mut arguments: Vec<&str> = machine.split(' ').collect();
    arguments.push(program.to_str().unwrap());
    let emulator = Emulator::start(
        "qemu-system-arm",
        "qemu-system-arm",
        &arguments,
        directory.path(),
    );
    let saved = directory.path().join("saved");
    let look = looks(
        &[1],
        &["r0", "sp", "lr", "pc"].map(str::to_owned),
        &["x/8i $pc", "x/4xw $lr & ~1", "x/4xw $sp"],
    );
    let mut commands = vec![
        format!("target remote {}", emulator.socket.display()),
        "break *0x4c".to_owned(),
        "continue".to_owned(),
    ];
    commands.extend(look.clone());
    commands.push(format!("armsnap save {}", saved.display()));
    let live = plain_gdb(directory.path(), &[], &commands);
    assert!(
        live.contains("left out: memory other than stacks and code"),
        "{live}"
    );
    assert!(live.contains("no program: GDB has no program"), "{live}");
    snapshot_shows(&saved, &live, &look);
}

#[test]
fn wrong_arguments_write_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(directory.path().join("mine")).unwrap();
    std::fs::write(directory.path().join("mine/notes"), "keep").unwrap();
    std::fs::create_dir(directory.path().join("old")).unwrap();
    std::fs::write(directory.path().join("old/snapshot.ini"), "keep").unwrap();
    for (command, wanted) in [
        ("armsnap save".to_owned(), "required: DIR"),
        (
            format!("armsnap save {} --all", at("new")),
            "unrecognized arguments: --all",
        ),
        (
            format!("armsnap save {} --memory 0,0", at("new")),
            "expected a range of memory within the address space",
        ),
        (
            format!("armsnap save {} --memory=-1,2", at("new")),
            "expected a range of memory within the address space",
        ),
        (
            format!("armsnap save {} --memory nowhere,2", at("new")),
            "nowhere: No symbol",
        ),
        (
            format!("armsnap save {} --memory 0,64", at("new")),
            "none of this memory can be read",
        ),
        (
            format!("armsnap save {}", at("old")),
            "exists; --force replaces a snapshot",
        ),
        (
            format!("armsnap save {} --force", at("mine")),
            "exists and is not a snapshot",
        ),
        (
            format!("armsnap save {}", at("no/where")),
            "No such file or directory",
        ),
        (
            format!("armsnap attach {}", at("new")),
            "no such file or directory",
        ),
        ("armsnap attach".to_owned(), "expected a snapshot"),
    ] {
        let text = session(&testdata("virt-a57"), &[], &[&command]);
        assert!(text.contains(wanted), "{command}: {text}");
        assert!(!text.contains("Traceback"), "{command}: {text}");
        assert_eq!(entries(directory.path()), ["mine", "old"], "{command}");
    }
    let text = plain_gdb(
        directory.path(),
        &[],
        &[format!("armsnap save {}", at("new"))],
    );
    assert!(text.contains("there is nothing to save"), "{text}");
    let kept = std::fs::read_to_string(directory.path().join("old/snapshot.ini")).unwrap();
    assert_eq!(kept, "keep");
    // A snapshot is replaced on request.
    let save = format!("armsnap save {} --force", at("old"));
    let text = session(&testdata("mps2-m4"), &[], &[&save]);
    assert!(text.contains("old: 1 core, "), "{text}");
    assert_eq!(entries(directory.path()), ["armsnap.py", "mine", "old"]);
}

#[test]
fn attach_opens_another_snapshot() {
    let m4 = testdata("mps2-m4").display().to_string();
    let text = session(
        &testdata("virt-a57"),
        &[],
        &[
            &format!("armsnap attach '{m4}'"),
            "print $xpsr",
            "backtrace 1",
        ],
    );
    assert!(text.contains("= 1627389963"), "{text}");
    assert!(text.contains("#0  grant (request=0x20000fd0"), "{text}");
}

#[test]
fn help_and_completion() {
    let text = session(
        &testdata("mps2-m4"),
        &[],
        &[
            "help armsnap",
            "help armsnap save",
            "complete armsnap s",
            "complete armsnap save x --f",
            &format!(
                "complete armsnap attach {}/mps2-m4/snap",
                testdata("").display()
            ),
        ],
    );
    for wanted in [
        "armsnap save -- Save the target of GDB as a snapshot.",
        "armsnap attach -- Open a snapshot.",
        "Usage: armsnap save DIR [--memory START,LENGTH]... [--memory SIZE] [--force]",
        "\narmsnap save\n",
        "\narmsnap save x --force\n",
        "/mps2-m4/snapshot.ini\n",
    ] {
        assert!(text.contains(wanted), "{wanted:?}: {text}");
    }
}
