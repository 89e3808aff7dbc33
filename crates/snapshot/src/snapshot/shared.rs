//! Memory that cores share: where a core has neither dump nor program, a dump of another core of
//! its architecture may supply the bytes.
//!
//! A kernel is dumped through one core but executed by all cores. Two cores may see different
//! memory at one virtual address, so shared memory is reported and can be switched off
//! ([`super::OpenOptions::no_shared_memory`]). Address spaces are separated in the same way as
//! within a core.

use super::dump_files::DumpFiles;
use super::memory::dumps::Dumps;
use super::model::{DeviceClass, Snapshot};
use super::note::MemoryNote;
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The dumps of all cores of one architecture, in the order of the device list.
#[derive(Debug)]
struct Pool {
    memory: Dumps,
    /// For each core: its first region and its name.
    cores: Vec<(usize, String)>,
}

/// The pools of a snapshot.
#[derive(Debug, Default)]
pub(super) struct Pools(BTreeMap<Architecture, Arc<Pool>>);

impl Pools {
    pub(super) fn of(snapshot: &Snapshot, files: &DumpFiles) -> Self {
        let mut pools: BTreeMap<Architecture, Pool> = BTreeMap::new();
        let devices = snapshot.devices.iter();
        for core in devices.filter(|device| device.class == DeviceClass::Core) {
            let pool = pools.entry(Architecture::detect(core).architecture);
            let pool = pool.or_insert_with(|| Pool {
                memory: Dumps::empty(files.clone()),
                cores: Vec::new(),
            });
            let first = pool.memory.regions().len();
            pool.cores.push((first, core.name.clone()));
            pool.memory.add(core);
        }
        let shared = pools.into_iter().filter(|(_, pool)| pool.cores.len() > 1);
        Self(shared.map(|(key, pool)| (key, Arc::new(pool))).collect())
    }
}

impl Pool {
    /// Returns the core that supplies the memory at an address.
    fn core_at(&self, address: Address, space: Space) -> Option<usize> {
        let region = self.memory.region_at(address, space)?;
        let after = self.cores.partition_point(|(first, _)| *first <= region);
        after.checked_sub(1)
    }
}

/// Memory of other cores, and a record of its use.
#[derive(Debug)]
pub(super) struct Others {
    pool: Arc<Pool>,
    /// By core: the first and the last address used.
    taken: Mutex<BTreeMap<usize, (u64, u64)>>,
}

impl Others {
    fn taken(&self) -> MutexGuard<'_, BTreeMap<usize, (u64, u64)>> {
        // The map of addresses is never left half-modified.
        self.taken
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the memory of the cores other than the one at index `device`, if there are any.
    pub(super) fn of(snapshot: &Snapshot, pools: &Pools, device: usize) -> Option<Self> {
        let core = snapshot.devices.get(device)?;
        let is_core = core.class == DeviceClass::Core;
        let architecture = Architecture::detect(core).architecture;
        Some(Self {
            pool: Arc::clone(pools.0.get(&architecture).filter(|_| is_core)?),
            taken: Mutex::default(),
        })
    }

