//! Physical memory seen at virtual addresses, through the translation tables of a core.
//!
//! The physical memory of a core consists of, in this order: its own dumps of the spaces `P`, `NP`
//! and `SP`, the dumps of memory devices, and dumps of these spaces of other cores. The translation
//! tables come from its registers or from `[translation]` in its file, which gives tables that are
//! known without registers because a kernel's own records name them.
//!
//! Low addresses belong to a process. The registers give the tables of the process that a core runs
//! when it halts; those of another process are known if another core runs it. If HCR_EL2.TGE is set
//! in the halted state, EL1 in the trace was a guest, whose tables are not known. If E2H is set
//! too, the processes belong to a host: their tables are in TTBR0_EL2 and their context IDs in
//! CONTEXTIDR_EL2 (DDI 0487, D8.2 and D19.2.27), which trace contains only instead of the VMID. The
//! pages that were found are cached.

use super::CoreMemory;
use super::dumps::{self, Dumps};
use crate::snapshot::model::{Device, DeviceClass, OtherSection};
use crate::snapshot::note::MemoryNote;
use crate::snapshot::registers::parse_u64;
use armsnap_arch::arch::{Architecture, CoreType, RegisterFile, Space};
use armsnap_arch::quantity::{Address, ExceptionLevel, Profile};
use armsnap_arch::translation::{
    Fault, KernelForm, KernelTables, Mapping, Maps, NoRegime, PhysicalMemory, Regime, Regimes,
    Step, World,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError, RwLock};

/// The section of a core's file with tables that are known without registers.
pub const SECTION: &str = "translation";
/// The unit in which translations are cached, in address bits: the smallest page.
const PAGE: u32 = 12;
/// Maximum number of pages that are cached.
const MAX_PAGES: usize = 1 << 16;
/// Maximum number of table walks to find the next address with memory.
const WALKS: usize = 4096;
/// Maximum number of other cores whose registers and physical memory are used.
const MAX_CORES: usize = 64;
/// Maximum number of context IDs without tables that are kept.
const MAX_UNKNOWN: usize = 64;

/// The tables of low addresses that a past state of a core selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process(pub u32);

impl Process {
    /// The process of the halted state.
    pub const CURRENT: Self = Self(0);
    /// A process whose tables are not known.
    pub const UNKNOWN: Self = Self(1);
}

/// The mapping of a page, if it is mapped.
type Page = Option<Mapping>;

/// The physical memory of a core, and its tables.
#[derive(Debug)]
pub struct Translated {
    physical: Dumps,
    /// By process.
    regimes: Vec<Regimes>,
    /// By context ID.
    processes: BTreeMap<u32, Process>,
    /// Whether the processes are those of a host (FEAT_VHE).
    is_host: bool,
    /// Whether trace has CONTEXTIDR_EL2 instead of the VMID.
    host_ids_traced: bool,
    /// The process whose tables EL1 uses.
    el1: Process,
    /// Context IDs without tables that were requested.
    unknown: Mutex<BTreeSet<u32>>,
    /// By process, space and page.
    pages: RwLock<HashMap<(Process, Space, u64), Page>>,
}

impl Translated {
    /// Creates the translation of the core at index `device` of a device list.
    pub(super) fn of(devices: &[Device], device: usize, physical: Dumps) -> Option<Self> {
        let core = devices.get(device)?;
        let registers =
            |device: &Device| RegisterFile::read(device, Architecture::detect(device).architecture);
        let own = registers(core);
        let has_mpu = CoreType::parse(&core.kind).is_some_and(|kind| kind.profile == Profile::R);
        let kernel = core.other_sections.iter().find_map(kernel_tables);
        let current = match &kernel {
            Some(kernel) => Regimes::of_kernel(kernel),
            None => Regimes::of(&own, has_mpu),
        };
        let unknown = current.with_changed(|regime| Some(regime.without_low_table()));
        let mut out = Self {
            physical,
            regimes: vec![current, unknown],
            processes: BTreeMap::new(),
            is_host: is_host(&own),
            host_ids_traced: false,
            el1: Process::CURRENT,
            unknown: Mutex::default(),
            pages: RwLock::default(),
        };
        out.processes
            .extend(context_id(&own).map(|id| (id, Process::CURRENT)));
        if out.regimes[0].exclude_el1() {
            out.el1 = Process(out.regimes.len() as u32);
            out.regimes.push(out.regimes[0].of_el1());
        }
        if kernel.is_some() {
            return Some(out);
        }
        let architecture = own.architecture();
        for other in other_cores(devices, core) {
            let other = registers(other);
            let (Some(id), Some(table)) = (context_id(&other), low_table(&other)) else {
                continue;
            };
            let alike = other.architecture() == architecture && is_host(&other) == out.is_host;
            if alike && !out.processes.contains_key(&id) {
                let process = Process(out.regimes.len() as u32);
                let of = out.regimes[0].with_changed(|regime| regime.with_table(false, table));
                out.regimes.push(of);
                out.processes.insert(id, process);
            }
        }
        Some(out)
    }

