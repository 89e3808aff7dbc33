//! A core's halted state in the form of a trace frame: registers and memory.

use super::note::CoreNote;
use crate::tfile::{memory_length, memory_size};
use armsnap_arch::arch::Space;
use armsnap_arch::arch::state::{self, CurrentSpace};
use armsnap_arch::arch::{Architecture, RegisterDescription, RegisterFile, TargetDescription};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::check;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::DeviceClass;

/// Registers and memory of one core.
#[derive(Debug)]
pub struct State {
    /// The registers described to a debugger.
    pub description: TargetDescription,
    /// The size of a whole register block in bytes: a reply to `g`, followed by the registers that
    /// are fetched individually.
    pub block_bytes: u32,
    /// The register block up to the first unknown register.
    pub block: Vec<u8>,
    /// Names of registers that are known but not in `block`.
    pub left_out: Vec<String>,
    /// Names of the block's unknown registers.
    pub unknown: Vec<String>,
    /// The program counter.
    pub pc: Option<Address>,
    /// The space in which the core sees memory.
    pub space: CurrentSpace,
    /// The core's dumps.
    pub memory: CoreMemory,
    /// Notes on values that were combined or assumed.
    pub notes: Vec<CoreNote>,
}

/// The bytes of a register, if all of them are known.
fn known(registers: &RegisterFile, register: &RegisterDescription) -> Option<Vec<u8>> {
    let bytes = registers.bytes(&register.view, register.bytes());
    bytes.into_iter().collect()
}

impl State {
    /// Reads the state of the core at index `core` of the device list. With `alone`, the target
    /// description covers only this core instead of all cores of its architecture.
    pub fn of(loaded: &OpenSnapshot, core: usize, alone: bool) -> Self {
        let devices = &loaded.snapshot.devices;
        let device = &devices[core];
        let detected = Architecture::detect(device);
        let architecture = detected.architecture;
        let mut registers = RegisterFile::read(device, architecture);
        let same = |(index, device): &(usize, &armsnap_snapshot::snapshot::model::Device)| {
            let described = device.class == DeviceClass::Core && !alone;
            *index == core
                || described && Architecture::detect(*device).architecture == architecture
        };
        let cores: Vec<_> = devices.iter().enumerate().filter(same).collect();
        let kinds: Vec<&str> = cores.iter().map(|(_, core)| core.kind.as_str()).collect();
        let files: Vec<RegisterFile> = cores
            .iter()
            .map(|(_, core)| RegisterFile::read(*core, architecture))
            .collect();
        let files: Vec<&RegisterFile> = files.iter().collect();
        let description = TargetDescription::new(architecture, &kinds, &files);
        let about = registers.notes().iter().cloned();
        let mut notes: Vec<CoreNote> = about.map(CoreNote::Registers).collect();
        if detected.assumed {
            notes.push(CoreNote::AssumedArchitecture {
                architecture,
                from: detected.from,
            });
        }
        let space = state::current_space(&registers);
        if let Some(reason) = check::placeholder(loaded, core) {
            notes.push(CoreNote::Placeholders { reason });
            registers.forget_placeholders();
        }
        let mut state = Self {
            block_bytes: 0,
            block: Vec::new(),
            left_out: Vec::new(),
            unknown: Vec::new(),
            pc: registers.pc().map(Address),
            space,
            memory: CoreMemory::new(loaded, device),
            description,
            notes,
        };
        state.fill(&registers);
        state
    }

    /// Lays out the register block.
    ///
    /// GDB reads the registers of a block in order and stops where the block ends, so only the
    /// registers before the first unknown one can be stored. A block without the program counter
    /// would hide the address of the tracepoint: in that case no block is written.
    fn fill(&mut self, registers: &RegisterFile) {
        let mut has_pc = false;
        let mut names = Vec::new();
        for register in self.description.registers() {
            self.block_bytes += register.bytes() as u32;
            match known(registers, register) {
                None => self.unknown.push(register.name.clone()),
                Some(bytes) if self.unknown.is_empty() => {
                    self.block.extend(bytes);
                    has_pc |= register.name == "pc";
                    names.push(register.name.clone());
                }
                Some(_) => self.left_out.push(register.name.clone()),
            }
        }
        if !has_pc {
            self.block.clear();
            names.append(&mut self.left_out);
            self.left_out = names;
            self.left_out.retain(|name| name != "pc");
        }
    }

