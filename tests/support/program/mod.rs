//! The programs in `testdata/programs`, built and run; and helpers to compare executions.
#![allow(dead_code)]

pub mod decode;
pub mod record;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use armsnap::decode::SourceSinks;
use armsnap::element::{Exception, Mark};
use armsnap::flow::{FlowSink, Gap, Pieces, QRange, Range};
use armsnap::quantity::{Address, BufferOffset, Isa};
use object::{Object, ObjectSegment, ObjectSymbol};

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exits with this status.
    Exit(i32),
    /// This signal ends it.
    Signal(i32),
}

/// A built program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Source and kind: `recursion-t32`.
    pub name: String,
    pub elf: PathBuf,
    /// The machine of a bare-metal program: QEMU's options.
    pub machine: Option<Vec<String>>,
    pub end: End,
}

/// All of them, in the order of their names.
pub fn all() -> &'static [Program] {
    static ALL: OnceLock<Vec<Program>> = OnceLock::new();
    ALL.get_or_init(|| {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        let build = Command::new(format!("{TOP}/scripts/build-programs"))
            .arg(&built)
            .output()
            .expect("scripts/build-programs runs");
        assert!(build.status.success(), "{build:?}");
        let mut programs = Vec::new();
        for source in fs::read_dir(format!("{TOP}/testdata/programs")).unwrap() {
            described(&source.unwrap().path(), &built, &mut programs);
        }
        programs.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(programs.len() > 30, "{}", programs.len());
        programs
    })
}

/// The program of this name.
pub fn program(name: &str) -> &'static Program {
    let found = all().iter().find(|program| program.name == name);
    found.unwrap_or_else(|| panic!("no program {name}"))
}

/// Reads the first lines of a source, which describe its programs.
fn described(source: &Path, built: &Path, programs: &mut Vec<Program>) {
    let text = fs::read_to_string(source).unwrap();
    let says = |key: &str| {
        let key = format!("// {key} ");
        text.lines().find_map(|line| line.strip_prefix(&key))
    };
    let Some(build) = says("build") else {
        return;
    };
    let number = |text: &str| text.parse().unwrap();
    let end = match (says("exit"), says("signal")) {
        (Some(status), None) => End::Exit(number(status)),
        (None, Some(signal)) => End::Signal(number(signal)),
        _ => panic!("{}: exit or signal", source.display()),
    };
    let machine = says("machine").map(|line| line.split(' ').map(String::from).collect());
    let stem = source.file_stem().unwrap().to_str().unwrap();
    for kind in build.split(' ').filter(|word| !word.starts_with('-')) {
        let name = format!("{stem}-{kind}");
        programs.push(Program {
            elf: built.join(format!("{name}.elf")),
            name,
            machine: machine.clone(),
            end,
        });
    }
}

impl Program {
    /// Whether it is for AArch64.
    pub fn is_64bit(&self) -> bool {
        self.name.ends_with("a64")
    }