    /// Returns the bytes from `address` up to `end`, where the core's own memory starts.
    pub(super) fn slice(&self, address: Address, end: Option<Address>, space: Space) -> &[u8] {
        let bytes = self.pool.memory.slice(address, space);
        if let Some(core) = self
            .pool
            .core_at(address, space)
            .filter(|_| !bytes.is_empty())
        {
            let mut taken = self.taken();
            let (first, last) = taken.entry(core).or_insert((address.0, address.0));
            (*first, *last) = ((*first).min(address.0), (*last).max(address.0));
        }
        let most = end.map_or(u64::MAX, |end| end.0 - address.0);
        &bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))]
    }

    /// See [`Dumps::remaining`].
    pub(super) fn remaining(&self, address: Address, space: Space, wanted: usize) -> usize {
        let remaining = self.pool.memory.remaining(address, space, wanted);
        remaining.unwrap_or(0)
    }

    pub(super) fn next(&self, address: Address, space: Space) -> Option<Address> {
        self.pool.memory.next(address, space)
    }

    /// Returns a note on the memory of other cores visible in `space` to a core with the dumps
    /// `own`.
    pub(super) fn note(&self, own: &Dumps, space: Space) -> Option<MemoryNote> {
        let pool = &self.pool;
        let mut own = own.extents(space).peekable();
        let (first, _) = pool.memory.extents(space).find_map(|(mut first, last)| {
            // Ranges before this address are not needed for later addresses either.
            while own.next_if(|(_, end)| *end < first).is_some() {}
            while let Some(&(_, end)) = own.peek().filter(|(begin, _)| *begin <= first) {
                if end >= last {
                    return None;
                }
                first = end + 1;
                own.next();
            }
            Some((first, last))
        })?;
        let first = Address(first);
        let core = pool.core_at(first, space)?;
        Some(MemoryNote::Shared {
            first,
            core: pool.cores[core].1.clone(),
        })
    }

    /// Returns a note on the memory of other cores used so far.
    pub(super) fn taken_note(&self) -> Option<MemoryNote> {
        let taken = self.taken();
        let first = taken.values().map(|(first, _)| *first).min()?;
        let last = taken.values().map(|(_, last)| *last).max()?;
        let cores = taken.keys();
        let cores = cores.map(|&core| self.pool.cores[core].1.clone());
        Some(MemoryNote::Taken {
            first: Address(first),
            last: Address(last),
            cores: cores.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::CoreMemory;
    use crate::snapshot::{MemoryNote, OpenSnapshot};
    use armsnap_arch::arch::Space;
    use armsnap_arch::quantity::Address;
    use std::sync::Arc;

    /// Returns cores with dumps of 16 bytes, each of which is the number of the core.
    fn loaded(cores: &[(&str, &str)]) -> OpenSnapshot {
        let mut files = InMemory::default();
        let mut list = String::from("[device_list]\n");
        for (number, (kind, dumps)) in cores.iter().enumerate() {
            list += &format!("d{number}=c{number}.ini\n");
            let head = format!("[device]\nname=cpu_{number}\nclass=core\ntype={kind}\n");
            let dumps = dumps.replace("address", &format!("file=f{number}\naddress"));
            let bytes = vec![number as u8; 16];
            files.0.insert(
                format!("c{number}.ini"),
                (head + &dumps).into_bytes().into(),
            );
            files.0.insert(format!("f{number}"), bytes.into());
        }
        files
            .0
            .insert("snapshot.ini".into(), list.into_bytes().into());
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    fn memory(loaded: &OpenSnapshot, device: usize) -> CoreMemory {
        let mut memory = CoreMemory::new(loaded, &loaded.snapshot.devices[device]);
        memory.share(loaded, device);
        memory
    }

    fn read(memory: &CoreMemory, address: u64, space: Space) -> Vec<u8> {
        let mut bytes = vec![0xFF; 40];
        let known = memory.read(Address(address), space, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    const A: &str = "Cortex-A53";

    #[test]
    fn own_memory_precedes_added_and_shared_memory() {
        let loaded = loaded(&[
            (A, "[dump]\naddress=0x1000"),
            (A, "[dump]\naddress=0x1008\n[dump]\naddress=0x2000"),
            (A, "[dump]\naddress=0x1000"),
        ]);
        let mut first = memory(&loaded, 0);
        let own_then_other = [vec![0; 16], vec![1; 8]].concat();
        assert_eq!(read(&first, 0x1000, Space::El1N), own_then_other);
        assert_eq!(read(&first, 0x2000, Space::El1N), [1; 16]);
        assert_eq!(
            first.next(Address(0x1000), Space::El1N),
            Some(Address(0x1010))
        );
        // The first other core in the list is used, up to the core's own memory.
        let second = memory(&loaded, 1);
        let around = [vec![0; 8], vec![1; 16]].concat();
        assert_eq!(read(&second, 0x1000, Space::El1N), around);
        assert_eq!(second.slice(Address(0x1000), Space::El1N).len(), 8);
        first.add_region(Address(0x2000), vec![9; 4].into(), Space::Any, "program");
        let program = [vec![9; 4], vec![1; 12]].concat();
        assert_eq!(read(&first, 0x2000, Space::El1N), program);
        assert_eq!(first.regions().len(), 2);
    }

    #[test]
    fn address_spaces_and_architectures_are_separate() {
        let loaded = loaded(&[
            (A, "[dump]\naddress=0x1000\nspace=EL3"),
            (A, "[dump]\naddress=0x1000\nspace=EL2"),
            ("Cortex-M4", "[dump]\naddress=0x4000"),
            ("Cortex-A7", "[dump]\naddress=0x5000"),
        ]);
        let first = memory(&loaded, 0);
        assert_eq!(read(&first, 0x1000, Space::El3), [0; 16]);
        assert_eq!(read(&first, 0x1000, Space::El2N), [1; 16]);
        assert_eq!(read(&first, 0x1000, Space::El1N), b"");
        assert_eq!(read(&first, 0x4000, Space::El1N), b"");
        assert_eq!(read(&first, 0x5000, Space::El1N), b"");
        assert_eq!(memory(&loaded, 2).sharing(Space::Any), None);
    }

    #[test]
    fn shared_memory_is_reported_once_with_the_core() {
        let loaded = loaded(&[
            (A, "[dump]\naddress=0x1000"),
            (A, "[dump]\naddress=0x1004"),
            (A, ""),
        ]);
        let note = |core: usize| memory(&loaded, core).sharing(Space::El1N);
        let names = |note: Option<MemoryNote>, core: &str, at: &str| {
            let text = note.unwrap().to_string();
            text.contains(&format!("with {at}: memory of {core} is shown"))
        };
        assert!(names(note(0), "cpu_1", "0x1010"));
        assert!(names(note(1), "cpu_0", "0x1000"));
        assert!(names(note(2), "cpu_0", "0x1000"));
        let third = memory(&loaded, 2);
        assert_eq!(third.taken_from_others(), None);
        for address in [0x1008, 0x1004, 0x1012] {
            read(&third, address, Space::El1N);
        }
        let taken = third.taken_from_others().unwrap().to_string();
        assert!(
            taken.contains("from 0x1004 to 0x1012: memory of cpu_0, cpu_1 is used"),
            "{taken}"
        );
    }

    #[test]
    fn sharing_can_be_switched_off() {
        let mut loaded = loaded(&[(A, "[dump]\naddress=0x1000"), (A, "")]);
        loaded.no_shared_memory = true;
        let memory = memory(&loaded, 1);
        assert_eq!(read(&memory, 0x1000, Space::El1N), b"");
        assert_eq!(memory.sharing(Space::El1N), None);
    }
}
