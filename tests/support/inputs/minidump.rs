//! Minidumps, made of core files of Linux by the layouts of Breakpad.

use crate::support::gdb::testdata;
use object::{Object, ObjectSegment};
use std::fs;

const THREAD_LIST: u32 = 3;
const MODULE_LIST: u32 = 4;
const MEMORY_LIST: u32 = 5;
const EXCEPTION: u32 = 6;
const SYSTEM_INFO: u32 = 7;

/// The layout of registers, and the record that identifies modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// ARM64 with build-ids, as Crashpad writes.
    Arm64,
    /// ARM64 in Breakpad's old layout, with GUIDs.
    OldArm64,
}

/// A module: its load address, path, and file.
pub type Module<'a> = (u64, &'a str, &'a [u8]);

/// What the notes of a core file of AArch64 hold.
struct Notes<'a> {
    status: &'a [u8],
    vectors: &'a [u8],
    information: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn notes(core: &[u8]) -> Notes<'_> {
    let header = &core[64..];
    let begin = word(header, 8) as usize;
    let mut rest = &core[begin..begin + word(header, 32) as usize];
    let mut out = Notes {
        status: &[],
        vectors: &[],
        information: &[],
    };
    while rest.len() > 12 {
        let (name, size, kind) = (word(rest, 0), word(rest, 4) as usize, word(rest, 8));
        let begin = 12 + name.next_multiple_of(4) as usize;
        let contents = &rest[begin..begin + size];
        match kind {
            1 => out.status = contents,
            2 => out.vectors = contents,
            0x5349_4749 => out.information = contents,
            _ => {}
        }
        rest = &rest[(begin + size.next_multiple_of(4)).min(rest.len())..];
    }
    out
}

/// The context of the thread.
pub fn context(core: &[u8], form: Form) -> Vec<u8> {
    let notes = notes(core);
    // X0 to X30, SP, PC; the low half of the processor state.
    let general = &notes.status[112..112 + 33 * 8];
    let state = &notes.status[112 + 33 * 8..112 + 33 * 8 + 4];
    let (vectors, status) = (&notes.vectors[..512], &notes.vectors[512..516]);
    let control = &notes.vectors[516..520];
    match form {
        Form::Arm64 => {
            let flags = 0x40_0007_u32.to_le_bytes();
            let mut out = [&flags, state, general, vectors, control, status].concat();
            out.resize(912, 0);
            out
        }
        Form::OldArm64 => {
            let flags = 0x8000_0006_u64.to_le_bytes();
            [&flags, general, state, status, control, vectors].concat()
        }
    }
}

/// A file that is written from the front.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
    streams: Vec<(u32, u32, u32)>,
}

impl Writer {
    /// A file with space for `streams` streams.
    pub fn new(streams: usize) -> Self {
        Self {
            bytes: vec![0; 32 + 12 * streams],
            streams: Vec::new(),
        }
    }

    /// Adds data; returns its size and its place.
    pub fn add(&mut self, data: &[u8]) -> [u32; 2] {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = self.bytes.len() as u32;
        self.bytes.extend(data);
        [data.len() as u32, at]
    }

    /// Adds a stream.
    pub fn stream(&mut self, kind: u32, data: &[u8]) {
        let [size, at] = self.add(data);
        self.streams.push((kind, size, at));
    }

    /// Adds a string.
    pub fn text(&mut self, text: &str) -> u32 {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut data = (units.len() as u32).to_le_bytes().to_vec();
        data.extend(units);
        self.add(&data)[1]
    }

    /// Adds the description of a system.
    pub fn system(&mut self, architecture: u16, platform: u32) {
        let mut data = vec![0; 56];
        data[..2].copy_from_slice(&architecture.to_le_bytes());
        data[20..24].copy_from_slice(&platform.to_le_bytes());
        self.stream(SYSTEM_INFO, &data);
    }

