//! The part of a trace unit that ETMv3 and PTM share: synchronisation, the state of the core,
//! identifiers, time. It is independent of code and of the encoding of atoms and branches.

use super::config::TimestampEncoding;
use super::encode::{Encoder, Protocol};
use crate::element::{Atoms, Context, Mark, TraceOnReason};
use crate::encode::{CodeAddress, Options, TakenException, Waypoint};
use armsnap_arch::quantity::{ExceptionLevel, Security};

/// The part of a trace unit that differs between the protocols: instructions.
pub trait Tracing: Protocol<Packet: From<Common>> {
    /// Returns the settings for everything but instructions.
    fn settings(&self) -> Settings;

    /// See [`crate::encode::TraceUnit::options`].
    fn options(&self) -> Options;

    /// See [`crate::encode::TraceUnit::debug_halt`].
    fn debug_halt(&self) -> Option<u16>;

    /// Creates a timestamp packet.
    fn timestamp(unit: &mut TraceUnit<Self>, value: u64) -> Self::Packet;

    /// Writes the atoms held back.
    fn write_atoms(unit: &mut TraceUnit<Self>);

    /// Whether each instruction has an atom, so that a decoder can synchronise at any of them.
    const EACH_INSTRUCTION: bool;

    /// Traces an instruction that is not a waypoint.
    fn instruction(unit: &mut TraceUnit<Self>);

    /// Traces a waypoint.
    fn waypoint(unit: &mut TraceUnit<Self>, waypoint: &Waypoint);

    /// Traces an exception.
    fn exception(unit: &mut TraceUnit<Self>, taken: &TakenException);
}

/// What is traced besides instructions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether cycles are traced.
    pub cycle_accurate: bool,
    /// Number of bytes of a context ID: 0, 1, 2 or 4.
    pub context_id_bytes: u8,
    /// Whether Hyp mode and VMIDs are traced.
    pub virtualization: bool,
    /// How timestamps are encoded.
    pub timestamp: TimestampEncoding,
}

/// The packets that both protocols have.
#[derive(Clone, Copy, Debug)]
pub enum Common {
    /// Alignment synchronisation.
    ASync,
    /// Instruction synchronisation.
    ISync {
        /// The next instruction.
        place: CodeAddress,
        /// Why tracing starts here; `None`: periodic synchronisation.
        reason: Option<TraceOnReason>,
        /// The state of the core.
        state: SecurityState,
        /// Context ID, if traced.
        context_id: Option<u32>,
        /// Cycles since the last count, if traced and tracing starts here.
        cycles: Option<u32>,
    },
    /// VMID.
    Vmid(u8),
    /// Context ID.
    ContextId(u32),
    /// The trigger event.
    Trigger,
}

/// The security state in I-syncs and branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityState {
    /// Non-secure state.
    pub non_secure: bool,
    /// Hyp mode.
    pub hyp: bool,
}

/// The exception information of a branch.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Number of the exception; 0: none.
    pub exception: u16,
    /// Non-secure state.
    pub non_secure: bool,
    /// Hyp mode, if a second byte is needed.
    pub hyp: Option<bool>,
}

/// Traces one core.
#[derive(Clone, Debug)]
pub struct TraceUnit<C> {
    pub(crate) encoder: Encoder<C>,
    out: Vec<u8>,
    /// The atoms held back.
    pub(crate) atoms: Atoms,
    context: Context,
    /// The state written last.
    state: Option<SecurityState>,
    vmid: Option<u8>,
    context_id: Option<u32>,
    begun: bool,
    cycles: u32,
}

impl<C: Tracing> TraceUnit<C> {
    /// Creates a trace unit. VMIDs are traced if the context has one.
    pub fn new(config: C) -> Self {
        Self {
            encoder: Encoder::new(config),
            out: Vec::new(),
            atoms: Atoms { bits: 0, count: 0 },
            context: Context::default(),
            state: None,
            vmid: None,
            context_id: None,
            begun: false,
            cycles: 0,
        }
    }

    fn settings(&self) -> Settings {
        self.encoder.config.settings()
    }

    pub(crate) fn write(&mut self, packet: &C::Packet) {
        let written = self.encoder.packet(packet, &mut self.out);
        debug_assert!(written.is_ok(), "{packet:?}");
    }

    fn write_common(&mut self, packet: Common) {
        self.write(&packet.into());
    }

    /// Holds an atom back.
    pub(crate) fn hold_atom(&mut self, passed: bool) {
        self.atoms.bits |= u32::from(passed) << self.atoms.count;
        self.atoms.count += 1;
    }

