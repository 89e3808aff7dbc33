//! The packets of ETMv3 (ARM IHI 0014Q 7.2, table 7.1).

use crate::element::{Atoms, TraceOnReason};
pub use crate::etm::packet::PartAddress;
use crate::etm::packet::{SyncPacket, exception_name, i_sync_fields};
use crate::protocol::{Describe, Field};
use armsnap_arch::quantity::Isa;
use armsnap_arch::quantity::Profile;

/// One packet. Addresses are complete: bits that a packet omits are taken from the previous
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Bytes before the first A-sync, or after bytes that no encoder writes.
    NotSync,
    /// Alignment synchronisation (7.10.4).
    ASync,
    /// Instruction synchronisation (7.10.5).
    ISync(ISync),
    /// Atoms (7.3.1).
    PHeader {
        /// 0 to 16 atoms.
        atoms: Atoms,
        /// The cycles between them.
        timing: Timing,
    },
    /// Cycles before the most recent non-periodic I-sync (7.3.4); 0: the counter overflowed.
    CycleCount(u32),
    /// Branch (7.3.5).
    Branch(Branch),
    /// Context ID (7.3.6).
    ContextId(u32),
    /// VMID (7.8).
    Vmid(u8),
    /// Data of the most recently traced data instruction (7.4.2).
    NormalData {
        /// The address, if it is traced and does not follow the previous one.
        address: Option<DataAddress>,
        /// The value, if values are traced.
        value: Option<DataValue>,
    },
    /// Data announced by a placeholder (7.4.3).
    OutOfOrderData {
        /// The tag of the placeholder, 1 to 3.
        tag: u8,
        /// The value.
        value: DataValue,
    },
    /// Data will follow out of order (7.4.3).
    OutOfOrderPlaceholder {
        /// The tag of the data, 1 to 3.
        tag: u8,
        /// Their address, if it is traced.
        address: Option<DataAddress>,
    },
    /// A transfer of a load or store multiple is not traced (7.4.5).
    ValueNotTraced {
        /// Its address, if it does not follow the previous one.
        address: Option<DataAddress>,
    },
    /// Data were suppressed to prevent an overflow (7.4.6).
    DataSuppressed,
    /// The store exclusive failed (7.4.7).
    StoreFailed,
    /// ARMv7-M: registers are stacked (7.5).
    ExceptionEntry,
    /// An exception return was executed (7.5, 7.6).
    ExceptionExit,
    /// Timestamp (7.7.4).
    Timestamp {
        /// The whole value, in natural binary.
        value: u64,
        /// The clock frequency changed since the last timestamp.
        frequency_changed: bool,
    },
    /// The trigger event.
    Trigger,
    /// Padding.
    Ignore,
    /// A header that is reserved, or impossible with this configuration.
    Reserved,
    /// Bytes that no encoder writes.
    BadSequence,
    /// A packet cut by the end of the trace, or by lost bytes.
    Incomplete,
}

/// The cycles of a P-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Not traced.
    None,
    /// One cycle before each atom.
    Each,
    /// This number of cycles before the first atom.
    Before(u8),
}

/// Instruction synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ISync {
    /// The current instruction; `None` in data-only mode.
    pub place: Option<SyncAddress>,
    /// Why tracing starts here; `None`: periodic synchronisation.
    pub reason: Option<TraceOnReason>,
    /// Non-secure state.
    pub non_secure: bool,
    /// Hyp mode.
    pub hyp: bool,
    /// Context ID, where it is traced.
    pub context_id: Option<u32>,
    /// Cycles since the last P-header; 0: the counter overflowed.
    pub cycles: Option<u32>,
}

/// The address of execution at an I-sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncAddress {
    /// The next instruction, or the load or store in progress.
    pub address: u32,
    /// Its instruction set.
    pub isa: Isa,
    /// If a load or store at `address` is in progress: the address of the next instruction.
    pub next: Option<u32>,
}

/// A branch was taken, or an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The target.
    pub address: PartAddress,
    /// The exception information.
    pub information: Option<Information>,
}

/// The exception information of a branch packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// The exception number; 0: a branch that only changes the state.
    pub exception: u16,
    /// The packet has the deprecated form, with other exception numbers.
    pub deprecated: bool,
    /// The last traced instruction was not executed.
    pub cancel: bool,
    /// Non-secure state; not in the deprecated form.
    pub non_secure: Option<bool>,
    /// Hyp mode, if the packet contains its byte.
    pub hyp: Option<bool>,
    /// ARMv7-M: how an interrupted instruction is resumed.
    pub resume: u8,
}

/// A data address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAddress {
    /// The whole address.
    pub value: u32,
    /// The number of low bits in the packet: 7, 14, 21, 28 or 32.
    pub bits: u8,
    /// Big-endian access (BE-8), from a fifth byte.
    pub big_endian: Option<bool>,
}

/// A data value, traced without upper bytes that are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataValue {
    /// The value.
    pub value: u32,
    /// Bytes traced: 0, 1, 2 or 4.
    pub bytes: u8,
}

impl Information {
    /// The name of the exception (ARM IHI 0014Q 7.3.5, exception information).
    pub const fn exception_name(&self, profile: Profile) -> &'static str {
        match (self.deprecated, profile) {
            (true, _) => deprecated_exception_name(self.exception),
            (false, Profile::A | Profile::R) => {
                exception_name(self.exception, "Jazelle or ThumbEE")
            }
            (false, Profile::M) => microcontroller_exception_name(self.exception),
        }
    }
}