    /// Returns the process that a core runs in a past state. Software above EL0 that runs at low
    /// addresses is not part of a process, but may be part of a guest. `context_id` is
    /// CONTEXTIDR_EL1; `vmid` may be CONTEXTIDR_EL2.
    pub fn process(
        &self,
        level: Option<ExceptionLevel>,
        context_id: Option<u32>,
        vmid: Option<u32>,
    ) -> Process {
        let id = match self.is_host {
            true => vmid.filter(|_| self.host_ids_traced),
            false => context_id,
        };
        match (level, id) {
            (Some(ExceptionLevel(1)), _) => self.el1,
            (Some(ExceptionLevel(2..)), _) | (_, None) => Process::CURRENT,
            (_, Some(id)) => self.processes.get(&id).copied().unwrap_or_else(|| {
                let unknown = self.unknown.lock();
                let mut unknown = unknown.unwrap_or_else(PoisonError::into_inner);
                if unknown.len() < MAX_UNKNOWN {
                    unknown.insert(id);
                }
                Process::UNKNOWN
            }),
        }
    }

    /// Returns the number of processes that [`Self::process`] distinguishes.
    pub fn processes(&self) -> u32 {
        self.regimes.len() as u32
    }

    /// Returns a note on processes without tables that were requested so far.
    pub fn missing_processes(&self) -> Option<MemoryNote> {
        let unknown = self.unknown.lock();
        let unknown = unknown.unwrap_or_else(PoisonError::into_inner);
        (!unknown.is_empty()).then(|| MemoryNote::UnknownProcesses {
            context_ids: unknown.iter().copied().collect(),
        })
    }

    /// Returns the regime of a space.
    ///
    /// # Errors
    ///
    /// Returns the reason if the space has no regime.
    pub fn regime(&self, space: Space) -> Result<&Regime, NoRegime> {
        self.regimes[0].get(space)
    }

    /// Translates an address in a regime, and reports each step to `visit`.
    ///
    /// # Errors
    ///
    /// Returns a fault if the address has no translation.
    pub fn translate(
        &self,
        regime: &Regime,
        address: u64,
        visit: &mut impl FnMut(Step),
    ) -> Result<Mapping, Fault> {
        regime.translate(address, self, visit)
    }

