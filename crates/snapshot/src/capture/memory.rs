//! The memory of a core, with processes identified as in its trace.

use super::registers;
use crate::snapshot::OpenSnapshot;
use crate::snapshot::memory::CoreMemory;
use crate::snapshot::model::Device;
use crate::snapshot::topology;

/// TRCCONFIGR: virtual contexts are traced (VMID) and contain CONTEXTIDR_EL2 (VMIDOPT) (IHI 0064,
/// TRCCONFIGR).
const HOST_IDS: u64 = 1 << 15 | 1 << 7;

/// Returns the memory of the core at index `core` of the device list, through its translation
/// tables.
pub fn core_memory(loaded: &OpenSnapshot, core: usize) -> CoreMemory {
    let snapshot = &loaded.snapshot;
    let mut memory = CoreMemory::new(loaded, &snapshot.devices[core]);
    memory.translate(loaded, core);
    if memory.is_of_host() {
        let only = topology::only_core(snapshot);
        let sources = topology::sources(snapshot).into_iter();
        let mut sources = sources.filter(|source| source.core.or(only) == Some(core));
        if sources.any(|source| traces_host_ids(&snapshot.devices[source.device])) {
            memory.trace_host_ids();
        }
    }
    memory
}

/// Whether a trace source traces CONTEXTIDR_EL2, which identifies a process of a host, instead of
/// VMIDs.
pub fn traces_host_ids(source: &Device) -> bool {
    let register = registers::known_registers(source).find(|(name, _)| *name == "TRCCONFIGR");
    let value = register.and_then(|(_, register)| register.value.as_u64());
    value.is_some_and(|value| value & HOST_IDS == HOST_IDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::translated::Process;
    use armsnap_arch::quantity::ExceptionLevel;
    use std::sync::Arc;

    #[test]
    fn vmids_are_those_of_a_host_where_its_trace_has_them() {
        // HCR_EL2.E2H and TGE; in a guest, only E2H is set.
        for (hcr, configuration, host_ids) in [
            ("0x408000000", 0x80c1, true),
            ("0x408000000", 0xc1, false),
            ("0x408000000", 0x8041, false),
            ("0x400000000", 0x80c1, false),
        ] {
            let core = format!(
                "[device]\nname=c\nclass=core\ntype=Cortex-A55\n[regs]\nPC(size:64)=0\n\
                 HCR_EL2(size:64)={hcr}\nCONTEXTIDR_EL2=7\n[dump]\nfile=x\naddress=0\nspace=P\n"
            );
            let source = format!(
                "[device]\nname=e\nclass=trace_source\ntype=ETM4.2\n[regs]\n\
                 TRCCONFIGR(0x004)={configuration:#x}\n"
            );
            let list = "[device_list]\na=c.ini\nb=e.ini\n[trace]\nmetadata=t.ini\n";
            let trace = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=x\nformat=source_data\n";
            let mut files = InMemory::default();
            for (name, text) in [
                ("snapshot.ini", list),
                ("c.ini", &core),
                ("e.ini", &source),
                ("t.ini", trace),
                ("x", "0123"),
            ] {
                files.0.insert(name.into(), text.as_bytes().to_vec().into());
            }
            let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
            let memory = core_memory(&loaded, 0);
            let process = |vmid| {
                memory
                    .moment(Some(ExceptionLevel(0)), None, Some(vmid))
                    .process
            };
            assert_eq!(process(7), Process::CURRENT);
            let other = if host_ids {
                Process::UNKNOWN
            } else {
                Process::CURRENT
            };
            assert_eq!(process(8), other, "{hcr} {configuration:#x}");
        }
    }
}
