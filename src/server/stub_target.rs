//! gdbstub's view of a session: the packets that it answers from the session's state.
//!
//! A snapshot is read-only: reads are served, writes refused. The session handles moves and
//! breakpoints itself, without gdbstub.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use gdbstub::arch::{Arch, RegId, Registers};
use gdbstub::common::{Endianness, Pid, Tid};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread as multi;
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::host_info::{HostInfo, HostInfoOps, HostInfoResponse};
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::process_info::{ProcessInfo, ProcessInfoOps, ProcessInfoResponse};
use gdbstub::target::ext::target_description_xml_override as xml;
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};

use super::cores::Core;
use super::target::SnapshotTarget;
use armsnap_arch::arch::Architecture;

/// `EFAULT`: no known memory at that address.
const EFAULT: u8 = 14;
/// `EROFS`: a snapshot cannot be written.
const EROFS: u8 = 30;

/// gdbstub's view of the architecture. The registers are known only at run time.
pub enum AnyArm {}

impl Arch for AnyArm {
    type Usize = u64;
    type Registers = GeneralRegisters;
    type BreakpointKind = usize;
    type RegId = NoRegister;
}

/// Registers are served by the session, not by gdbstub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneralRegisters;

impl Registers for GeneralRegisters {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        0
    }

    fn gdb_serialize(&self, _write_byte: impl FnMut(Option<u8>)) {}

    fn gdb_deserialize(&mut self, _bytes: &[u8]) -> Result<(), ()> {
        Err(())
    }
}

/// Single registers are served by the session, too.
#[derive(Debug)]
pub enum NoRegister {}

impl RegId for NoRegister {
    fn from_raw_id(_id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        None
    }
}

impl Target for SnapshotTarget {
    type Arch = AnyArm;
    type Error = Infallible;

    fn base_ops(&mut self) -> BaseOps<'_, AnyArm, Infallible> {
        BaseOps::MultiThread(self)
    }

    fn use_no_ack_mode(&self) -> bool {
        true
    }

    fn use_rle(&self) -> bool {
        false
    }

    // The session handles breakpoints: clients do not write them into memory.
    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
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
    // The session answers `g` and `p`.
    fn read_registers(&mut self, _: &mut GeneralRegisters, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    fn write_registers(&mut self, _: &GeneralRegisters, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    fn read_addrs(&mut self, address: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let core = self.core(tid).ok_or(TargetError::NonFatal)?;
        let moment = self.moment(tid);
        match self
            .endpoint
            .read(core, &self.memory_view, moment, address, data)
        {
            0 => Err(TargetError::Errno(EFAULT)),
            count => Ok(count),
        }
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), Infallible> {
        self.endpoint.threads().for_each(each);
        Ok(())
    }

    fn is_thread_alive(&mut self, tid: Tid) -> Result<bool, Infallible> {
        Ok(self.core(tid).is_some())
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
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, Infallible> {
        let text = self.core(tid).map(Core::summary).unwrap_or_default();
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
    fn host_info(&self, write: &mut dyn FnMut(&HostInfoResponse<'_>)) -> Result<(), Infallible> {
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
    ) -> Result<(), Infallible> {
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
