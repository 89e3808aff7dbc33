//! The packets that an ETMv3 writes for a program (ARM IHI 0014Q, chapters 4 and 7).

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, SyncAddress, Timing};
use crate::element::Atoms;
use crate::encode::{CodeAddress, Options, TakenException, Waypoint};
use crate::etm::{Common, Settings, TraceUnit, Tracing};

const NONE: Atoms = Atoms { bits: 0, count: 0 };

impl From<Common> for Packet {
    fn from(packet: Common) -> Self {
        match packet {
            Common::ASync => Self::ASync,
            Common::ISync {
                place,
                reason,
                state,
                context_id,
                cycles,
            } => Self::ISync(ISync {
                place: Some(SyncAddress {
                    address: place.address.0 as u32,
                    isa: place.isa,
                    next: None,
                }),
                reason,
                non_secure: state.non_secure,
                hyp: state.hyp,
                context_id,
                cycles,
            }),
            Common::Vmid(vmid) => Self::Vmid(vmid),
            Common::ContextId(id) => Self::ContextId(id),
            Common::Trigger => Self::Trigger,
        }
    }
}

impl TraceUnit<Config> {
    fn atom(&mut self, passed: bool) {
        if let Some(cycles) = self.take_cycles() {
            return self.timed_atom(passed, cycles);
        }
        self.hold_atom(passed);
        if self.atoms.count == 32 {
            self.write_some();
        }
    }

    /// Writes the first atoms that fill a P-header: E atoms up to an N, or any two.
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

    /// Traces an atom after `cycles`. Atoms of one cycle each share a P-header.
    fn timed_atom(&mut self, passed: bool, cycles: u32) {
        if cycles == 1 {
            self.hold_atom(passed);
            if !passed || self.atoms.count == 7 {
                Config::write_atoms(self);
            }
            return;
        }
        Config::write_atoms(self);
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

    /// Writes cycles without an atom.
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

    /// Traces a branch or an exception to `to`. `cancel` tells whether it cancels an exception return.
    fn branch(&mut self, to: CodeAddress, exception: Option<u16>, cancel: bool) {
        Config::write_atoms(self);
        let information = self.change(exception).map(|change| Information {
            exception: change.exception,
            deprecated: false,
            cancel,
            non_secure: Some(change.non_secure),
            hyp: change.hyp,
            resume: 0,
        });
        let address = self
            .encoder
            .shortest(to.address.0 as u32, to.isa, information.is_some());
        self.write(&Packet::Branch(Branch {
            address,
            information,
        }));
        self.write_identifiers();
    }
}

impl Tracing for Config {
    fn settings(&self) -> Settings {
        Settings {
            cycle_accurate: self.cycle_accurate,
            context_id_bytes: self.context_id_bytes,
            virtualization: self.virtualization,
            timestamp: self.timestamp,
        }
    }

    fn options(&self) -> Options {
        Options {
            branch_broadcast: self.branch_output,
            ..Options::default()
        }
    }

    /// IHI 0014Q 7.3.5, exception information. Armv7-M has no number for it and does not need one:
    /// each instruction has an atom.
    fn debug_halt(&self) -> Option<u16> {
        (!self.core.is_microcontroller()).then_some(1)
    }

    fn timestamp(_: &mut TraceUnit<Self>, value: u64) -> Packet {
        Packet::Timestamp {
            value,
            frequency_changed: false,
        }
    }

    fn write_atoms(unit: &mut TraceUnit<Self>) {
        if !unit.encoder.config.cycle_accurate {
            while unit.atoms.count > 0 {
                unit.write_some();
            }
        } else if let Some(atoms) = unit.take_atoms() {
            unit.write(&Packet::PHeader {
                atoms,
                timing: Timing::Each,
            });
        }
    }

    const EACH_INSTRUCTION: bool = true;

    fn instruction(unit: &mut TraceUnit<Self>) {
        unit.atom(true);
    }

    fn waypoint(unit: &mut TraceUnit<Self>, waypoint: &Waypoint) {
        unit.atom(waypoint.taken);
        if waypoint.exception_return {
            Self::write_atoms(unit);
            unit.write(&Packet::ExceptionExit);
        }
        if waypoint.target_traced {
            unit.branch(waypoint.next, None, false);
        } else {
            unit.write_identifiers();
        }
    }

    fn exception(unit: &mut TraceUnit<Self>, taken: &TakenException) {
        if taken.chained {
            // 7.5: the return is traced and then cancelled.
            Self::write_atoms(unit);
            unit.write(&Packet::ExceptionExit);
        }
        let to = taken.handler.unwrap_or(taken.return_to);
        unit.branch(to, Some(taken.number), taken.chained);
    }
}

#[cfg(test)]
mod tests;
