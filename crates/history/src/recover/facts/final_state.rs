//! The facts from which the past is computed: final registers, memory, and recorded addresses.

use super::address_map;
use super::constants::Constants;
use super::microcontroller::Microcontroller;
use crate::timeline::{History, Timeline, TracedCore};
use armsnap_arch::arch::{Architecture, RegisterFile, Space};
use armsnap_arch::quantity::Address;
use armsnap_arch::semantics::Location;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::program::go::GoCode;
use armsnap_snapshot::program::landing_pads::LandingPads;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::core_files;
use armsnap_snapshot::snapshot::imported::has_other_writers;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{DeviceClass, Snapshot};
use armsnap_snapshot::snapshot::recording::Recording;
use armsnap_snapshot::snapshot::replay::Inputs;
use armsnap_trace::data_addresses::{Accessed, Addresses, Error};
use object::{Object, ObjectSegment};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The memory of the final state.
pub trait FinalMemory: Send + Sync {
    /// Fills `out` from an address; returns the number of known bytes before the first unknown one.
    fn read(&self, address: u64, out: &mut [u8]) -> usize;

    /// An address after `address` with no known memory in between; `None` if no more memory is
    /// known.
    fn next(&self, _address: u64) -> Option<u64> {
        None
    }

    /// Whether a byte never changes, as in read-only sections of programs.
    fn is_constant(&self, address: u64) -> bool;

    /// The byte in a program's file for an address, if it is in a function or a read-only section
    /// that is loaded together with writable data.
    fn kept(&self, _address: u64) -> Option<u8> {
        None
    }

    /// Whether a program declares that it writes at an address, or other code ran there according
    /// to the recording: that code was executed there then says little about later.
    fn is_written(&self, _address: u64) -> bool {
        false
    }

    /// The writable segments of the program, and of its libraries, each by address.
    fn statics(&self) -> [&[Range<u64>]; 2] {
        [&[], &[]]
    }

    /// Whether no two addresses mean the same memory.
    fn is_unique(&self) -> bool {
        true
    }

    /// Whether a store to an address changes memory at another one.
    fn is_alias(&self, _address: u64) -> bool {
        false
    }
}

/// The memory of a core in a snapshot.
#[derive(Debug)]
pub struct SnapshotMemory {
    memory: Arc<CoreMemory>,
    space: Space,
    constants: Constants,
    /// Writable segments of the first program and of the others, by address.
    statics: [Vec<Range<u64>>; 2],
    /// Whether the architecture says where devices are, as in the M profile.
    has_address_map: bool,
}

impl SnapshotMemory {
    /// The memory that a core sees in a space, and the programs loaded there: first the program itself,
    /// then its libraries. Sections that are not writable are constant, unless code in them changed.
    pub fn new<'a>(
        memory: Arc<CoreMemory>,
        space: Space,
        programs: impl IntoIterator<Item = &'a Elf>,
    ) -> Self {
        let programs: Vec<&Elf> = programs.into_iter().collect();
        let mut statics: [Vec<Range<u64>>; 2] = Default::default();
        for (number, elf) in programs.iter().enumerate() {
            statics[number.min(1)].extend(writable(elf));
        }
        for ranges in &mut statics {
            ranges.sort_by_key(|range: &Range<u64>| range.start);
        }
        Self {
            memory,
            space,
            constants: Constants::of(programs),
            statics,
            has_address_map: false,
        }
    }
}

impl SnapshotMemory {
    /// The word at an address, also of a device, if the snapshot contains it.
    fn word(&self, address: Address) -> Option<u32> {
        let mut bytes = [0; 4];
        let known = self.memory.read(address, self.space, &mut bytes);
        (known == bytes.len()).then_some(u32::from_le_bytes(bytes))
    }
}

/// The writable segments of a program, including memory that is cleared at load time.
fn writable(elf: &Elf) -> Vec<Range<u64>> {
    let Ok(file) = object::File::parse(elf.bytes()) else {
        return Vec::new();
    };
    let size = |address: u64| {
        let linked = address.wrapping_sub(elf.offset);
        let segment = file.segments().find(|segment| segment.address() == linked);
        segment.map(|segment| segment.size())
    };
    let segments = elf.segments.iter().filter(|segment| segment.writable);
    segments
        .map(|segment| {
            let size = size(segment.address).unwrap_or(segment.file.len() as u64);
            segment.address..segment.address.saturating_add(size)
        })
        .collect()
}

