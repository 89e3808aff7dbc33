//! The gdbstub target of an endpoint.
//!
//! A snapshot is read-only: reads are served, writes refused. The session handles moves and
//! breakpoints itself, without gdbstub.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;

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

use super::breakpoints::Breakpoints;
use super::btrace;
use super::callers::Callers;
use super::endpoint::{Core, Endpoint};
use super::host_io::Files;
use super::keepalive::Alive;
use super::libraries as library_list;
use super::memory::MemoryView;
use super::past_memory::{Mode, PastMemory};
use super::positions::Positions;
use super::selection::Selection;
use super::tracepoints::View;
use crate::arch::Architecture;
use crate::program::elf::Elf;
use crate::program::symbols::Symbols;
use crate::snapshot::chosen::Chosen;
use crate::snapshot::libraries;

/// `EFAULT`: no known memory at that address.
pub(super) const EFAULT: u8 = 14;
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

/// One client's view of an endpoint.
pub struct SnapshotTarget {
    pub(super) endpoint: Arc<Endpoint>,
    /// Where memory is read.
    pub(super) memory_view: MemoryView,
    /// The threads that are read and selected.
    pub(super) selection: Selection,
    /// The thread that moves alone (`Hc`).
    pub(super) alone: Option<Tid>,
    pub(super) breakpoints: Breakpoints,
    pub(super) positions: Positions,
    /// How memory is read at past positions.
    pub(super) past_memory: PastMemory,
    /// The branch trace that the client fetches.
    pub(super) btrace: Option<btrace::Document>,
    symbols: OnceCell<Arc<Symbols>>,
    chosen: OnceCell<Arc<Chosen>>,
    libraries: OnceCell<Option<Arc<str>>>,
    pub(super) files: Files,
    /// The client's position among trace frames.
    pub(super) trace: View,
    /// The callers at the positions of the cores.
    pub(super) callers: Callers,
    /// Sends keepalive packets during long requests.
    pub(super) alive: Option<Alive>,
}

impl SnapshotTarget {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            files: Files::new(endpoint.program.clone()),
            positions: Positions::new(Arc::clone(&endpoint)),
            endpoint,
            memory_view: MemoryView::Current,
            past_memory: PastMemory::default(),
            btrace: None,
            symbols: OnceCell::new(),
            chosen: OnceCell::new(),
            libraries: OnceCell::new(),
            selection: Selection::default(),
            alone: None,
            breakpoints: Breakpoints::default(),
            trace: View::default(),
            callers: Callers::default(),
            alive: None,
        }
    }

    /// Returns the core of a thread.
    pub(super) fn core(&self, thread: Tid) -> Option<&Core> {
        self.endpoint.cores.get(thread.get() - 1)
    }
}

impl SnapshotTarget {
    /// Returns the version of changed code shown at the position of a core; `None` for the final
    /// state.
    pub(super) fn version(&self, thread: Tid) -> Option<u32> {
        match self.past_memory.mode {
            Mode::Final => None,
            Mode::Unavailable => self.positions.version(thread),
        }
    }

    /// Returns the symbols of all programs and of their libraries in the snapshot. Unreadable files
    /// are skipped.
    pub(super) fn symbols(&self) -> Arc<Symbols> {
        let made = self.symbols.get_or_init(|| {
            let mut symbols = Symbols::default();
            let endpoint = &*self.endpoint;
            for program in endpoint.programs() {
                let _ = symbols.add_moved(program.elf.bytes(), program.elf.offset);
            }
            for library in self.library_files() {
                let _ = symbols.add_moved(library.bytes(), library.offset);
            }
            Arc::new(symbols)
        });
        Arc::clone(made)
    }

    /// The files of the program's libraries, as they were loaded.
    fn library_files(&self) -> Vec<Elf> {
        let endpoint = &*self.endpoint;
        let (Some(program), Some(core)) = (&endpoint.program, endpoint.cores.first()) else {
            return Vec::new();
        };
        let memory = (&*core.memory, core.space.space);
        libraries::of_program(&endpoint.loaded, &program.elf, memory)
    }

    /// The functions that were chosen when the program started.
    pub(super) fn chosen(&self) -> Arc<Chosen> {
        let made = self.chosen.get_or_init(|| {
            let endpoint = &*self.endpoint;
            let Some(core) = endpoint.cores.first() else {
                return Arc::default();
            };
            let libraries = self.library_files();
            let programs = endpoint.programs().map(|program| &program.elf);
            let memory = (&*core.memory, core.space.space);
            Arc::new(Chosen::of(programs.chain(&libraries), memory))
        });
        Arc::clone(made)
    }

    /// Returns the list of the program's shared libraries as XML.
    pub(super) fn libraries(&self) -> Option<Arc<str>> {
        let made = || library_list::document(&self.endpoint).map(Arc::from);
        self.libraries.get_or_init(made).clone()
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
        let version = self.version(tid);
        match self
            .endpoint
            .read(core, self.memory_view, version, address, data)
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
        Ok(copy_part(self.endpoint.xml.as_bytes(), offset, length, buf))
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