    /// Adds a list with a thread: its number, stack and context.
    pub fn thread(&mut self, tid: u32, stack: (u64, [u32; 2]), context: [u32; 2]) {
        let mut data = Vec::new();
        data.extend(words([1, tid, 0, 0, 0, 0, 0]));
        data.extend(stack.0.to_le_bytes());
        data.extend(words(stack.1));
        data.extend(words(context));
        self.stream(THREAD_LIST, &data);
    }

    /// Adds an exception: thread, signal, code, address, context.
    pub fn exception(&mut self, tid: u32, signal: [u32; 2], address: u64, context: [u32; 2]) {
        let mut data = words([tid, 0, signal[0], signal[1], 0, 0]);
        data.extend(address.to_le_bytes());
        data.resize(160, 0);
        data.extend(words(context));
        self.stream(EXCEPTION, &data);
    }

    /// The file.
    pub fn file(mut self) -> Vec<u8> {
        let header = [0x504d_444d, 0xa793, self.streams.len() as u32, 32];
        self.bytes[..16].copy_from_slice(&words(header));
        for (index, (kind, size, at)) in self.streams.iter().enumerate() {
            let begin = 32 + 12 * index;
            self.bytes[begin..begin + 12].copy_from_slice(&words([*kind, *size, *at]));
        }
        self.bytes
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The minidump that Breakpad would have written in place of testdata/linux-core/program.core.
pub fn of_linux(form: Form) -> Vec<u8> {
    let directory = testdata("linux-core");
    let read = |name: &str| fs::read(directory.join(name)).unwrap();
    let (program, library) = (read("root/program"), read("root/lib/libwork.so"));
    let modules: [Module<'_>; 2] = [
        (0xaaaa_db47_2000, "/program", &program),
        (0xffff_bd7d_2000, "/lib/libwork.so", &library),
    ];
    of_core(&read("program.core"), form, &modules)
}

/// The minidump that Breakpad would have written in place of a core file of a program of AArch64,
/// with the writable memory.
pub fn of_core(core: &[u8], form: Form, modules: &[Module<'_>]) -> Vec<u8> {
    let notes = notes(core);
    let tid = word(notes.status, 32);
    let mut out = Writer::new(5);
    out.system(if form == Form::Arm64 { 12 } else { 0x8003 }, 0x8201);
    let file = object::File::parse(core).unwrap();
    let mut list = Vec::new();
    let mut stack = (0, [0, 0]);
    for segment in file.segments() {
        let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
            continue;
        };
        if p_flags.0 & 2 != 0 {
            let place = out.add(segment.data().unwrap());
            stack = (segment.address(), place);
            list.push(stack);
        }
    }
    if form == Form::OldArm64 {
        // A small dump has the stacks only.
        list.drain(..list.len() - 1);
    }
    // The last segment is the stack.
    let context = out.add(&context(core, form));
    out.thread(tid, stack, context);
    let mut data = (list.len() as u32).to_le_bytes().to_vec();
    for (address, place) in &list {
        data.extend(address.to_le_bytes());
        data.extend(words(*place));
    }
    out.stream(MEMORY_LIST, &data);
    let mut data = (modules.len() as u32).to_le_bytes().to_vec();
    for (base, path, file) in modules {
        let id = object::File::parse(*file).unwrap();
        let id = id.build_id().unwrap().unwrap();
        let record = match form {
            Form::Arm64 => [b"LEpB", id].concat(),
            Form::OldArm64 => [b"RSDS", &id[..16], &[0; 4], b"name\0"].concat(),
        };
        let (name, place) = (out.text(path), out.add(&record));
        data.extend(base.to_le_bytes());
        data.extend(words([0x1_0000, 0, 0, name]));
        data.extend([0; 52]);
        data.extend(words(place));
        data.extend([0; 24]);
    }
    out.stream(MODULE_LIST, &data);
    let information = notes.information;
    let address = u64::from_le_bytes(information[16..24].try_into().unwrap());
    let signal = [word(information, 0), word(information, 8)];
    out.exception(tid, signal, address, context);
    out.file()
}
