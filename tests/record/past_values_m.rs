//! Past values of Cortex-M programs with interrupts and with tasks on process stacks, compared with the
//! emulator's log of all registers.

use crate::process_stack::{MICROCONTROLLERS, build_program, told};
use crate::support::record::installed;
use crate::systems::record_image;
use crate::trustzone::build_trustzone;
use armsnap::arch::{Architecture, RegisterFile, Space};
use armsnap::program::elf::Elf;
use armsnap::quantity::Address;
use armsnap::recover::{FinalState, Limit, Options, Recovery, SnapshotMemory, Status};
use armsnap::semantics::Location;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::stop::Cancel;
use armsnap::timeline::{Direction, Timeline, TracedCore};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// R0 to R15, xPSR and D0 to D15 before an instruction.
type State = [u64; 33];

/// The states before each instruction, by the emulator's log of a run that takes the same interrupts at
/// the same instructions as a recording.
fn states(image: &Path, machine: &str) -> Vec<State> {
    let log = image.with_file_name("states.log");
    let run = Command::new("timeout")
        .args(["-k", "5", "60", "qemu-system-arm", "-M", machine])
        .args(
            "-icount shift=4 -nodefaults -display none -no-reboot -serial none -monitor none"
                .split(' '),
        )
        .args("-semihosting-config enable=on,target=native -accel tcg,thread=single".split(' '))
        .args("-singlestep -d cpu,fpu,exec,nochain -D".split(' '))
        .args([&log, Path::new("-kernel"), image])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&log).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let mut states: Vec<State> = Vec::new();
    let mut rewound = false;
    for line in text.lines() {
        if line.starts_with("cpu_io_recompile") {
            // The instruction is translated again, and logged again.
            rewound = true;
        } else if line.starts_with("Trace ") {
            if std::mem::take(&mut rewound) {
                states.pop();
            }
            states.push([0; 33]);
        }
        for word in line.split(' ') {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            let number: usize = match (name.strip_prefix('R'), name.strip_prefix('d')) {
                (Some(number), _) => number.parse().unwrap(),
                (_, Some(number)) => 17 + number.parse::<usize>().unwrap(),
                _ if name == "XPSR" => 16,
                _ => continue,
            };
            if let Some(state) = states.last_mut() {
                state[number] = u64::from_str_radix(value, 16).unwrap();
            }
        }
    }
    states
}

/// SG in memory.
const SG: [u8; 4] = [0x7f, 0xe9, 0x7f, 0xe9];

struct Recorded {
    /// The program that was recorded, and the one that is known of it.
    code: PathBuf,
    image: PathBuf,
    loaded: OpenSnapshot,
    memory: Arc<CoreMemory>,
    timeline: Timeline,
}

impl Recorded {
    fn open(image: &Path, output: &Path) -> Self {
        let loaded = Snapshot::open(output, &OpenOptions::default()).unwrap();
        let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        // The emulator does not provide memory of the other security state.
        let elf = Elf::open(image).unwrap();
        for segment in &elf.segments {
            let bytes = elf.mapped(segment);
            memory.add_region(Address(segment.address), bytes, Space::Any, "program");
        }
        let memory = Arc::new(memory);
        let core = TracedCore {
            device: 0,
            memory: Arc::clone(&memory),
        };
        let timeline = Timeline::open(&loaded, &[core]);
        Self {
            code: image.to_owned(),
            image: image.to_owned(),
            loaded,
            memory,
            timeline,
        }
    }

    fn recovery(&self) -> Recovery {
        let device = &self.loaded.snapshot.devices[0];
        let elf = Elf::open(&self.image).unwrap();
        let registers = RegisterFile::read(device, Architecture::MProfile);
        let memory = SnapshotMemory::new(Arc::clone(&self.memory), Space::Any, [&elf]);
        let facts = FinalState::of(&self.loaded, &device.name, &registers, memory, [&elf]);
        Recovery::new(facts, Options::default())
    }
}