    /// Returns the mapped ranges of a regime from an address, found with at most `walks` walks.
    pub fn maps<'a>(&'a self, regime: &'a Regime, from: u64, walks: usize) -> Maps<'a, &'a Self> {
        Maps::new(regime, self, from, walks)
    }

    /// Returns the known bytes from an address up to the end of its page or block.
    pub fn slice_in(&self, regime: &Regime, address: u64) -> &[u8] {
        let found = regime.translate(address, self, &mut |_| {});
        found.map_or(&[], |mapping| self.mapped(&mapping))
    }

    /// Reads memory in a regime. Returns the number of bytes before the first unknown one.
    pub fn read_in(&self, regime: &Regime, address: Address, out: &mut [u8]) -> usize {
        dumps::read(
            address,
            out,
            |at| self.slice_in(regime, at.0),
            |at, count| match regime.translate(at.0, self, &mut |_| {}) {
                Ok(found) => {
                    let physical = Address(found.physical);
                    let found = self.physical.remaining(physical, space(found.world), count);
                    found.unwrap_or(0)
                }
                Err(_) => 0,
            },
        )
    }

    /// Returns the physical memory.
    pub fn physical(&self) -> &Dumps {
        &self.physical
    }

    /// Returns the known bytes from an address up to the end of its page or block.
    pub(super) fn slice(&self, process: Process, address: Address, space: Space) -> &[u8] {
        match space {
            Space::P | Space::Np | Space::Sp => self.physical.slice(address, space),
            _ => self
                .find(process, address, space)
                .map_or(&[], |mapping| self.mapped(&mapping)),
        }
    }

    /// See [`CoreMemory::remaining`].
    pub(super) fn remaining(
        &self,
        process: Process,
        address: Address,
        wanted_space: Space,
        wanted: usize,
    ) -> usize {
        match wanted_space {
            Space::P | Space::Np | Space::Sp => {
                self.physical.remaining(address, wanted_space, wanted)
            }
            _ => self.find(process, address, wanted_space).and_then(|found| {
                let physical = Address(found.physical);
                self.physical
                    .remaining(physical, space(found.world), wanted)
            }),
        }
        .unwrap_or(0)
    }

    /// Returns an address after `address` and before `end`. No byte between the page of `address`
    /// and the returned address is known; the byte there may be unknown too.
    pub(super) fn next(
        &self,
        address: Address,
        end: Option<Address>,
        wanted: Space,
    ) -> Option<Address> {
        if matches!(wanted, Space::P | Space::Np | Space::Sp) {
            let next = self.physical.next(address, wanted);
            return next.filter(|next| end.is_none_or(|end| *next < end));
        }
        self.next_in(self.regime(wanted).ok()?, address, end)
    }

    /// Returns an address of a regime after `address` and before `end`. No byte between the page of
    /// `address` and the returned address is known; the byte there may be unknown too.
    pub fn next_in(
        &self,
        regime: &Regime,
        address: Address,
        end: Option<Address>,
    ) -> Option<Address> {
        let from = (address.0 | ((1 << PAGE) - 1)).checked_add(1)?;
        let mut maps = self.maps(regime, from, WALKS).before(end.map(|end| end.0));
        while let Some(range) = maps.next_block() {
            let (physical, space) = (Address(range.physical), space(range.world));
            if !self.physical.slice(physical, space).is_empty() {
                return Some(Address(range.first));
            }
            let next = self.physical.next(physical, space);
            let within = next.map(|next| next.0 - physical.0);
            if let Some(within) = within.filter(|within| *within <= range.last - range.first) {
                return Some(Address(range.first + within));
            }
        }
        maps.reached().map(Address)
    }

    /// Returns the mapping of an address. The mapping of its page is cached.
    fn find(&self, process: Process, address: Address, space: Space) -> Option<Mapping> {
        let (page, within) = (address.0 >> PAGE, address.0 & ((1 << PAGE) - 1));
        let key = (process, space, page);
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let known = pages.get(&key).copied();
        drop(pages);
        let found = known.unwrap_or_else(|| {
            let found = self.walk(process, page << PAGE, space);
            let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
            if pages.len() >= MAX_PAGES {
                pages.clear();
            }
            pages.insert(key, found);
            found
        });
        let mut found = found?;
        found.physical |= within;
        Some(found)
    }

    fn walk(&self, process: Process, address: u64, space: Space) -> Page {
        let regimes = self.regimes.get(process.0 as usize)?;
        let regime = regimes.get(space).ok()?;
        let found = regime.translate(address, self, &mut |_| {}).ok()?;
        // If kernel and processes share one table, memory that a process can access belongs to the
        // process.
        let user = found.attributes.and_then(|attributes| attributes.user);
        let of_process = user.is_some_and(|user| user.read || user.execute);
        let shared = process != Process::UNKNOWN || regime.is_high(address) || !of_process;
        Some(found).filter(|_| shared)
    }

    fn mapped(&self, mapping: &Mapping) -> &[u8] {
        let block = 1_u64 << mapping.shift.min(63);
        let most = block - (mapping.physical & (block - 1));
        let space = space(mapping.world);
        let bytes = self.physical.slice(Address(mapping.physical), space);
        &bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))]
    }
}

impl PhysicalMemory for Translated {
    fn read(&self, address: u64, world: World, out: &mut [u8]) -> bool {
        self.physical.read(Address(address), space(world), out) == out.len()
    }
}

impl CoreMemory {
    /// Returns whether tables map addresses of a space, so that several addresses may refer to one
    /// location in memory.
    pub fn is_translated(&self, space: Space) -> bool {
        let regime = self.translated.as_ref().map(|all| all.regime(space));
        regime.is_some_and(|regime| regime.is_ok_and(|regime| !regime.is_identity()))
    }

    /// Returns whether the core runs a host (FEAT_VHE) whose processes have translation tables.
    pub fn is_of_host(&self) -> bool {
        self.translated.as_ref().is_some_and(|all| all.is_host)
    }

    /// Interprets the VMIDs in trace as CONTEXTIDR_EL2, which identifies processes of a host.
    pub fn trace_host_ids(&mut self) {
        if let Some(all) = &mut self.translated {
            all.host_ids_traced = true;
        }
    }

    /// Returns the translation of the core, if the snapshot has physical memory.
    pub fn translated(&self) -> Option<&Translated> {
        self.translated.as_deref()
    }
}

