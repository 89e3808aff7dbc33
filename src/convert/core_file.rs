//! A snapshot's halted state as an ELF core file in the Linux layout, which GDB opens.

mod thread_state;

use super::Error;
use super::note::{CoreNote, Note};
use armsnap_arch::arch::pointer_auth::Masks;
use armsnap_arch::arch::{Architecture, RegisterFile, Space, TargetDescription, state};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::check;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{Device, DeviceClass};
use armsnap_snapshot::snapshot::program::{Program, Seen};
use armsnap_snapshot::snapshot::signals::{INFORMATION, Signal};
use object::elf;
use std::io::Write;

const PT_LOAD: u32 = elf::PT_LOAD.0;
const PT_NOTE: u32 = elf::PT_NOTE.0;
const NT_PRSTATUS: u32 = elf::NT_PRSTATUS.0;
const NT_FPREGSET: u32 = elf::NT_FPREGSET.0;
const NT_AUXV: u32 = elf::NT_AUXV.0;
const NT_ARM_VFP: u32 = elf::NT_ARM_VFP.0;
const NT_SIGINFO: u32 = elf::NT_SIGINFO.0;
const NT_GDB_TDESC: u32 = 0xff00_0000;
const AT_ENTRY: u64 = 9;
const AT_HWCAP: u64 = 16;
/// HWCAP_FP, HWCAP_ASIMD, HWCAP_PACA: GDB looks for the masks of pointer authentication only if the
/// last is set (Linux, arch/arm64/include/uapi/asm/hwcap.h).
const CAPABILITIES: u64 = 1 | 1 << 1 | 1 << 30;
const SIGTRAP: u16 = 5;
/// The maximum number of parts of memory: the number of program headers has 16 bits.
const MAX_PARTS: usize = 0xFFF0;

/// Writes the state of the cores that have the first core's architecture. Returns notes on what was
/// left out.
///
/// # Errors
///
/// If no core has a program counter, or writing fails.
pub fn write(loaded: &OpenSnapshot, out: &mut impl Write) -> Result<Vec<Note>, Error> {
    let devices = &loaded.snapshot.devices;
    let cores = devices.iter().enumerate();
    let cores = cores.filter(|(_, device)| device.class == DeviceClass::Core);
    let mut notes = Vec::new();
    let placeholders = check::Placeholders::new(loaded);
    let cores: Vec<(usize, &Device, RegisterFile)> = cores
        .map(|(index, device)| {
            let architecture = Architecture::detect(device).architecture;
            let mut registers = RegisterFile::read(device, architecture);
            if let Some(reason) = placeholders.why(index) {
                let note = CoreNote::Placeholders { reason };
                notes.push(Note::of_core(&device.name, note));
                registers.forget_placeholders();
            }
            (index, device, registers)
        })
        .collect();
    let known = |(_, _, registers): &&(usize, &Device, RegisterFile)| registers.pc().is_some();
    let Some(&(first, _, ref first_registers)) = cores.iter().find(known) else {
        return Err(Error::Usage(
            "no core has a PC: there is no halted state for a core file".to_owned(),
        ));
    };
    let architecture = first_registers.architecture();
    let in_file = |registers: &RegisterFile| {
        registers.architecture() == architecture && registers.pc().is_some()
    };
    let wide = architecture == Architecture::AArch64;
    let mut contents = Vec::new();
    let mut number = 0;
    for (_, device, registers) in &cores {
        if !in_file(registers) {
            notes.push(Note::of_core(&device.name, CoreNote::NotInCoreFile));
            continue;
        }
        number += 1;
        let signal = Signal::of(device);
        let unknown = thread(number, registers, signal.as_ref(), &mut contents);
        if !unknown.is_empty() {
            let note = CoreNote::ZeroInCoreFile { registers: unknown };
            notes.push(Note::of_core(&device.name, note));
        }
        let left_out = thread_state::write(registers, &mut contents);
        if !left_out.is_empty() {
            let note = CoreNote::NoPlaceInCoreFile {
                registers: left_out,
            };
            notes.push(Note::of_core(&device.name, note));
        }
    }
    let device = &devices[first];
    let space = state::current_space(first_registers).space;
    let mut memory = CoreMemory::new(loaded, device);
    memory.share(loaded, first);
    let programs = Program::of_cores(loaded, &[], architecture, &[(&memory, space)]);
    for program in &programs {
        let added = program.add_to(&mut memory, space);
        notes.extend(added.into_iter().map(Note::Program));
    }
    if architecture == Architecture::MProfile {
        // Otherwise nothing says that xPSR is in the position of CPSR.
        let description = TargetDescription::new(architecture, &[], &[first_registers]);
        let xml = description.xml_of_first_feature() + "\0";
        note(b"GDB", NT_GDB_TDESC, xml.as_bytes(), &mut contents);
    }
    let mut vector = Vec::new();
    if let Some(entry) = programs.first().and_then(|program| entry(&program.elf)) {
        vector.push((AT_ENTRY, entry));
    }
    if Masks::of(first_registers).is_some() {
        vector.push((AT_HWCAP, CAPABILITIES));
    }
    if !vector.is_empty() {
        let mut bytes = Vec::new();
        for (kind, value) in vector.into_iter().chain([(0, 0)]) {
            word(kind, wide, &mut bytes);
            word(value, wide, &mut bytes);
        }
        note(b"CORE", NT_AUXV, &bytes, &mut contents);
    }
    let others = cores.iter().filter(|(index, ..)| *index != first);
    for (_, device, registers) in others.filter(|(.., registers)| in_file(registers)) {
        let own = CoreMemory::new(loaded, device);
        let own_space = state::current_space(registers).space;
        if let Some(at) = first_difference((&own, own_space), (&memory, space)) {
            let core = devices[first].name.clone();
            notes.push(Note::of_core(
                &device.name,
                CoreNote::OtherMemoryInCoreFile { at, core },
            ));
        }
    }
    let mut parts = parts(&memory, space, &mut notes);
    if !wide {
        fit(&mut parts, contents.len() as u64, &mut notes);
    }
    out.write_all(&head(architecture, contents.len() as u64, &parts))?;
    out.write_all(&contents)?;
    for (address, length) in parts {
        let (mut at, end) = (address, address.wrapping_add(length));
        while at != end {
            let bytes = memory.slice(Address(at), space);
            let count = bytes
                .len()
                .min(usize::try_from(end.wrapping_sub(at)).unwrap_or(usize::MAX));
            if count == 0 {
                return Err(Error::Usage(format!(
                    "memory at {at:#x} is no longer there"
                )));
            }
            out.write_all(&bytes[..count])?;
            at = at.wrapping_add(count as u64);
        }
    }
    Ok(notes)
}