/// How many values were asked for, and how many of them are known: all those are right.
#[derive(Debug, Default)]
struct Score {
    asked: u64,
    known: u64,
    inferred: u64,
}

impl Score {
    fn percent(&self) -> u64 {
        100 * self.known / self.asked
    }
}

/// Compares all registers and flags at the last positions and at samples of the others, with the log;
/// returns the scores of the general registers, of SP, of the flags, and of the floating-point registers.
fn compare(recorded: &mut Recorded, states: &[State], samples: usize) -> [Score; 4] {
    let mut recovery = recorded.recovery();
    let history = recorded.timeline.history(0).unwrap();
    let limits: Vec<String> = recovery
        .limits(history)
        .iter()
        .map(Limit::to_string)
        .collect();
    println!("{limits:?}");
    let mut positions = vec![history.begin()];
    while let Some(next) = history.step(positions[positions.len() - 1], Direction::Forward) {
        positions.push(next);
    }
    let mut scores: [Score; 4] = Default::default();
    let every = positions.len() / samples + 1;
    let mut compared = 0;
    let mut log = states.iter();
    let code = Elf::open(&recorded.code).unwrap();
    let mut skipped = 0;
    let mut places = Vec::new();
    for (number, position) in positions.iter().enumerate() {
        let pc = history.place(*position).and_then(|place| place.pc());
        let Some(pc) = pc else {
            continue;
        };
        // The log also has instructions that faulted, and those before which an interrupt was taken twice.
        // The log has no SG, which is executed in no security state.
        if code.slice(pc.0).is_some_and(|code| code.starts_with(&SG)) {
            continue;
        }
        let before = log.len();
        let truth = log.find(|state| state[15] == pc.0);
        skipped += before - log.len() - 1;
        let truth = truth.unwrap_or_else(|| panic!("instruction {number}, {:#x}", pc.0));
        if positions.len() - number < 100 || number % every == 0 {
            places.push((number, *position, truth));
        }
    }
    assert!(
        skipped < 20 + positions.len() / 100,
        "{skipped} instructions of the log are not in the trace"
    );
    // From the end, as if someone went back.
    for (number, position, truth) in places.into_iter().rev() {
        compared += 1;
        let found = recovery
            .registers(history, position, &Cancel::default())
            .unwrap();
        let general = (0..15_u8).map(|x| (Location::general(x), truth[usize::from(x)]));
        let flags = [Location::N, Location::Z, Location::C, Location::V];
        let flags = flags.into_iter().zip([31, 30, 29, 28]);
        let flags = flags.map(|(flag, bit)| (flag, truth[16] >> bit & 1));
        let floats =
            (0..16_u8).map(|d| (Location::vector(d / 2, d % 2), truth[usize::from(17 + d)]));
        for (location, value) in general.chain(flags).chain(floats) {
            let kind = match location {
                _ if location == Location::general(13) => 1,
                _ if location.index() < 15 => 0,
                _ if location >= Location::vector(0, 0) => 3,
                _ => 2,
            };
            let score = &mut scores[kind];
            score.asked += 1;
            if let Some(known) = found.get(location) {
                assert_eq!(
                    known.value,
                    value,
                    "{location:?} at instruction {number} of {}, {:#x}, {}",
                    positions.len(),
                    truth[15],
                    known.status
                );
                score.known += 1;
                score.inferred += u64::from(known.status == Status::Inferred);
            }
        }
    }
    assert!(compared >= samples / 2, "{compared}");
    println!("{compared} of {}: {scores:?}", positions.len());
    scores
}

/// Cores, machines, and the starts of their memories, as in `build_program`; and the protocol.
const CORTEX_M3: ([&str; 4], &str) = (
    ["-mcpu=cortex-m3", "mps2-an385", "0", "0x20000000"],
    "etmv3",
);