/// Returns the cores other than `core`, at most [`MAX_CORES`].
pub(super) fn other_cores<'d>(
    devices: &'d [Device],
    core: &'d Device,
) -> impl Iterator<Item = &'d Device> {
    let is_core = |device: &&Device| device.class == DeviceClass::Core;
    let cores = devices.iter().filter(is_core);
    let others = cores.filter(move |device| !std::ptr::eq(*device, core));
    others.take(MAX_CORES)
}

const fn space(world: World) -> Space {
    match world {
        World::NonSecure => Space::Np,
        World::Secure => Space::Sp,
    }
}

/// Returns whether EL0 belongs to a host: HCR_EL2.E2H and TGE.
fn is_host(registers: &RegisterFile) -> bool {
    const E2H_TGE: u64 = 1 << 34 | 1 << 27;
    let hcr = registers.value("HCR_EL2");
    hcr.is_some_and(|hcr| hcr & E2H_TGE == E2H_TGE)
}

/// Returns the context ID of the process that a core runs.
fn context_id(registers: &RegisterFile) -> Option<u32> {
    let names: &[_] = match is_host(registers) {
        true => &["CONTEXTIDR_EL2"],
        false => &["CONTEXTIDR_EL1", "CONTEXTIDR", "N_CONTEXTIDR"],
    };
    let value = names.iter().find_map(|name| registers.value(name))?;
    u32::try_from(value).ok()
}

/// Returns the table of low addresses of the process that a core runs.
fn low_table(registers: &RegisterFile) -> Option<u64> {
    let names: &[_] = match is_host(registers) {
        true => &["TTBR0_EL2"],
        false => &["TTBR0_EL1", "TTBR0_64", "TTBR0", "N_TTBR0_64", "N_TTBR0"],
    };
    names.iter().find_map(|name| registers.value(name))
}

/// Returns the tables that a section describes.
fn kernel_tables(section: &OtherSection) -> Option<KernelTables> {
    let value = |name: &str| {
        let entry = section.entries.iter().find(|(key, _)| key == name);
        parse_u64(entry?.1.trim())
    };
    if section.name != SECTION {
        return None;
    }
    let mut entries = section.entries.iter();
    let format = entries.find(|(key, _)| key == "format");
    let form = match format.map(|(_, format)| format.trim()) {
        None => KernelForm::AArch64,
        Some("short") => KernelForm::Short {
            first: value("first")?,
        },
        Some("long") => KernelForm::Long {
            first: value("first")?,
        },
        Some(_) => return None,
    };
    Some(KernelTables {
        form,
        high_table: value("high_table")?,
        granule: value("granule")?,
        high_bits: u32::try_from(value("high_bits")?).ok()?,
    })
}