/// The first address at which a core's memory differs from the memory in the core file.
fn first_difference((own, own_space): Seen, (written, space): Seen) -> Option<Address> {
    let mut at = Address(0);
    loop {
        let bytes = own.slice(at, own_space);
        let other = written.slice(at, space);
        let count = bytes.len().min(other.len());
        if !bytes.is_empty() && count == 0 {
            return Some(at);
        }
        // Dumps of the same file share its bytes in memory.
        if count > 0 && bytes.as_ptr() != other.as_ptr() {
            let pairs = bytes[..count].iter().zip(other);
            if let Some(same) = pairs.into_iter().position(|(byte, other)| byte != other) {
                return Some(Address(at.0 + same as u64));
            }
        }
        at = match count {
            0 => own.next(at, own_space)?,
            count => Address(at.0.checked_add(count as u64)?),
        };
    }
}

/// The known memory of a space, in order: address and length of each part. If there are too many
/// parts, the remaining ones are left out and noted.
fn parts(memory: &CoreMemory, space: Space, notes: &mut Vec<Note>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    let mut at = Some(Address(0));
    while let Some(address) = at {
        let known = memory.slice(address, space).len() as u64;
        if known > 0 {
            let joins = |(start, length): &(u64, u64)| start.wrapping_add(*length) == address.0;
            let full = out.len() == MAX_PARTS;
            match out.last_mut().filter(|last| joins(last)) {
                Some((_, length)) => *length += known,
                None if full => {
                    notes.push(Note::ManyParts { limit: MAX_PARTS });
                    return out;
                }
                None => out.push((address.0, known)),
            }
        }
        let after = address.0.checked_add(known);
        at = after.and_then(
            |after| match memory.slice(Address(after), space).is_empty() {
                true => memory.next(Address(after), space),
                false => Some(Address(after)),
            },
        );
    }
    out
}

/// Leaves out memory that a 32-bit file cannot contain: addresses, sizes and offsets have 32 bits.
fn fit(parts: &mut Vec<(u64, u64)>, notes_length: u64, notes: &mut Vec<Note>) {
    const END: u64 = 1 << 32;
    // The headers, with space for all parts.
    let mut offset = 52 + 32 * (parts.len() as u64 + 1) + notes_length;
    for index in 0..parts.len() {
        let (address, length) = parts[index];
        let room = (END - 1 - offset).min(END.saturating_sub(address));
        if length > room {
            let at = address + room;
            notes.push(Note::Memory32 { at });
            parts[index].1 = room;
            parts.truncate(index + usize::from(room > 0));
            return;
        }
        offset += length;
    }
}

fn entry(elf: &Elf) -> Option<u64> {
    use object::Object;
    let file = object::File::parse(elf.bytes()).ok()?;
    Some(file.entry().wrapping_add(elf.offset))
}

fn word(value: u64, wide: bool, out: &mut Vec<u8>) {
    match wide {
        true => out.extend(value.to_le_bytes()),
        false => out.extend((value as u32).to_le_bytes()),
    }
}