impl FinalMemory for SnapshotMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        // A page may be written at another address too, so memory mapped by tables proves nothing.
        if !self.is_unique() {
            return 0;
        }
        let mut length = out.len();
        if self.has_address_map {
            length = length.min(address_map::length_at(address) as usize);
        }
        self.memory
            .read(Address(address), self.space, &mut out[..length])
    }

    fn next(&self, address: u64) -> Option<u64> {
        let next = self.memory.next(Address(address), self.space)?;
        let devices = address_map::devices_at(next.0).filter(|_| self.has_address_map);
        match devices {
            Some(end) => self.next(end - 1),
            None => self.is_unique().then_some(next.0),
        }
    }

    fn is_alias(&self, address: u64) -> bool {
        self.has_address_map && address_map::is_alias(address)
    }

    fn statics(&self) -> [&[Range<u64>]; 2] {
        [&self.statics[0], &self.statics[1]]
    }

    fn is_unique(&self) -> bool {
        !self.memory.is_translated(self.space)
    }

    fn is_constant(&self, address: u64) -> bool {
        self.constants.length_at(address) > 0 && !self.memory.changed().contains(address)
    }

    fn kept(&self, address: u64) -> Option<u8> {
        self.constants.kept(address)
    }

    fn is_written(&self, address: u64) -> bool {
        self.constants.is_data(address) || self.memory.changed().contains(address)
    }
}

/// The addresses of a core's loads and stores, as recorded beside the trace.
pub trait RecordedAddresses: Send {
    /// The number of instructions that the core executed.
    fn instructions(&self) -> u64;

    /// The accesses of a range of instructions, in order.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn accesses(&self, range: Range<u64>) -> Result<Vec<Accessed>, Error>;
}

impl<B: Deref<Target = [u8]> + Send> RecordedAddresses for Addresses<B> {
    fn instructions(&self) -> u64 {
        Addresses::instructions(self)
    }

    fn accesses(&self, range: Range<u64>) -> Result<Vec<Accessed>, Error> {
        Addresses::accesses(self, range).collect()
    }
}

/// Other cores or threads that write the memory of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// There are none.
    #[default]
    None,
    /// All of them had ended at this time: by the timestamps in the core's trace, they wrote
    /// nothing after it. (The kernel may still have cleared the word by which others learn of a
    /// thread's end.)
    EndedBy(u64),
    /// They may write at any time.
    Always,
    /// There are none, as far as is known; but devices may write.
    Devices,
}

impl Others {
    /// The other writers of the memory of a core of a snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot, core: &str) -> Self {
        if has_other_writers(snapshot) {
            return Self::Always;
        }
        let recording = Recording::of(snapshot);
        let devices = snapshot.devices.iter();
        let others = devices.filter(|d| d.class == DeviceClass::Core && d.name != core);
        let ends: Option<Vec<u64>> = others.map(|other| recording.end_of(&other.name)).collect();
        match ends {
            None => Self::Always,
            Some(ends) => ends.into_iter().max().map_or(Self::None, Self::EndedBy),
        }
    }
}

/// Opens the histories of a program's threads, by their places.
type OpenHistories = Box<dyn Fn() -> Vec<Option<History>> + Send>;

/// What a program started with, and what entered it.
pub struct Recorded {
    /// The records.
    pub inputs: Inputs,
    /// The place of the core among those of the program.
    pub core: usize,
    /// Opens the histories of all of these, if there are several.
    threads: Option<OpenHistories>,
}

impl Recorded {
    /// What was recorded for a core, which sees this memory.
    fn of(loaded: &OpenSnapshot, core: &str, memory: &Arc<CoreMemory>) -> Option<Self> {
        let inputs = loaded.inputs(core)?.ok()?;
        let cores = core_files::cores_like::<Inputs>(&loaded.snapshot, core);
        let devices = &loaded.snapshot.devices;
        let device = |name: &&String| devices.iter().position(|device| device.name == **name);
        let devices: Vec<Option<usize>> = cores.iter().map(device).collect();
        let threads = (cores.len() > 1).then(|| {
            let (loaded, memory) = (loaded.clone(), Arc::clone(memory));
            let open = move || {
                let cores = devices.iter().flatten().map(|&device| TracedCore {
                    device,
                    memory: Arc::clone(&memory),
                });
                let cores: Vec<TracedCore> = cores.collect();
                Timeline::open(&loaded, &cores).into_histories(&devices)
            };
            Box::new(open) as _
        });
        Some(Self {
            inputs,
            core: cores.iter().position(|name| *name == core)?,
            threads,
        })
    }