const CORTEX_M4: ([&str; 4], &str) = (
    [
        "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
        "mps2-an386",
        "0",
        "0x20000000",
    ],
    "etmv3",
);
const CORTEX_M7: ([&str; 4], &str) = (
    [
        "-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
        "mps2-an500",
        "0",
        "0x20000000",
    ],
    "etmv4",
);
const CORTEX_M33: ([&str; 4], &str) = (
    [
        "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
        "mps2-an505",
        "0x10000000",
        "0x38000000",
    ],
    "etmv4",
);

/// Builds and records a program, and compares its values.
fn scores(
    program: &str,
    (microcontroller, protocol): ([&str; 4], &str),
    level: &str,
) -> Option<[Score; 4]> {
    scores_with(program, (microcontroller, protocol), &[level])
}

/// Like [`scores`], with options of the compiler.
fn scores_with(
    program: &str,
    (microcontroller, protocol): ([&str; 4], &str),
    options: &[&str],
) -> Option<[Score; 4]> {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc"]) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = build_program(directory.path(), microcontroller, program, options);
    Some(scores_of(&image, microcontroller[1], protocol))
}

/// Records a program, and compares its values.
fn scores_of(image: &Path, machine: &str, protocol: &str) -> [Score; 4] {
    let output = image.with_file_name("out");
    let options = ["--system", machine, "--protocol", protocol, "--force"];
    let run = record_image(image, &output, &options.map(str::to_owned));
    assert!(run.status.success(), "{run:?}");
    let states = states(image, machine);
    let mut recorded = Recorded::open(image, &output);
    compare(&mut recorded, &states, 400)
}

#[test]
fn what_is_known_across_interrupts_is_true() {
    for level in ["-O0", "-Os"] {
        let Some([registers, stack_pointer, flags, _]) = scores("exceptions-m.c", CORTEX_M3, level)
        else {
            return;
        };
        assert!(registers.percent() >= 95, "{registers:?}");
        // It is unknown while a handler runs that interrupted PUSH or POP.
        assert!(stack_pointer.percent() >= 95, "{stack_pointer:?}");
        assert!(flags.percent() >= 90, "{flags:?}");
    }
}

#[test]
fn what_is_known_across_task_switches_is_true() {
    for level in ["-O0", "-Os"] {
        let Some([registers, stack_pointer, ..]) = scores("tasks-m.c", CORTEX_M3, level) else {
            return;
        };
        assert!(registers.percent() >= 20, "{registers:?}");
        assert!(stack_pointer.percent() >= 10, "{stack_pointer:?}");
    }
}

