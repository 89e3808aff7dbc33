//! The state of one client's session on an endpoint.
//!
//! Packets are answered by functions that take it, which `packets` lists, and by gdbstub, which knows it
//! through `stub`. It is independent of them.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdbstub::common::Tid;

use super::breakpoints::Breakpoints;
use super::client_state::{BranchTrace, Callers, FrameView};
use super::cores::Core;
use super::endpoint::Endpoint;
use super::keepalive::Alive;
use super::libraries as library_list;
use super::memory::MemoryView;
use super::open_files::Files;
use super::past_memory::{Mode, PastMemory};
use super::past_values::PastValues;
use super::positions::{Past, Positions};
use super::resume::{Actions, Resume};
use super::selection::Selection;
use super::watchpoints::Watchpoints;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::arch::{RegisterDescription, RegisterView};
use armsnap_snapshot::mapped;
use armsnap_snapshot::program::call_frames::CallFrames;
use armsnap_snapshot::program::go::GoCode;
use armsnap_snapshot::program::landing_pads::LandingPads;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::chosen::Chosen;
use armsnap_snapshot::snapshot::memory::Moment;
use armsnap_snapshot::stop::{Cancel, Unwind};
use armsnap_snapshot::text::one_line;

/// How often the snapshot's files are checked for truncation.
const CHECK: Duration = Duration::from_secs(1);

/// One client's view of an endpoint.
pub struct SnapshotTarget {
    pub(super) endpoint: Arc<Endpoint>,
    /// Where memory is read.
    pub(super) memory_view: MemoryView,
    /// The threads that are read and selected.
    pub(super) selection: Selection,
    /// The thread that moves alone (`Hc`).
    pub(super) alone: Option<Tid>,
    /// The actions of the last `vCont`.
    pub(super) actions: Actions,
    /// The move that the client requested, until the session carries it out.
    pub(super) resume: Option<Resume>,
    /// The request to cancel the work for the client's packet.
    pub(super) cancel: Cancel,
    /// What ends work that cannot stop with a partial result.
    pub(super) unwind: Unwind,
    /// When the snapshot's files were last checked for truncation.
    checked: Instant,
    pub(super) breakpoints: Breakpoints,
    pub(super) watchpoints: Watchpoints,
    pub(super) positions: Positions,
    /// How memory is read at past positions.
    pub(super) past_memory: PastMemory,
    /// What is known of registers and memory at past positions.
    pub(super) past_values: PastValues,
    /// The branch trace that the client fetches.
    pub(super) btrace: Option<BranchTrace>,
    symbols: OnceCell<Arc<Symbols>>,
    chosen: OnceCell<Arc<Chosen>>,
    call_frames: OnceCell<Arc<CallFrames>>,
    landing_pads: OnceCell<Arc<LandingPads>>,
    go: OnceCell<Arc<GoCode>>,
    libraries: OnceCell<Option<Arc<str>>>,
    pub(super) files: Files,
    /// The client's position among trace frames.
    pub(super) trace: FrameView,
    /// The callers at the positions of the cores.
    pub(super) callers: Callers,
    /// Sends keepalive packets during long requests.
    pub(super) alive: Option<Alive>,
    /// Whether the client shows `xx` as a value, as LLDB does.
    pub(super) takes_unknown_for_value: bool,
    /// Whether the client has asked for a register with `p`.
    pub(super) has_read_register: bool,
    /// Whether the client is GDB.
    pub(super) is_gdb: bool,
    /// Whether the client is GDB before version 11.
    pub(super) is_old_gdb: bool,
}

impl SnapshotTarget {
    pub(super) fn new(endpoint: Arc<Endpoint>, unwind: Unwind) -> Self {
        let stopped = endpoint.stopped_thread();
        Self {
            files: Files::new(&endpoint),
            positions: Positions::new(Arc::clone(&endpoint), unwind.clone()),
            endpoint,
            memory_view: MemoryView::Current,
            past_memory: PastMemory::default(),
            past_values: PastValues::default(),
            btrace: None,
            symbols: OnceCell::new(),
            chosen: OnceCell::new(),
            call_frames: OnceCell::new(),
            landing_pads: OnceCell::new(),
            go: OnceCell::new(),
            libraries: OnceCell::new(),
            selection: Selection::new(stopped),
            alone: None,
            actions: Actions::default(),
            resume: None,
            cancel: Cancel::default(),
            unwind,
            checked: Instant::now(),
            breakpoints: Breakpoints::default(),
            watchpoints: Watchpoints::default(),
            trace: FrameView::default(),
            callers: Callers::default(),
            alive: None,
            takes_unknown_for_value: false,
            has_read_register: false,
            is_gdb: false,
            is_old_gdb: false,
        }
    }

    /// Returns the core, or the task, of a thread.
    pub(super) fn core(&self, thread: Tid) -> Option<&Core> {
        self.endpoint.thread(thread)
    }

    /// Returns the version of changed code, and the process, shown at the position of a core.
    pub(super) fn moment(&self, thread: Tid) -> Moment {
        let moment = self.positions.moment(thread);
        Moment {
            version: moment
                .version
                .filter(|_| self.past_memory.mode != Mode::Final),
            ..moment
        }
    }

