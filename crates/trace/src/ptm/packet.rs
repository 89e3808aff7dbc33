//! The packets of PFT (ARM IHI 0035B 4.5).

use crate::element::{Atoms, TraceOnReason};
pub use crate::etm::packet::PartAddress;
use crate::etm::packet::{self, SyncPacket, cycles_field, i_sync_fields};
use crate::protocol::{Describe, Field};
use armsnap_arch::quantity::Isa;

/// One packet. Addresses are complete: bits that a packet omits are taken from the previous
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Bytes before the first A-sync, or after bytes that no encoder writes.
    NotSync,
    /// Alignment synchronisation (4.5.1).
    ASync,
    /// Instruction synchronisation (4.5.2).
    ISync(ISync),
    /// Atoms (4.5.3).
    Atoms(Atoms),
    /// One atom with its cycle count, in cycle-accurate mode (4.5.3).
    TimedAtom {
        /// E or N.
        taken: bool,
        /// Cycles since the last count.
        cycles: u32,
    },
    /// Branch address (4.5.4).
    Branch(Branch),
    /// Waypoint update (4.5.5): execution reached the instruction at this address.
    WaypointUpdate {
        /// The last instruction executed.
        address: PartAddress,
    },
    /// The trigger event (4.5.6).
    Trigger,
    /// Context ID (4.5.7).
    ContextId(u32),
    /// VMID (4.5.8).
    Vmid(u8),
    /// Timestamp (4.5.9).
    Timestamp(Timestamp),
    /// An exception return was executed (4.5.10).
    ExceptionReturn,
    /// Padding (4.5.11).
    Ignore,
    /// A reserved header.
    Reserved,
    /// Zeros that are not an A-sync, or an address without instruction set.
    BadSequence,
    /// A packet cut by the end of the trace, or by lost bytes.
    Incomplete,
}

/// Instruction synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ISync {
    /// The next instruction.
    pub address: u32,
    /// Its instruction set.
    pub isa: Isa,
    /// Why tracing starts here; `None`: periodic synchronisation.
    pub reason: Option<TraceOnReason>,
    /// Non-secure state.
    pub non_secure: bool,
    /// Hyp mode.
    pub hyp: bool,
    /// Context ID, where it is traced.
    pub context_id: Option<u32>,
    /// Cycles since the last count, in cycle-accurate mode.
    pub cycles: Option<u32>,
}

/// A branch was taken, or an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The target.
    pub address: PartAddress,
    /// The exception information bytes.
    pub information: Option<Information>,
    /// Cycles since the last count, in cycle-accurate mode.
    pub cycles: Option<u32>,
}

/// The exception information bytes of a branch address packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// The exception number; 0: a branch that only changes the state.
    pub exception: u16,
    /// Non-secure state.
    pub non_secure: bool,
    /// Hyp mode, if there is a second byte.
    pub hyp: Option<bool>,
}

/// A timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// The whole value, in natural binary.
    pub value: u64,
    /// The clock frequency changed since the last timestamp.
    pub frequency_changed: bool,
    /// Cycles since the last count, in cycle-accurate mode.
    pub cycles: Option<u32>,
}

/// The name of an exception (ARM IHI 0035B 4.5.4, ARMv7-A).
pub(super) const fn exception_name(number: u16) -> &'static str {
    packet::exception_name(number, "ThumbEE check")
}

impl SyncPacket for Packet {
    const NOT_SYNC: Self = Self::NotSync;
    const A_SYNC: Self = Self::ASync;
    const RESERVED: Self = Self::Reserved;
    const BAD_SEQUENCE: Self = Self::BadSequence;
    const INCOMPLETE: Self = Self::Incomplete;
}

impl Describe for Packet {
    fn name(&self) -> &'static str {
        match self {
            Self::NotSync => "not_sync",
            Self::ASync => "async",
            Self::ISync(_) => "i_sync",
            Self::Atoms(_) | Self::TimedAtom { .. } => "atom",
            Self::Branch(_) => "branch_address",
            Self::WaypointUpdate { .. } => "waypoint_update",
            Self::Trigger => "trigger",
            Self::ContextId(_) => "context_id",
            Self::Vmid(_) => "vmid",
            Self::Timestamp(_) => "timestamp",
            Self::ExceptionReturn => "exception_return",
            Self::Ignore => "ignore",
            Self::Reserved => "reserved",
            Self::BadSequence => "bad_sequence",
            Self::Incomplete => "incomplete",
        }
    }

    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        match *self {
            Self::NotSync
            | Self::ASync
            | Self::Trigger
            | Self::ExceptionReturn
            | Self::Ignore
            | Self::Reserved
            | Self::BadSequence
            | Self::Incomplete => {}
            Self::ISync(sync) => {
                each("address", Field::Hex(sync.address.into()));
                each("isa", Field::Name(sync.isa.name()));
                i_sync_fields(
                    sync.reason,
                    sync.non_secure,
                    sync.hyp,
                    sync.context_id,
                    sync.cycles,
                    each,
                );
            }
            Self::Atoms(atoms) => each("atoms", Field::Atoms(atoms)),
            Self::TimedAtom { taken, cycles } => {
                let bits = u32::from(taken);
                each("atoms", Field::Atoms(Atoms { bits, count: 1 }));
                each("cycles", Field::Count(cycles.into()));
            }
            Self::Branch(branch) => {
                branch.address.fields(each);
                if let Some(information) = branch.information {
                    each("exception", Field::Count(information.exception.into()));
                    each(
                        "exception_name",
                        Field::Name(exception_name(information.exception)),
                    );
                    each("non_secure", Field::Flag(information.non_secure));
                    if let Some(hyp) = information.hyp {
                        each("hyp", Field::Flag(hyp));
                    }
                }
                cycles_field(branch.cycles, each);
            }
            Self::WaypointUpdate { address } => address.fields(each),
            Self::ContextId(id) => each("context_id", Field::Hex(id.into())),
            Self::Vmid(vmid) => each("vmid", Field::Hex(vmid.into())),
            Self::Timestamp(stamp) => {
                each("value", Field::Hex(stamp.value));
                each("frequency_changed", Field::Flag(stamp.frequency_changed));
                cycles_field(stamp.cycles, each);
            }
        }
    }
}