    /// The registers up to and including the program counter; all of them if it is not described.
    pub fn short_block(&self) -> impl Iterator<Item = &RegisterDescription> {
        let mut ended = false;
        self.description.registers().take_while(move |register| {
            let go_on = !ended;
            ended |= register.name == "pc";
            go_on
        })
    }

    /// The memory that the core sees: address and bytes of non-overlapping pieces, sorted by
    /// address.
    pub fn memory(&self) -> Vec<(u64, &[u8])> {
        seen(&self.memory, self.space.space)
    }
}

/// Selects the pieces of memory that fit into `room` bytes of a trace frame: the smallest first,
/// and the start of the first one that does not fit.
pub fn fitting<'a>(pieces: &[(u64, &'a [u8])], mut room: usize) -> Vec<(u64, &'a [u8])> {
    let mut by_size = pieces.to_vec();
    by_size.sort_by_key(|(_, bytes)| bytes.len());
    let mut fitting: Vec<(u64, &[u8])> = Vec::with_capacity(pieces.len());
    for (address, bytes) in by_size {
        let part = &bytes[..memory_length(room).min(bytes.len())];
        if !part.is_empty() {
            fitting.push((address, part));
            room -= memory_size(part.len());
        }
        if part.len() < bytes.len() {
            break;
        }
    }
    fitting.sort_by_key(|(address, _)| *address);
    fitting
}

/// The part of `memory` visible in a space: address and bytes of non-overlapping pieces, sorted by
/// address.
pub fn seen(memory: &CoreMemory, space: Space) -> Vec<(u64, &[u8])> {
    let mut regions: Vec<(u64, u64)> = memory
        .regions()
        .filter(|region| region.space.serves(space) && region.length > 0)
        .map(|region| (region.address.0, region.address.0 + (region.length - 1)))
        .collect();
    regions.sort_unstable();
    let mut pieces: Vec<(u64, &[u8])> = Vec::new();
    // The next address to examine; `None` after the last one.
    let mut next = Some(0_u64);
    for (first, last) in regions {
        while let Some(at) = next.map(|next| next.max(first)).filter(|&at| at <= last) {
            let bytes = memory.slice(Address(at), space);
            if bytes.is_empty() {
                break;
            }
            pieces.push((at, bytes));
            next = at.checked_add(bytes.len() as u64);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_exceeds_a_frame_is_cut() {
        let bytes = vec![7; 300_000];
        let pieces = [
            (0, &bytes[..200_000]),
            (0x10_0000, &bytes[..5]),
            (0x20_0000, &bytes[..]),
        ];
        let whole: usize = pieces.iter().map(|(_, b)| memory_size(b.len())).sum();
        assert_eq!(fitting(&pieces, whole), pieces);
        assert_eq!(fitting(&pieces, 11), []);
        for room in (0..whole)
            .step_by(997)
            .chain([16, 65_562, 65_563, 65_574, whole - 1])
        {
            let found = fitting(&pieces, room);
            let size: usize = found.iter().map(|(_, b)| memory_size(b.len())).sum();
            assert!(size <= room, "{size} in {room}");
            // At most the size of a block header stays unused.
            assert!(room - size <= 16, "{size} in {room}");
            assert!(found.is_sorted_by_key(|(address, _)| *address));
        }
        let found = fitting(&pieces, 250_000);
        let lengths: Vec<_> = found.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
        assert_eq!(lengths[..2], [(0, 200_000), (0x10_0000, 5)]);
        assert_eq!(lengths[2].0, 0x20_0000);
    }
}