    /// The emulator's command for the program.
    pub fn emulator(&self, options: &[&str]) -> Command {
        let bits = if self.is_64bit() { "aarch64" } else { "arm" };
        let mut command;
        if let Some(machine) = &self.machine {
            command = Command::new(format!("qemu-system-{bits}"));
            command.arg("-M").args(machine);
            command.args(["-nodefaults", "-display", "none"]);
            command.args(["-semihosting", "-kernel"]).arg(&self.elf);
            command.args(options);
        } else {
            command = Command::new(format!("qemu-{bits}"));
            command.args(options).arg(&self.elf);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Its instructions.
    pub fn code(&self) -> Code {
        Code::of(&self.elf)
    }
}

/// Waits for a child process to end; kills it after a minute.
pub fn wait(child: &mut Child, what: &str) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The code of an ELF file, with instruction sets from its mapping symbols.
pub struct Code {
    pub pieces: Pieces,
    segments: Vec<(u64, Vec<u8>)>,
    /// The start addresses of instruction sets, in order.
    sets: Vec<(u64, Isa)>,
}

impl Code {
    /// Reads an ELF file.
    pub fn of(elf: &Path) -> Self {
        let mut bytes = Vec::new();
        File::open(elf).unwrap().read_to_end(&mut bytes).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let segments: Vec<(u64, Vec<u8>)> = file
            .segments()
            .map(|segment| (segment.address(), segment.data().unwrap().to_vec()))
            .collect();
        let mut pieces = Pieces::default();
        for (address, data) in &segments {
            pieces.add(Address(*address), data.clone());
        }
        let mut sets: Vec<(u64, Isa)> = file
            .symbols()
            .filter_map(|symbol| {
                let isa = match symbol.name().ok()?.split('.').next()? {
                    "$a" => Isa::A32,
                    "$t" => Isa::T32,
                    "$x" => Isa::A64,
                    _ => return None,
                };
                Some((symbol.address(), isa))
            })
            .collect();
        sets.sort_by_key(|(address, _)| *address);
        Self {
            pieces,
            segments,
            sets,
        }
    }

    /// The instruction set at an address.
    pub fn isa(&self, address: u64) -> Isa {
        let after = self.sets.partition_point(|(begin, _)| *begin <= address);
        self.sets[after - 1].1
    }

    /// The bytes of the instruction at an address.
    pub fn length(&self, address: u64, isa: Isa) -> u64 {
        if isa != Isa::T32 {
            return 4;
        }
        let half = self.segments.iter().find_map(|(begin, data)| {
            let at = usize::try_from(address.checked_sub(*begin)?).ok()?;
            Some(u16::from_le_bytes(
                data.get(at..at + 2)?.try_into().unwrap(),
            ))
        });
        // Arm ARM, "T32 instruction set encoding": 0b11101 and above have 32 bits.
        if half.expect("code there") >> 11 >= 0b11101 {
            4
        } else {
            2
        }
    }
}

/// The contents of a trace besides instructions.
#[derive(Debug, Default)]
pub struct Beside {
    pub gaps: Vec<Gap>,
    pub marks: Vec<Mark>,
}

impl Beside {
    /// The number of times that tracing started.
    pub fn begins(&self) -> usize {
        let begins = |mark: &&Mark| matches!(mark, Mark::TraceOn(_));
        self.marks.iter().filter(begins).count()
    }
}

/// A sink that passes on the address of each instruction and keeps everything else.
pub struct Each<'a, F> {
    pub code: &'a Code,
    pub take: F,
    pub beside: Beside,
}

impl<'a, F: FnMut(u64, Isa)> Each<'a, F> {
    pub fn new(code: &'a Code, take: F) -> Self {
        Self {
            code,
            take,
            beside: Beside::default(),
        }
    }
}

impl<F: FnMut(u64, Isa)> FlowSink for Each<'_, F> {
    fn range(&mut self, _: BufferOffset, range: &Range, _: Option<u32>) {
        let mut here = range.start.0;
        while here < range.end.0 {
            (self.take)(here, range.isa);
            here += self.code.length(here, range.isa);
        }
    }
    fn q_range(&mut self, _: BufferOffset, range: &QRange) {
        panic!("{range:?}");
    }
    fn exception(&mut self, _: BufferOffset, _: &Exception) {}
    fn gap(&mut self, _: BufferOffset, gap: Gap) {
        self.beside.gaps.push(gap);
    }
    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        self.beside.marks.push(*mark);
    }
}

impl<F: FnMut(u64, Isa)> SourceSinks<Beside> for Each<'_, F> {
    fn end(&mut self, _: BufferOffset) {}
    fn output(&mut self) -> &mut Beside {
        &mut self.beside
    }
}

/// Panics with the surroundings of the first difference.
#[track_caller]
pub fn same(decoded: &[u64], executed: &[u64], what: &str) {
    let pairs = decoded.iter().zip(executed);
    let first = pairs.take_while(|(a, b)| a == b).count();
    if first == executed.len() && first == decoded.len() {
        return;
    }
    let around = |addresses: &[u64]| {
        let from = first.saturating_sub(4).min(addresses.len());
        format!("{:x?}", &addresses[from..(first + 4).min(addresses.len())])
    };
    panic!(
        "{what}: {first} agree, {} decoded, {} executed\n executed {}\n decoded  {}",
        decoded.len(),
        executed.len(),
        around(executed),
        around(decoded)
    );
}