    /// Returns whether the client reads memory by the addresses that the code at a core's position uses.
    /// Memory at past positions is known only by these addresses; in another space, memory device or
    /// table it is known only at the halted state.
    pub(super) fn is_past_view_known(&self, thread: Tid) -> bool {
        let is_current = match self.memory_view {
            MemoryView::Current => true,
            MemoryView::Space(space) => self
                .core(thread)
                .is_some_and(|core| core.space.space == space),
            MemoryView::Device(_) | MemoryView::Tables(_) => false,
        };
        is_current || self.past_memory.mode == Mode::Final || self.positions.past(thread).is_none()
    }

    /// Returns the number that identifies what the client sees of a core: the register `$position`.
    pub(super) fn shown_position(&self, thread: Tid) -> u64 {
        match self.positions.number(thread) {
            0 => 0,
            number => number << 2 | self.past_values.level() as u64,
        }
    }

    /// Returns the symbols of all programs and of their libraries in the snapshot. Unreadable files
    /// are skipped.
    pub(super) fn symbols(&self) -> Arc<Symbols> {
        let made = self
            .symbols
            .get_or_init(|| Arc::new(self.endpoint.symbols()));
        Arc::clone(made)
    }

    /// Returns the IFUNC choices that were made when the program started.
    pub(super) fn chosen(&self) -> Arc<Chosen> {
        let made = self.chosen.get_or_init(|| {
            let endpoint = &*self.endpoint;
            let Some(core) = endpoint.cores.first() else {
                return Arc::default();
            };
            let libraries = self.endpoint.library_files();
            let programs = endpoint.programs().map(|program| &program.elf);
            let memory = (&*core.memory, core.space.space);
            Arc::new(Chosen::of(programs.chain(&libraries), memory))
        });
        Arc::clone(made)
    }

    /// Returns the call frame information of all programs and libraries.
    pub(super) fn call_frames(&self) -> Arc<CallFrames> {
        let made = self
            .call_frames
            .get_or_init(|| Arc::new(self.endpoint.call_frames()));
        Arc::clone(made)
    }

    /// Returns the landing pads of all programs and libraries.
    pub(super) fn landing_pads(&self) -> Arc<LandingPads> {
        let made = self.landing_pads.get_or_init(|| {
            let libraries = self.endpoint.library_files();
            let programs = self.endpoint.programs().map(|program| &program.elf);
            Arc::new(LandingPads::new(programs.chain(&libraries)))
        });
        Arc::clone(made)
    }

    /// Returns the Go code in all programs and libraries.
    pub(super) fn go(&self) -> Arc<GoCode> {
        let made = self.go.get_or_init(|| {
            let libraries = self.endpoint.library_files();
            let programs = self.endpoint.programs().map(|program| &program.elf);
            Arc::new(GoCode::new(programs.chain(&libraries)))
        });
        Arc::clone(made)
    }

    /// Returns the list of the program's shared libraries as XML.
    pub(super) fn libraries(&self) -> Option<Arc<str>> {
        let made = || library_list::document(&self.endpoint).map(Arc::from);
        self.libraries.get_or_init(made).clone()
    }

    /// Returns a register at the position of a core, with `None` for unknown bytes.
    pub(super) fn register(
        &mut self,
        thread: Tid,
        register: &RegisterDescription,
        cancel: &Cancel,
    ) -> Option<Bytes> {
        if matches!(register.view, RegisterView::PointerMask(_)) {
            // The layout of pointers does not change.
            return self.core(thread).map(|core| core.register(register));
        }
        let (endpoint, positions) = (Arc::clone(&self.endpoint), &mut self.positions);
        self.past_values
            .register(&endpoint, positions, (thread, register), cancel)
    }

    /// Returns whether the program counter at the position of a core is known. A trace frame that is
    /// shown without being selected has a program counter.
    pub(super) fn knows_pc(&self, thread: Tid) -> bool {
        if self.looks_at_frame() {
            return true;
        }
        let mut registers = self.endpoint.description.registers();
        let pc = registers.find(|register| register.name == "pc");
        let bytes = pc.and_then(|pc| self.positions.register(thread, pc));
        bytes.is_some_and(|bytes| bytes.iter().all(Option::is_some))
    }

    /// Returns a message if a file of the snapshot was truncated. Missing whole pages are detected
    /// at once, the rest when the files are checked.
    pub(super) fn cut_file(&mut self) -> Option<String> {
        if !mapped::is_cut() && self.checked.elapsed() < CHECK {
            return None;
        }
        self.checked = Instant::now();
        let cut = mapped::cut_file()?;
        let cut = one_line(&cut);
        Some(format!("{cut}: its contents are not known any more\n"))
    }

    /// Restores the positions of the cores after an interrupted request.
    pub(super) fn come_back(&mut self, past: Vec<Option<Past>>) {
        self.positions.come_back(past);
        self.past_values.forget();
    }

    /// Returns whether registers and memory are read from a trace frame.
    pub(super) fn looks_at_frame(&self) -> bool {
        let resting = || self.endpoint.traces.as_ref()?.resting();
        self.trace.frame.or_else(resting).is_some()
    }
}