    /// Whether the program had several threads.
    pub fn has_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// The histories of its threads, by their places, if there are several.
    pub fn histories(&self) -> Option<Vec<Option<History>>> {
        self.threads.as_ref().map(|open| open())
    }
}

/// Everything known besides the trace and the code.
pub struct FinalState {
    /// The architecture of the core.
    pub architecture: Architecture,
    /// What is known of an M-profile core whose exceptions are modelled.
    pub microcontroller: Option<Microcontroller>,
    /// CPSR of the halted core.
    pub status: Option<u64>,
    /// The registers of the halted core.
    pub registers: [Option<u64>; Location::KEPT],
    /// The memory.
    pub memory: Arc<dyn FinalMemory>,
    /// What else writes the same memory.
    pub others: Others,
    /// Whether a program was traced without its kernel.
    pub without_kernel: bool,
    /// Recorded addresses of loads and stores.
    pub addresses: Option<Box<dyn RecordedAddresses>>,
    /// What the program started with, and what entered it, if it was recorded.
    pub replay: Option<Recorded>,
    /// Where exceptions of C++ and panics of Rust continue.
    pub landing_pads: LandingPads,
    /// Code whose functions preserve nothing.
    pub go: GoCode,
}

impl std::fmt::Debug for FinalState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinalState").finish_non_exhaustive()
    }
}

