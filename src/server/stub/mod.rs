//! A snapshot as a target of gdbstub, which answers most packets from it; [`super::packets`] lists the
//! others.
//!
//! A snapshot is read-only: reads are served, writes refused.

pub(super) mod breakpoints;
mod host_io;
pub(super) mod monitor;
pub(super) mod resume;

use std::num::NonZeroUsize;

use gdbstub::arch::{Arch, RegId, Registers};
use gdbstub::common::{Endianness, Pid, Tid};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread as multi;
use gdbstub::target::ext::breakpoints::BreakpointsOps;
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::host_info::{HostInfo, HostInfoOps, HostInfoResponse};
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::libraries::{LibrariesSvr4, LibrariesSvr4Ops};
use gdbstub::target::ext::monitor_cmd::MonitorCmdOps;
use gdbstub::target::ext::process_info::{ProcessInfo, ProcessInfoOps, ProcessInfoResponse};
use gdbstub::target::ext::section_offsets::{Offsets, SectionOffsets, SectionOffsetsOps};
use gdbstub::target::ext::target_description_xml_override as xml;
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};

use super::registers;
use super::shown_memory;
use super::target::SnapshotTarget;
use super::threads;
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::registers::Bytes;

/// `EPERM`, as for a malformed packet.
const EPERM: u8 = 1;
/// `EFAULT`: no known memory at that address.
const EFAULT: u8 = 14;
/// `EROFS`: a snapshot cannot be written.
const EROFS: u8 = 30;

/// A packet names a core that does not exist.
#[derive(Debug)]
pub struct NoSuchCore;

/// gdbstub's view of the architecture. The registers are known only at run time.
pub enum AnyArm {}

impl Arch for AnyArm {
    type Usize = u64;
    type Registers = GeneralRegisters;
    type BreakpointKind = usize;
    type RegId = RegisterNumber;
}

/// The bytes of the general registers, as sent to clients; `None` for unknown ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneralRegisters(Bytes);

impl Registers for GeneralRegisters {
    type ProgramCounter = u64;

    // Not used for a target with several threads.
    fn pc(&self) -> u64 {
        0
    }

    fn gdb_serialize(&self, write_byte: impl FnMut(Option<u8>)) {
        self.0.iter().copied().for_each(write_byte);
    }

    fn gdb_deserialize(&mut self, _bytes: &[u8]) -> Result<(), ()> {
        Err(())
    }
}

/// The number of a register in a stop reply.
#[derive(Clone, Copy, Debug)]
pub struct RegisterNumber(pub u32);

impl RegId for RegisterNumber {
    // The session answers `p`: a size known only at run time cannot be given here, and without it
    // gdbstub cannot mark a register as unknown.
    fn from_raw_id(_id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        None
    }

    fn to_raw_id(&self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

impl Target for SnapshotTarget {
    type Arch = AnyArm;
    type Error = NoSuchCore;

    fn base_ops(&mut self) -> BaseOps<'_, AnyArm, NoSuchCore> {
        BaseOps::MultiThread(self)
    }

    fn use_no_ack_mode(&self) -> bool {
        true
    }

    fn use_rle(&self) -> bool {
        false
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<xml::TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_section_offsets(&mut self) -> Option<SectionOffsetsOps<'_, Self>> {
        // Without a reply, GDB uses the addresses in the file.
        match self.endpoint.first_segment() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn support_libraries_svr4(&mut self) -> Option<LibrariesSvr4Ops<'_, Self>> {
        if self.endpoint.programs().next().is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        if self.endpoint.program.is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_host_info(&mut self) -> Option<HostInfoOps<'_, Self>> {
        Some(self)
    }

    fn support_process_info(&mut self) -> Option<ProcessInfoOps<'_, Self>> {
        Some(self)
    }
}

impl multi::MultiThreadBase for SnapshotTarget {
    fn read_registers(
        &mut self,
        general: &mut GeneralRegisters,
        tid: Tid,
    ) -> TargetResult<(), Self> {
        let bytes = registers::general(self, tid);
        general.0 = bytes.ok_or(TargetError::Errno(EPERM))?;
        Ok(())
    }

