//! The packets that a PTM writes for a program (ARM IHI 0035B, chapter 4).

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, Timestamp};
use crate::encode::{CodeAddress, Options, TakenException, Waypoint};
use crate::etm::{Common, Settings, TraceUnit, Tracing};
use crate::flow::Waypoints;

/// Entries of the return stack.
const RETURN_STACK: usize = 3;
/// The maximum number of atoms in a packet.
const MAX_ATOMS: u8 = 5;

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
                address: place.address.0 as u32,
                isa: place.isa,
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
    /// Traces a branch or an exception to `to`.
    fn branch(&mut self, to: CodeAddress, exception: Option<u16>) {
        Config::write_atoms(self);
        let information = self.change(exception).map(|change| Information {
            exception: change.exception,
            non_secure: change.non_secure,
            hyp: change.hyp,
        });
        let address = self
            .encoder
            .shortest(to.address.0 as u32, to.isa, information.is_some());
        let cycles = self.take_cycles();
        self.write(&Packet::Branch(Branch {
            address,
            information,
            cycles,
        }));
        self.write_identifiers();
    }
}

impl Tracing for Config {
    fn settings(&self) -> Settings {
        Settings {
            cycle_accurate: self.cycle_accurate,
            context_id_bytes: self.context_id_bytes,
            virtualization: true,
            timestamp: self.timestamp,
        }
    }

    fn options(&self) -> Options {
        Options {
            waypoints: Waypoints {
                barriers: self.barriers_are_waypoints,
                ..Waypoints::default()
            },
            return_stack: if self.return_stack { RETURN_STACK } else { 0 },
            branch_broadcast: self.branch_broadcast,
        }
    }

    /// IHI 0035B 4.5.4, exception number.
    fn debug_halt(&self) -> Option<u16> {
        Some(1)
    }

    fn timestamp(unit: &mut TraceUnit<Self>, value: u64) -> Packet {
        Packet::Timestamp(Timestamp {
            value,
            frequency_changed: false,
            cycles: unit.take_cycles(),
        })
    }

    fn write_atoms(unit: &mut TraceUnit<Self>) {
        if let Some(atoms) = unit.take_atoms() {
            unit.write(&Packet::Atoms(atoms));
        }
    }

    const EACH_INSTRUCTION: bool = false;

    fn instruction(_: &mut TraceUnit<Self>) {}

    fn waypoint(unit: &mut TraceUnit<Self>, waypoint: &Waypoint) {
        if waypoint.target_traced {
            unit.branch(waypoint.next, None);
        } else {
            let taken = waypoint.taken;
            if let Some(cycles) = unit.take_cycles() {
                unit.write(&Packet::TimedAtom { taken, cycles });
            } else {
                unit.hold_atom(taken);
                if unit.atoms.count == MAX_ATOMS {
                    Self::write_atoms(unit);
                }
            }
            unit.write_identifiers();
        }
        if waypoint.exception_return {
            Self::write_atoms(unit);
            unit.write(&Packet::ExceptionReturn);
        }
    }

    fn exception(unit: &mut TraceUnit<Self>, taken: &TakenException) {
        Self::write_atoms(unit);
        if let Some(last) = taken.last {
            let address = unit
                .encoder
                .shortest(last.address.0 as u32, last.isa, false);
            unit.write(&Packet::WaypointUpdate { address });
        }
        let to = taken.handler.unwrap_or(taken.return_to);
        unit.branch(to, Some(taken.number));
    }
}

#[cfg(test)]
mod tests;