#[test]
fn registers_of_peripherals_have_names_in_answers() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [machine, ..] = MICROCONTROLLERS;
    let source = directory.path().join("reader.c");
    let program = "extern unsigned stack_top;
        __attribute__((noinline)) void halt_here(unsigned state) { for (;;) __asm__ volatile(\"nop\"); }
        void reset(void) { halt_here(*(volatile unsigned *)0x40005004); }
        __attribute__((section(\".vectors\"), used)) const void *vectors[2] = {&stack_top, reset};";
    std::fs::write(&source, program).unwrap();
    let image = build_program(directory.path(), machine, source.to_str().unwrap(), &[]);
    let output = directory.path().join("out");
    let options = ["--system", machine[1], "--until", "halt_here"].map(str::to_owned);
    let run = record_image(&image, &output, &options);
    assert!(run.status.success(), "{run:?}");
    let svd = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/svd/mps2.svd");
    let named = ["--svd", svd.to_str().unwrap()];
    for (options, wanted) in [
        (&named[..], "  loaded from 0x40005004 (UART1.STATE)"),
        (&[], "  loaded from 0x40005004: 0x"),
    ] {
        let told = told(&output, options, &["monitor why r0"]);
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn what_is_known_of_code_with_floating_point_is_true() {
    for (core, level) in [(CORTEX_M4, "-O0"), (CORTEX_M7, "-Os"), (CORTEX_M33, "-Os")] {
        let Some([registers, _, _, floats]) = scores("floats-m.c", core, level) else {
            return;
        };
        assert!(registers.percent() >= 55, "{registers:?}");
        assert!(floats.percent() >= 45, "{floats:?}");
    }
}

#[test]
fn what_is_known_of_tasks_with_floating_point_is_true() {
    for (core, level) in [(CORTEX_M4, "-Os"), (CORTEX_M7, "-O0"), (CORTEX_M33, "-O0")] {
        let Some([registers, stack_pointer, ..]) = scores("tasks-m.c", core, level) else {
            return;
        };
        assert!(registers.percent() >= 18, "{registers:?}");
        assert!(stack_pointer.percent() >= 9, "{stack_pointer:?}");
    }
}

/// Without floating-point instructions, all frames are small.
#[test]
fn what_is_known_on_cores_with_floating_point_is_true() {
    for core in [CORTEX_M4, CORTEX_M33] {
        let Some([registers, stack_pointer, ..]) = scores("exceptions-m.c", core, "-O0") else {
            return;
        };
        assert!(registers.percent() >= 95, "{registers:?}");
        assert!(stack_pointer.percent() >= 95, "{stack_pointer:?}");
    }
}

/// Each security state has stacks of its own.
#[test]
fn nothing_is_known_of_programs_with_two_security_states() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = build_trustzone(directory.path());
    let output = image.with_file_name("out");
    let options = ["--system", "mps2-an505"].map(str::to_owned);
    let run = record_image(&image, &output, &options);
    assert!(run.status.success(), "{run:?}");
    let mut recorded = Recorded::open(&image, &output);
    let mut recovery = recorded.recovery();
    let history = recorded.timeline.history(0).unwrap();
    let limits = recovery.limits(history);
    assert!(limits.contains(&Limit::NoCoreModel), "{limits:?}");
}

/// Without FPCCR.ASPEN, frames have no room for floating-point registers; with TS and CLRONRET of
/// Armv8-M, frames are larger, and returns clear registers. No snapshot contains FPCCR.
#[test]
fn what_is_known_of_programs_that_write_fpccr_is_true() {
    for level in ["-O0", "-Os"] {
        let options = [level, "-DFPCCR_BITS=0x80000000"];
        let Some([registers, ..]) = scores_with("floats-m.c", CORTEX_M4, &options) else {
            return;
        };
        assert!(registers.percent() >= 40, "{registers:?}");
        for bits in ["-DFPCCR_BITS=0x4000000", "-DFPCCR_BITS=0x10000000"] {
            let options = [level, bits];
            let [registers, ..] = scores_with("floats-m.c", CORTEX_M33, &options).unwrap();
            assert_eq!(registers.known, 0, "{registers:?}");
        }
    }
}

/// Exceptions of Non-secure code are taken to Secure state, of whose program only the trace is known.
#[test]
fn what_is_known_between_two_security_states_is_true() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = build_trustzone(directory.path());
    let part = directory.path().join("non-secure.elf");
    let copied = Command::new("arm-none-eabi-objcopy")
        .args(["-j", ".non_secure"])
        .args([&image, &part])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let states = states(&image, "mps2-an505");
    for protocol in ["etmv4", "etmv3"] {
        let output = directory.path().join("out");
        let options = ["--system", "mps2-an505", "--protocol", protocol, "--force"];
        let run = record_image(&image, &output, &options.map(str::to_owned));
        assert!(run.status.success(), "{run:?}");
        let mut recorded = Recorded::open(&image, &output);
        recorded.image = part.clone();
        let [registers, ..] = compare(&mut recorded, &states, 400);
        assert!(registers.known > 0, "{registers:?}");
        let mut recovery = recorded.recovery();
        let history = recorded.timeline.history(0).unwrap();
        let begin = history.begin();
        recovery
            .registers(history, begin, &Cancel::default())
            .unwrap();
        let limits = recovery.limits(history);
        assert!(limits.contains(&Limit::SecurityChanges), "{limits:?}");
    }
}