    fn write_registers(&mut self, _: &GeneralRegisters, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    // `m` is answered without gdbstub, faster.
    fn read_addrs(&mut self, address: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let bytes = shown_memory::of_client(self, tid, address, data.len());
        let bytes = bytes.ok_or(TargetError::Errno(EPERM))?;
        match data.get_mut(..bytes.len()) {
            Some(known) if !bytes.is_empty() => {
                known.copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            _ => Err(TargetError::Errno(EFAULT)),
        }
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), NoSuchCore> {
        self.endpoint.all_threads().for_each(each);
        Ok(())
    }

    /// `T`: GDB asks it of a thread that the user selects.
    fn is_thread_alive(&mut self, tid: Tid) -> Result<bool, NoSuchCore> {
        let is_alive = self.core(tid).is_some();
        if is_alive {
            self.selection.asks_for(tid);
        }
        Ok(is_alive)
    }

    fn support_resume(&mut self) -> Option<multi::MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl xml::TargetDescriptionXmlOverride for SnapshotTarget {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            return Err(TargetError::NonFatal);
        }
        let old = self.endpoint.xml_for_old_gdb.as_ref();
        let xml = old
            .filter(|_| self.is_old_gdb)
            .unwrap_or(&self.endpoint.xml);
        Ok(copy_part(xml.as_bytes(), offset, length, buf))
    }
}

impl SectionOffsets for SnapshotTarget {
    /// Reports where a position-independent program was loaded.
    fn get_section_offsets(&mut self) -> Result<Offsets<u64>, NoSuchCore> {
        Ok(Offsets::Segments {
            text_seg: self.endpoint.first_segment().unwrap_or_default(),
            data_seg: None,
        })
    }
}

impl LibrariesSvr4 for SnapshotTarget {
    fn get_libraries_svr4(
        &self,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let list = self.libraries().ok_or(TargetError::NonFatal)?;
        Ok(copy_part(list.as_bytes(), offset, length, buf))
    }
}

impl ExecFile for SnapshotTarget {
    fn get_exec_file(
        &self,
        _pid: Option<Pid>,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let path = self.files.program_path();
        Ok(copy_part(path, offset, length, buf))
    }
}

impl ThreadExtraInfo for SnapshotTarget {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, NoSuchCore> {
        let text = threads::description(self, tid).1;
        Ok(copy_part(text.as_bytes(), 0, usize::MAX, buf))
    }
}

impl SnapshotTarget {
    fn triple(&self) -> &'static str {
        match self.endpoint.description.architecture() {
            Architecture::AArch64 => "aarch64-unknown-none",
            Architecture::AArch32 => "armv7-unknown-none",
            Architecture::MProfile => "thumbv7em-unknown-none",
        }
    }

    fn pointer_size(&self) -> usize {
        self.endpoint.description.architecture().general_bits() as usize / 8
    }
}

impl HostInfo for SnapshotTarget {
    fn host_info(&self, write: &mut dyn FnMut(&HostInfoResponse<'_>)) -> Result<(), NoSuchCore> {
        write(&HostInfoResponse::Triple(self.triple()));
        write(&HostInfoResponse::Endianness(Endianness::Little));
        write(&HostInfoResponse::PointerSize(self.pointer_size()));
        Ok(())
    }
}

impl ProcessInfo for SnapshotTarget {
    fn process_info(
        &self,
        write: &mut dyn FnMut(&ProcessInfoResponse<'_>),
    ) -> Result<(), NoSuchCore> {
        write(&ProcessInfoResponse::Pid(Pid::MIN));
        write(&ProcessInfoResponse::Triple(self.triple()));
        write(&ProcessInfoResponse::Endianness(Endianness::Little));
        write(&ProcessInfoResponse::PointerSize(self.pointer_size()));
        Ok(())
    }
}

/// Copies a part of a document. Returns the number of bytes copied.
fn copy_part(document: &[u8], offset: u64, length: usize, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|offset| document.get(offset..))
        .unwrap_or(&[]);
    let count = rest.len().min(length).min(buf.len());
    buf[..count].copy_from_slice(&rest[..count]);
    count
}