fn note(owner: &[u8], kind: u32, contents: &[u8], out: &mut Vec<u8>) {
    for number in [owner.len() as u32 + 1, contents.len() as u32, kind] {
        out.extend(number.to_le_bytes());
    }
    for bytes in [&[owner, &[0]].concat(), contents] {
        out.extend(bytes);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// Writes the notes of a thread (`struct elf_prstatus`, `user_fpsimd_state`, `ARM_VFP`; the latter
/// two only if something in them is known). Returns the unknown registers in them.
fn thread(
    number: u32,
    registers: &RegisterFile,
    signal: Option<&Signal>,
    out: &mut Vec<u8>,
) -> Vec<String> {
    let wide = registers.architecture() == Architecture::AArch64;
    let mut unknown = Vec::new();
    let mut status = vec![0; 12];
    let received = signal.map_or(SIGTRAP, |signal| signal.number as u16);
    status.extend(received.to_le_bytes());
    status.resize(if wide { 32 } else { 24 }, 0);
    status.extend(number.to_le_bytes());
    status.resize(if wide { 112 } else { 72 }, 0);
    let general = if wide { 31 } else { 13 };
    let mut names: Vec<String> = (0..general)
        .map(|number| format!("{}{number}", if wide { "x" } else { "r" }))
        .collect();
    let m_profile = registers.architecture() == Architecture::MProfile;
    let status_register = if m_profile { "xpsr" } else { "cpsr" };
    let rest: &[&str] = match wide {
        true => &["sp", "pc", status_register],
        false => &["sp", "lr", "pc", status_register],
    };
    names.extend(rest.iter().map(|name| (*name).to_owned()));
    for name in names {
        let value = registers.value(&name);
        word(value.unwrap_or(0), wide, &mut status);
        unknown.extend(value.is_none().then_some(name));
    }
    status.extend([0; 8]);
    note(b"CORE", NT_PRSTATUS, &status, out);
    if let Some(signal) = signal.filter(|signal| !signal.information.is_empty()) {
        let mut information = signal.information.clone();
        information.resize(INFORMATION, 0);
        note(b"CORE", NT_SIGINFO, &information, out);
    }
    let mut state = Vec::new();
    let mut zero = Vec::new();
    let mut is_known = false;
    for number in 0..32 {
        let name = format!("{}{number}", if wide { "v" } else { "d" });
        let bytes = registers.core(&name).unwrap_or(&[]);
        let size = if wide { 16 } else { 8 };
        let byte = |at| bytes.get(at).copied().flatten();
        let known = (0..size).filter(|at| byte(*at).is_some()).count();
        state.extend((0..size).map(|at| byte(at).unwrap_or(0)));
        is_known |= known > 0;
        // The M-profile has only 16 of them.
        let is_there = number < 16 || !m_profile;
        zero.extend((known < size && is_there).then_some(name));
    }
    let names: &[&str] = if wide { &["fpsr", "fpcr"] } else { &["fpscr"] };
    for name in names {
        let value = registers.value(name);
        word(value.unwrap_or(0), false, &mut state);
        is_known |= value.is_some();
        zero.extend(value.is_none().then(|| (*name).to_owned()));
    }
    if !is_known {
        return unknown;
    }
    unknown.extend(zero);
    if wide {
        state.extend([0; 8]);
        note(b"CORE", NT_FPREGSET, &state, out);
    } else {
        note(b"LINUX", NT_ARM_VFP, &state, out);
    }
    unknown
}

/// The ELF header and the program headers: the notes, and the parts of memory after them.
fn head(architecture: Architecture, notes: u64, parts: &[(u64, u64)]) -> Vec<u8> {
    let wide = architecture == Architecture::AArch64;
    let (size, entry) = if wide { (64_u16, 56_u16) } else { (52, 32) };
    let count = parts.len() as u16 + 1;
    let mut out = b"\x7fELF".to_vec();
    out.extend([if wide { 2 } else { 1 }, 1, 1]);
    out.resize(16, 0);
    for half in [4_u16, if wide { 183 } else { 40 }] {
        out.extend(half.to_le_bytes());
    }
    out.extend(1_u32.to_le_bytes());
    for value in [0, size.into(), 0] {
        word(value, wide, &mut out);
    }
    out.extend([0; 4]);
    for half in [size, entry, count, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    let mut at = u64::from(size) + u64::from(entry) * u64::from(count);
    let mut segment = |kind: u32, flags: u32, address: u64, length: u64| {
        out.extend(kind.to_le_bytes());
        if wide {
            out.extend(flags.to_le_bytes());
        }
        let in_memory = if kind == PT_LOAD { length } else { 0 };
        for value in [at, address, 0, length, in_memory] {
            word(value, wide, &mut out);
        }
        if !wide {
            out.extend(flags.to_le_bytes());
        }
        word(1, wide, &mut out);
        at += length;
    };
    segment(PT_NOTE, 4, 0, notes);
    for (address, length) in parts {
        segment(PT_LOAD, 7, *address, *length);
    }
    out
}