/// Returns the section for tables that are known without registers; `from` names the origin of this
/// knowledge.
pub fn section(tables: &KernelTables, from: &str) -> OtherSection {
    let entry = |key: &str, value: String| (key.to_owned(), value);
    let mut entries = vec![
        entry("from", from.to_owned()),
        entry("high_table", format!("{:#x}", tables.high_table)),
        entry("granule", tables.granule.to_string()),
        entry("high_bits", tables.high_bits.to_string()),
    ];
    let aarch32 = match tables.form {
        KernelForm::AArch64 => None,
        KernelForm::Short { first } => Some(("short", first)),
        KernelForm::Long { first } => Some(("long", first)),
    };
    if let Some((format, first)) = aarch32 {
        entries.push(entry("format", format.to_owned()));
        entries.push(entry("first", format!("{first:#x}")));
    }
    OtherSection {
        name: SECTION.to_owned(),
        entries,
        ..OtherSection::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::Moment;
    use std::sync::Arc;

    const TCR: u64 = 5 << 32 | 2 << 30 | 16 << 16 | 16;

    /// Returns a snapshot with physical memory in which 1 GiB blocks are mapped, and with cores
    /// that have registers.
    fn loaded(cores: &[&str]) -> OpenSnapshot {
        let mut files = InMemory::default();
        let mut ram = vec![0_u8; 0x5000];
        ram[0x1000..0x1008].copy_from_slice(&0x2003_u64.to_le_bytes());
        ram[0x2000..0x2008].copy_from_slice(&0x0701_u64.to_le_bytes());
        files.0.insert("ram".into(), ram.into());
        let mut list = "[device_list]\n".to_owned();
        for (index, registers) in cores.iter().enumerate() {
            list += &format!("device{index}=c{index}.ini\n");
            let text = format!(
                "[device]\nname=c{index}\nclass=core\ntype=Cortex-A53\n[regs]\nPC(size:64)=0\n\
                 {registers}\n[dump]\nfile=ram\naddress=0\nspace=P\n"
            );
            files
                .0
                .insert(format!("c{index}.ini"), text.into_bytes().into());
        }
        files
            .0
            .insert("snapshot.ini".into(), list.into_bytes().into());
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    fn memory(loaded: &OpenSnapshot) -> CoreMemory {
        let mut memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
        memory.translate(loaded, 0);
        memory
    }

    #[test]
    fn a_guest_of_the_past_does_not_have_the_tables_of_its_host() {
        let hcr = |hcr: u64| {
            format!(
                "HCR_EL2(size:64)={hcr:#x}\nSCTLR_EL1(size:64)=1\nTCR_EL1(size:64)={TCR:#x}\n\
                 TTBR1_EL1(size:64)=0x1000\nSCTLR_EL2(size:64)=1\nTCR_EL2(size:64)={TCR:#x}\n\
                 TTBR1_EL2(size:64)=0x1000"
            )
        };
        // E2H with and without TGE.
        for (value, el1) in [(1 << 34 | 1 << 27, false), (1 << 34, true)] {
            let loaded = loaded(&[&hcr(value)]);
            let memory = memory(&loaded);
            let known = |level, space| {
                let moment = memory.moment(Some(ExceptionLevel(level)), None, None);
                let address = Address(!0 << 48 | 0x3000);
                assert!(!memory.code(Moment::default(), address, space).is_empty());
                !memory.code(moment, address, space).is_empty()
            };
            assert!(known(2, Space::El2N) && known(0, Space::El1N));
            assert_eq!(known(1, Space::El1N), el1);
        }
    }

    /// Linux writes the process ID to CONTEXTIDR_EL1, which is CONTEXTIDR_EL2 at a host's EL2
    /// (E2H).
    #[test]
    fn processes_of_a_host_have_the_context_ids_of_el2() {
        let core = |hcr: u64, id: u32, table: u64| {
            format!(
                "HCR_EL2(size:64)={hcr:#x}\nSCTLR_EL2(size:64)=1\nTCR_EL2(size:64)={TCR:#x}\n\
                 TTBR0_EL2(size:64)={table:#x}\nCONTEXTIDR_EL2={id}\n\
                 SCTLR_EL1(size:64)=1\nTCR_EL1(size:64)={TCR:#x}\nTTBR0_EL1(size:64)=0x1000\n\
                 CONTEXTIDR_EL1=7"
            )
        };
        let host = 1 << 34 | 1 << 27;
        // The table of the second core maps nothing; the third core runs a guest.
        let cores = [
            core(host, 7, 0x1000),
            core(host, 8, 0x4000),
            core(1 << 34, 9, 0x1000),
        ];
        let loaded = loaded(&cores.each_ref().map(|core| &**core));
        let mut memory = memory(&loaded);
        assert!(memory.is_of_host());
        let known = |memory: &CoreMemory, vmid| {
            let moment = memory.moment(Some(ExceptionLevel(0)), Some(7), vmid);
            !memory.code(moment, Address(0x3000), Space::El1N).is_empty()
        };
        // Any VMID belongs to a guest, and EL1's context ID says nothing about the host.
        assert!(
            [None, Some(0), Some(8)]
                .iter()
                .all(|&vmid| known(&memory, vmid))
        );
        memory.trace_host_ids();
        let all = [None, Some(7), Some(8), Some(9)].map(|vmid| known(&memory, vmid));
        assert_eq!(all, [true, true, false, false]);
        assert_eq!(
            memory.translated().unwrap().missing_processes(),
            Some(MemoryNote::UnknownProcesses {
                context_ids: vec![9]
            })
        );
    }

    #[test]
    fn the_number_of_other_cores_is_limited() {
        let registers: Vec<String> = (0..MAX_CORES + 10)
            .map(|id| {
                format!(
                    "SCTLR_EL1(size:64)=1\nTCR_EL1(size:64)={TCR:#x}\n\
                     TTBR0_EL1(size:64)=0x1000\nCONTEXTIDR_EL1(size:32)={id}"
                )
            })
            .collect();
        let registers: Vec<&str> = registers.iter().map(|text| &**text).collect();
        let loaded = loaded(&registers);
        let memory = memory(&loaded);
        let all = memory.translated().unwrap();
        assert_eq!(all.physical().regions().len(), 1 + MAX_CORES);
        let process = |id| all.process(Some(ExceptionLevel(0)), Some(id), None);
        assert_ne!(process(MAX_CORES as u32), Process::UNKNOWN);
        assert_eq!(process(MAX_CORES as u32 + 1), Process::UNKNOWN);
    }
}