const fn deprecated_exception_name(number: u16) -> &'static str {
    match number {
        0 => "Other",
        1 => "IRQ",
        4 => "Jazelle",
        5 => "FIQ",
        6 => "Asynchronous data abort",
        7 => "Debug halt",
        _ => "Reserved",
    }
}

const fn microcontroller_exception_name(number: u16) -> &'static str {
    match number {
        0 => "None",
        1 => "IRQ1",
        2 => "IRQ2",
        3 => "IRQ3",
        4 => "IRQ4",
        5 => "IRQ5",
        6 => "IRQ6",
        7 => "IRQ7",
        8 => "IRQ0",
        9 => "UsageFault",
        10 => "NMI",
        11 => "SVC",
        12 => "DebugMonitor",
        13 => "MemManage",
        14 => "PendSV",
        15 => "SysTick",
        17 => "Reset",
        19 => "HardFault",
        21 => "BusFault",
        16 | 18 | 20 | 22 | 23 => "Reserved",
        _ => "IRQ",
    }
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
            Self::ISync(ISync {
                cycles: Some(_), ..
            }) => "i_sync_with_cycle_count",
            Self::ISync(_) => "i_sync",
            Self::PHeader { .. } => "p_header",
            Self::CycleCount(_) => "cycle_count",
            Self::Branch(_) => "branch_address",
            Self::ContextId(_) => "context_id",
            Self::Vmid(_) => "vmid",
            Self::NormalData { .. } => "normal_data",
            Self::OutOfOrderData { .. } => "out_of_order_data",
            Self::OutOfOrderPlaceholder { .. } => "out_of_order_placeholder",
            Self::ValueNotTraced { .. } => "value_not_traced",
            Self::DataSuppressed => "data_suppressed",
            Self::StoreFailed => "store_failed",
            Self::ExceptionEntry => "exception_entry",
            Self::ExceptionExit => "exception_exit",
            Self::Timestamp { .. } => "timestamp",
            Self::Trigger => "trigger",
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
            | Self::DataSuppressed
            | Self::StoreFailed
            | Self::ExceptionEntry
            | Self::ExceptionExit
            | Self::Trigger
            | Self::Ignore
            | Self::Reserved
            | Self::BadSequence
            | Self::Incomplete => {}
            Self::ISync(ref sync) => sync.fields(each),
            Self::PHeader { atoms, timing } => {
                each("atoms", Field::Atoms(atoms));
                match timing {
                    Timing::None => {}
                    Timing::Each => each("cycles", Field::Count(atoms.count.into())),
                    Timing::Before(cycles) => each("cycles", Field::Count(cycles.into())),
                }
            }
            Self::CycleCount(cycles) => each("cycles", Field::Count(cycles.into())),
            Self::Branch(ref branch) => branch.fields(each),
            Self::ContextId(id) => each("context_id", Field::Hex(id.into())),
            Self::Vmid(vmid) => each("vmid", Field::Hex(vmid.into())),
            Self::NormalData {
                address: at,
                value: data,
            } => {
                address(at, each);
                if let Some(data) = data {
                    value(data, each);
                }
            }
            Self::OutOfOrderData { tag, value: data } => {
                each("tag", Field::Count(tag.into()));
                value(data, each);
            }
            Self::OutOfOrderPlaceholder { tag, address: at } => {
                each("tag", Field::Count(tag.into()));
                address(at, each);
            }
            Self::ValueNotTraced { address: at } => address(at, each),
            Self::Timestamp {
                value,
                frequency_changed,
            } => {
                each("value", Field::Hex(value));
                each("frequency_changed", Field::Flag(frequency_changed));
            }
        }
    }
}

impl ISync {
    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        if let Some(place) = self.place {
            each("address", Field::Hex(place.address.into()));
            each("isa", Field::Name(place.isa.name()));
            if let Some(next) = place.next {
                each("next_address", Field::Hex(next.into()));
            }
        }
        i_sync_fields(
            self.reason,
            self.non_secure,
            self.hyp,
            self.context_id,
            self.cycles,
            each,
        );
    }
}

impl Branch {
    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        self.address.fields(each);
        let Some(information) = self.information else {
            return;
        };
        each("exception", Field::Count(information.exception.into()));
        each("deprecated", Field::Flag(information.deprecated));
        each("cancel", Field::Flag(information.cancel));
        if let Some(non_secure) = information.non_secure {
            each("non_secure", Field::Flag(non_secure));
        }
        if let Some(hyp) = information.hyp {
            each("hyp", Field::Flag(hyp));
        }
        if information.resume != 0 {
            each("resume", Field::Count(information.resume.into()));
        }
    }
}

fn address(address: Option<DataAddress>, each: &mut dyn FnMut(&'static str, Field)) {
    if let Some(address) = address {
        each("address", Field::Hex(address.value.into()));
        each("address_bits", Field::Count(address.bits.into()));
        if let Some(big_endian) = address.big_endian {
            each("big_endian", Field::Flag(big_endian));
        }
    }
}

fn value(data: DataValue, each: &mut dyn FnMut(&'static str, Field)) {
    each("value", Field::Hex(data.value.into()));
    each("value_bytes", Field::Count(data.bytes.into()));
}
