//! What a PTM writes of a program (ARM IHI 0035B, chapter 4). Knows no code.

use super::config::Config;
use super::encode::Encoder;
use super::packet::{Branch, ISync, Information, Packet, Timestamp};
use crate::element::{Atoms, Context, Mark, TraceOnReason};
use crate::encode::{Options, Place, Taken, Waypoint};
use crate::flow::Waypoints;
use crate::quantity::{ExceptionLevel, Security};

/// Entries of the return stack.
const RETURN_STACK: usize = 3;

/// Traces one core.
#[derive(Clone, Debug)]
pub struct TraceUnit {
    config: Config,
    encoder: Encoder,
    out: Vec<u8>,
    atoms: Atoms,
    context: Context,
    /// Security state and Hyp mode that were written last.
    state: Option<(bool, bool)>,
    vmid: Option<u8>,
    context_id: Option<u32>,
    begun: bool,
    cycles: u32,
}

impl TraceUnit {
    /// Nothing is written yet. VMIDs are traced where the context has one.
    pub fn new(config: Config) -> Self {
        Self {
            encoder: Encoder::new(config),
            config,
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

    fn write(&mut self, packet: &Packet) {
        let written = self.encoder.packet(packet, &mut self.out);
        debug_assert!(written.is_ok(), "{packet:?}");
    }

    fn write_atoms(&mut self) {
        if self.atoms.count > 0 {
            let atoms = std::mem::replace(&mut self.atoms, Atoms { bits: 0, count: 0 });
            self.write(&Packet::Atoms(atoms));
        }
    }

    /// The cycles since the last count, where they are traced.
    fn take_cycles(&mut self) -> Option<u32> {
        let cycles = std::mem::take(&mut self.cycles);
        self.config.cycle_accurate.then_some(cycles)
    }

    /// Non-secure state, Hyp mode.
    fn state(&self) -> (bool, bool) {
        let non_secure = self.context.security != Some(Security::Secure);
        (
            non_secure,
            non_secure && self.context.el == Some(ExceptionLevel(2)),
        )
    }

    /// The context ID, cut to the bytes that are traced.
    fn context_id(&self) -> Option<u32> {
        let bits = 8 * u32::from(self.config.context_id_bytes);
        let id = u64::from(self.context.context_id.unwrap_or(0)) & ((1 << bits) - 1);
        (bits > 0).then_some(id as u32)
    }

    fn write_identifiers(&mut self) {
        let vmid = self.context.vmid.map(|vmid| vmid as u8);
        if vmid != self.vmid
            && let Some(vmid) = vmid
        {
            self.write_atoms();
            self.write(&Packet::Vmid(vmid));
            self.vmid = Some(vmid);
        }
        let id = self.context_id();
        if id != self.context_id
            && let Some(id) = id
        {
            self.write_atoms();
            self.write(&Packet::ContextId(id));
            self.context_id = Some(id);
        }
    }

    fn i_sync(&mut self, reason: Option<TraceOnReason>, place: Place) {
        let (non_secure, hyp) = self.state();
        let cycles = if reason.is_some() {
            self.take_cycles()
        } else {
            None
        };
        let context_id = self.context_id();
        self.write(&Packet::ISync(ISync {
            address: place.address.0 as u32,
            isa: place.isa,
            reason,
            non_secure,
            hyp,
            context_id,
            cycles,
        }));
        self.state = Some((non_secure, hyp));
        self.context_id = context_id;
        self.write_identifiers();
    }

    /// A branch to `to`, or an exception.
    fn branch(&mut self, to: Place, exception: Option<u16>) {
        self.write_atoms();
        let state = self.state();
        let (non_secure, hyp) = state;
        let changed = self.state != Some(state);
        let hyp_changed = self.state.is_none_or(|before| before.1 != hyp);
        let information = (exception.is_some() || changed).then(|| Information {
            exception: exception.unwrap_or(0),
            non_secure,
            hyp: (hyp_changed || exception.is_some_and(|number| number > 15)).then_some(hyp),
        });
        let told = information.is_some();
        let address = self.encoder.shortest(to.address.0 as u32, to.isa, told);
        let cycles = self.take_cycles();
        self.write(&Packet::Branch(Branch {
            address,
            information,
            cycles,
        }));
        self.state = Some(state);
        self.write_identifiers();
    }
}

impl crate::encode::TraceUnit for TraceUnit {
    fn options(&self) -> Options {
        Options {
            waypoints: Waypoints {
                barriers: self.config.barriers_are_waypoints,
                ..Waypoints::default()
            },
            return_stack: if self.config.return_stack {
                RETURN_STACK
            } else {
                0
            },
            branch_broadcast: self.config.branch_broadcast,
        }
    }

    /// IHI 0035B 4.5.4, exception number.
    fn debug_halt(&self) -> Option<u16> {
        Some(1)
    }

    fn context(&mut self, context: &Context, at: Option<Place>) {
        self.context = *context;
        if at.is_some() {
            self.write_identifiers();
        }
    }

    fn trace_on(&mut self, reason: TraceOnReason, place: Place) {
        self.write_atoms();
        if !std::mem::replace(&mut self.begun, true) {
            self.write(&Packet::ASync);
        }
        self.i_sync(Some(reason), place);
    }

    fn synchronise(&mut self, place: Place) {
        self.write_atoms();
        self.write(&Packet::ASync);
        self.vmid = None;
        self.i_sync(None, place);
    }

    fn instruction(&mut self) {}

    fn waypoint(&mut self, waypoint: &Waypoint) {
        if waypoint.target_traced {
            self.branch(waypoint.next, None);
        } else {
            let taken = waypoint.taken;
            if let Some(cycles) = self.take_cycles() {
                self.write(&Packet::TimedAtom { taken, cycles });
            } else {
                self.atoms.bits |= u32::from(taken) << self.atoms.count;
                self.atoms.count += 1;
                if self.atoms.count == 5 {
                    self.write_atoms();
                }
            }
            self.write_identifiers();
        }
        if waypoint.exception_return {
            self.write_atoms();
            self.write(&Packet::ExceptionReturn);
        }
    }

    fn exception(&mut self, taken: &Taken) {
        self.write_atoms();
        if let Some(last) = taken.last {
            let address = self
                .encoder
                .shortest(last.address.0 as u32, last.isa, false);
            self.write(&Packet::WaypointUpdate { address });
        }
        self.branch(taken.handler.unwrap_or(taken.return_to), Some(taken.number));
    }

    fn cycles(&mut self, cycles: u32) {
        self.cycles = self.cycles.saturating_add(cycles);
    }

    fn mark(&mut self, mark: &Mark) {
        match *mark {
            Mark::Timestamp(value) => {
                self.write_atoms();
                let cycles = self.take_cycles();
                let value = if self.config.timestamp.wide {
                    value
                } else {
                    value & ((1 << 48) - 1)
                };
                self.write(&Packet::Timestamp(Timestamp {
                    value,
                    frequency_changed: false,
                    cycles,
                }));
            }
            Mark::Trigger => {
                self.write_atoms();
                self.write(&Packet::Trigger);
            }
            _ => {}
        }
    }

    fn flush(&mut self) {
        self.write_atoms();
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

#[cfg(test)]
mod tests;
