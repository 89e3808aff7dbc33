//! What an ETMv3 writes of a program (ARM IHI 0014Q, chapters 4 and 7). Knows no code.

use super::config::{Config, Profile};
use super::encode::Encoder;
use super::packet::{Branch, ISync, Information, Packet, Place as SyncPlace, Timing};
use crate::element::{Atoms, Context, Mark, TraceOnReason};
use crate::encode::{Options, Place, Taken, Waypoint};
use crate::quantity::{ExceptionLevel, Security};

const NONE: Atoms = Atoms { bits: 0, count: 0 };

/// Traces the instructions of one core.
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
            atoms: NONE,
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

    fn atom(&mut self, passed: bool) {
        if self.config.cycle_accurate {
            return self.timed_atom(passed);
        }
        self.atoms.bits |= u32::from(passed) << self.atoms.count;
        self.atoms.count += 1;
        if self.atoms.count == 32 {
            self.write_some();
        }
    }

    /// The first atoms that fill a P-header: E atoms up to an N, or two of any kind.
    fn write_some(&mut self) {
        let Atoms { bits, count } = self.atoms;
        let passed = bits.trailing_ones().min(15) as u8;
        let straight = (passed + 1).min(count);
        let straight = if passed == 15 && bits >> 15 & 1 == 1 {
            15
        } else {
            straight
        };
        let taken = straight.max(count.min(2));
        let atoms = Atoms {
            bits: bits & ((1 << taken) - 1),
            count: taken,
        };
        self.atoms = Atoms {
            bits: bits >> taken,
            count: count - taken,
        };
        self.write(&Packet::PHeader {
            atoms,
            timing: Timing::None,
        });
    }

    fn write_atoms(&mut self) {
        if self.config.cycle_accurate {
            if self.atoms.count > 0 {
                let atoms = std::mem::replace(&mut self.atoms, NONE);
                self.write(&Packet::PHeader {
                    atoms,
                    timing: Timing::Each,
                });
            }
            return;
        }
        while self.atoms.count > 0 {
            self.write_some();
        }
    }

    /// An atom behind the cycles that passed. Those that took one cycle each share a P-header.
    fn timed_atom(&mut self, passed: bool) {
        let cycles = std::mem::take(&mut self.cycles);
        if cycles == 1 {
            self.atoms.bits |= u32::from(passed) << self.atoms.count;
            self.atoms.count += 1;
            if !passed || self.atoms.count == 7 {
                self.write_atoms();
            }
            return;
        }
        self.write_atoms();
        let one = Atoms {
            bits: u32::from(passed),
            count: 1,
        };
        let rest = if passed { cycles % 8 } else { cycles };
        self.write_cycles(cycles - rest);
        if passed && rest > 0 {
            self.write(&Packet::PHeader {
                atoms: one,
                timing: Timing::Before(rest as u8),
            });
        } else {
            self.write_cycles(rest);
            self.write(&Packet::PHeader {
                atoms: one,
                timing: Timing::Before(0),
            });
        }
    }

    /// Cycles without an atom.
    fn write_cycles(&mut self, mut cycles: u32) {
        while cycles > 0 {
            let now = cycles.min(8);
            self.write(&Packet::PHeader {
                atoms: NONE,
                timing: Timing::Before(now as u8),
            });
            cycles -= now;
        }
    }

    /// Non-secure state, Hyp mode.
    fn state(&self) -> (bool, bool) {
        let non_secure = self.context.security != Some(Security::Secure);
        let hyp = self.config.virtualization && self.context.el == Some(ExceptionLevel(2));
        (non_secure, non_secure && hyp)
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
            && self.config.virtualization
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
        let counted = self.config.cycle_accurate && reason.is_some();
        let cycles = counted.then(|| std::mem::take(&mut self.cycles));
        let context_id = self.context_id();
        self.write(&Packet::ISync(ISync {
            place: Some(SyncPlace {
                address: place.address.0 as u32,
                isa: place.isa,
                next: None,
            }),
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

    /// Execution goes on at `to`, by a branch or an exception. `cancel`: instead of an exception
    /// return.
    fn branch(&mut self, to: Place, exception: Option<u16>, cancel: bool) {
        self.write_atoms();
        let state = self.state();
        let (non_secure, hyp) = state;
        let changed = self.state != Some(state);
        let hyp_changed = self.state.is_none_or(|before| before.1 != hyp);
        let large = exception.is_some_and(|number| number > 15);
        let information = (exception.is_some() || changed).then(|| Information {
            exception: exception.unwrap_or(0),
            deprecated: false,
            cancel,
            non_secure: Some(non_secure),
            hyp: (hyp_changed || large).then_some(hyp),
            resume: 0,
        });
        let told = information.is_some();
        let address = self.encoder.shortest(to.address.0 as u32, to.isa, told);
        self.write(&Packet::Branch(Branch {
            address,
            information,
        }));
        self.state = Some(state);
        self.write_identifiers();
    }
}

impl crate::encode::TraceUnit for TraceUnit {
    fn options(&self) -> Options {
        Options {
            branch_broadcast: self.config.branch_output,
            ..Options::default()
        }
    }

    /// IHI 0014Q 7.3.5. Armv7-M has no number for it, and needs none: each instruction has an
    /// atom.
    fn debug_halt(&self) -> Option<u16> {
        (self.config.profile == Profile::ApplicationOrRealTime).then_some(1)
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

    fn instruction(&mut self) {
        self.atom(true);
    }

    fn waypoint(&mut self, waypoint: &Waypoint) {
        self.atom(waypoint.taken);
        if waypoint.exception_return {
            self.write_atoms();
            self.write(&Packet::ExceptionExit);
        }
        if waypoint.target_traced {
            self.branch(waypoint.next, None, false);
        } else {
            self.write_identifiers();
        }
    }

    fn exception(&mut self, taken: &Taken) {
        if taken.chained {
            // 7.5: the return is traced, and then cancelled.
            self.write_atoms();
            self.write(&Packet::ExceptionExit);
        }
        let to = taken.handler.unwrap_or(taken.return_to);
        self.branch(to, Some(taken.number), taken.chained);
    }

    fn cycles(&mut self, cycles: u32) {
        self.cycles = self.cycles.saturating_add(cycles);
    }

    fn mark(&mut self, mark: &Mark) {
        match *mark {
            Mark::Timestamp(value) => {
                self.write_atoms();
                let wide = self.config.timestamp.wide;
                self.write(&Packet::Timestamp {
                    value: if wide { value } else { value & ((1 << 48) - 1) },
                    frequency_changed: false,
                });
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