impl FinalState {
    /// What a snapshot contains of the end of a core, besides its trace. `registers` and `memory` are
    /// its own; `code` is what it may have run: its programs and their libraries. Recorded addresses
    /// that cannot be read are left out.
    #[must_use]
    pub fn of<'a>(
        loaded: &OpenSnapshot,
        core: &str,
        registers: &RegisterFile,
        memory: SnapshotMemory,
        code: impl IntoIterator<Item = &'a Elf> + Clone,
    ) -> Self {
        let addresses = loaded.data_addresses(core).and_then(Result::ok);
        let architecture = registers.architecture();
        let is_m_profile = architecture == Architecture::MProfile;
        let device = loaded.snapshot.devices.iter().find(|d| d.name == core);
        let others = match Others::of(&loaded.snapshot, core) {
            Others::None if is_m_profile => Others::Devices,
            others => others,
        };
        let replay = Recorded::of(loaded, core, &memory.memory);
        Self {
            architecture,
            microcontroller: device.filter(|_| is_m_profile).and_then(|device| {
                let words: (&dyn Fn(_) -> _, &dyn Fn(_) -> _) =
                    (&|address| memory.word(address), &|address| {
                        memory.is_constant(address)
                    });
                Microcontroller::of(&device.kind, words, code.clone())
            }),
            status: registers.value("cpsr"),
            registers: Self::locations(registers),
            memory: Arc::new(SnapshotMemory {
                has_address_map: is_m_profile,
                ..memory
            }),
            others,
            without_kernel: Recording::of(&loaded.snapshot).linux_program,
            addresses: addresses.map(|addresses| Box::new(addresses) as _),
            replay,
            landing_pads: LandingPads::new(code.clone()),
            go: GoCode::new(code),
        }
    }

    /// x29, the frame pointer.
    pub(in crate::recover) fn frame(&self) -> Option<u64> {
        let is_convention = self.architecture == Architecture::AArch64;
        self.registers[29].filter(|_| is_convention)
    }

    /// Whether the halted core would execute T32 next: bit T of CPSR (DDI 0487, G1.9.1).
    pub(in crate::recover) fn is_thumb(&self) -> bool {
        self.architecture == Architecture::MProfile || self.has(5)
    }

    /// Whether the core's instructions are not modelled: AArch32 is modelled only for programs
    /// traced without their kernel, with little-endian data (bit E of CPSR), and of the M profile
    /// only cores whose exceptions are.
    pub(in crate::recover) fn has_no_model(&self) -> bool {
        match self.architecture {
            Architecture::AArch64 => false,
            Architecture::AArch32 => !self.without_kernel || self.has(9),
            Architecture::MProfile => self.microcontroller.is_none(),
        }
    }

    fn has(&self, bit: u32) -> bool {
        let status = self
            .status
            .filter(|_| self.architecture == Architecture::AArch32);
        status.is_some_and(|status| status >> bit & 1 == 1)
    }

    /// The final registers of a core as locations of [`armsnap_arch::semantics`].
    #[must_use]
    pub fn locations(file: &RegisterFile) -> [Option<u64>; Location::KEPT] {
        let mut out = [None; Location::KEPT];
        let mut set = |location: Location, value| out[location.index()] = value;
        let half = |register: &str, half: usize| {
            let bytes = file.core(register)?.get(8 * half..8 * half + 8)?;
            bytes.iter().rev().try_fold(0_u64, |value, byte| {
                byte.map(|byte| value << 8 | u64::from(byte))
            })
        };
        if file.architecture() == Architecture::AArch64 {
            for number in 0..31 {
                set(Location::general(number), file.value(&format!("x{number}")));
            }
            set(Location::SP, file.value("sp"));
            set(Location::FPCR, file.value("fpcr"));
            set(Location::THREAD_POINTER, file.value("tpidr_el0"));
            set(Location::ZERO_BLOCK, file.value("dczid_el0"));
            for number in 0..32 {
                for part in 0..2 {
                    let value = half(&format!("v{number}"), part.into());
                    set(Location::vector(number, part), value);
                }
            }
        } else {
            for number in 0..15 {
                set(Location::general(number), file.value(&format!("r{number}")));
            }
            for number in 0..32 {
                let value = half(&format!("d{number}"), 0);
                set(Location::vector(number / 2, number % 2), value);
            }
            if let Some(fpscr) = file.value("fpscr") {
                set(Location::FPSCR_FLAGS, Some(fpscr >> 28 & 0xf));
                set(Location::FPCR, Some(fpscr & 0x07f7_9f00));
            }
        }
        let status = match file.architecture() {
            Architecture::MProfile => file.value("xpsr"),
            Architecture::AArch32 | Architecture::AArch64 => file.value("cpsr"),
        };
        if let Some(status) = status {
            let flags = [Location::N, Location::Z, Location::C, Location::V];
            for (location, bit) in flags.into_iter().zip([31, 30, 29, 28]) {
                set(location, Some(status >> bit & 1));
            }
            if file.architecture() != Architecture::AArch64 {
                set(Location::Q, Some(status >> 27 & 1));
                set(Location::GE, Some(status >> 16 & 0xf));
            }
        }
        if file.architecture() == Architecture::MProfile
            && let Some(status) = status
        {
            let handles = status & 0x1ff != 0;
            set(Location::HANDLER_MODE, Some(handles.into()));
            let [sp, msp, psp] = ["sp", "msp", "psp"].map(|name| file.value(name));
            // CONTROL.SPSEL, in Thread mode.
            let control = file.value("CONTROL");
            let selected = control.map(|control| control & 2 != 0);
            set(Location::FLOATS, control.map(|control| control >> 2 & 1));
            let on_process = match (handles, selected) {
                (true, _) => Some(false),
                (false, Some(selected)) => Some(selected),
                _ if sp.is_none() || msp == psp => None,
                _ if sp == msp => Some(false),
                _ if sp == psp => Some(true),
                _ => None,
            };
            set(Location::ON_PROCESS_STACK, on_process.map(u64::from));
            let other = on_process.and_then(|process| if process { msp } else { psp });
            set(Location::OTHER_STACK, other);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_elf::small_elf;

    #[test]
    fn writable_segments_are_where_the_program_was_loaded() {
        let bytes = small_elf(&[1; 4], &[2; 8]);
        let elf = Elf::read("program".into(), bytes.into()).unwrap();
        let found = [elf.clone(), elf.moved(0x5_0000)].map(|elf| writable(&elf));
        // Includes the 16 bytes that are cleared.
        assert_eq!(found.concat(), [0x2000..0x2018, 0x5_2000..0x5_2018]);
    }
}