    /// Takes the atoms held back.
    pub(crate) fn take_atoms(&mut self) -> Option<Atoms> {
        let none = Atoms { bits: 0, count: 0 };
        let atoms = std::mem::replace(&mut self.atoms, none);
        (atoms.count > 0).then_some(atoms)
    }

    /// Takes the cycles since the last count, if traced.
    pub(crate) fn take_cycles(&mut self) -> Option<u32> {
        let cycles = std::mem::take(&mut self.cycles);
        self.settings().cycle_accurate.then_some(cycles)
    }

    fn state(&self) -> SecurityState {
        let non_secure = self.context.security != Some(Security::Secure);
        let hyp = self.settings().virtualization && self.context.el == Some(ExceptionLevel(2));
        SecurityState {
            non_secure,
            hyp: non_secure && hyp,
        }
    }

    /// Returns the exception information that the next branch needs.
    pub(crate) fn change(&mut self, exception: Option<u16>) -> Option<Change> {
        let state = self.state();
        let before = self.state.replace(state);
        let hyp_changed = before.is_none_or(|before| before.hyp != state.hyp);
        let large = exception.is_some_and(|number| number > 15);
        (exception.is_some() || before != Some(state)).then(|| Change {
            exception: exception.unwrap_or(0),
            non_secure: state.non_secure,
            hyp: (hyp_changed || large).then_some(state.hyp),
        })
    }

    /// Returns the traced bytes of the context ID.
    fn context_id(&self) -> Option<u32> {
        let bits = 8 * u32::from(self.settings().context_id_bytes);
        let id = u64::from(self.context.context_id.unwrap_or(0)) & ((1 << bits) - 1);
        (bits > 0).then_some(id as u32)
    }

    /// Writes VMID and context ID if they changed.
    pub(crate) fn write_identifiers(&mut self) {
        let vmid = self.context.vmid.map(|vmid| vmid as u8);
        if vmid != self.vmid
            && self.settings().virtualization
            && let Some(vmid) = vmid
        {
            C::write_atoms(self);
            self.write_common(Common::Vmid(vmid));
            self.vmid = Some(vmid);
        }
        let id = self.context_id();
        if id != self.context_id
            && let Some(id) = id
        {
            C::write_atoms(self);
            self.write_common(Common::ContextId(id));
            self.context_id = Some(id);
        }
    }

    fn i_sync(&mut self, reason: Option<TraceOnReason>, place: CodeAddress) {
        let state = self.state();
        let context_id = self.context_id();
        let cycles = reason.and_then(|_| self.take_cycles());
        self.write_common(Common::ISync {
            place,
            reason,
            state,
            context_id,
            cycles,
        });
        self.state = Some(state);
        self.context_id = context_id;
        self.write_identifiers();
    }
}

impl<C: Tracing> crate::encode::TraceUnit for TraceUnit<C> {
    fn options(&self) -> Options {
        self.encoder.config.options()
    }

    fn debug_halt(&self) -> Option<u16> {
        self.encoder.config.debug_halt()
    }

    fn context(&mut self, context: &Context, at: Option<CodeAddress>) {
        self.context = *context;
        match at {
            Some(place) if C::EACH_INSTRUCTION && self.state != Some(self.state()) => {
                C::write_atoms(self);
                self.i_sync(None, place);
            }
            Some(_) => self.write_identifiers(),
            None => {}
        }
    }

    fn trace_on(&mut self, reason: TraceOnReason, place: CodeAddress) {
        C::write_atoms(self);
        if !std::mem::replace(&mut self.begun, true) {
            self.write_common(Common::ASync);
        }
        self.i_sync(Some(reason), place);
    }

    fn synchronise(&mut self, place: CodeAddress) {
        C::write_atoms(self);
        self.write_common(Common::ASync);
        self.vmid = None;
        self.i_sync(None, place);
    }

    fn instruction(&mut self) {
        C::instruction(self);
    }

    fn waypoint(&mut self, waypoint: &Waypoint) {
        C::waypoint(self, waypoint);
    }

    fn exception(&mut self, taken: &TakenException) {
        C::exception(self, taken);
    }

    fn cycles(&mut self, cycles: u32) {
        self.cycles = self.cycles.saturating_add(cycles);
    }

    fn mark(&mut self, mark: &Mark) {
        match *mark {
            Mark::Timestamp(value) => {
                C::write_atoms(self);
                let packet = C::timestamp(self, value & self.settings().timestamp.mask());
                self.write(&packet);
            }
            Mark::Trigger => {
                C::write_atoms(self);
                self.write_common(Common::Trigger);
            }
            _ => {}
        }
    }

    fn flush(&mut self) {
        C::write_atoms(self);
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}
