//! The packets of ETMv4 and ETE instruction trace, with only the content of their own bytes.
//!
//! Packets do not depend on earlier ones: an address consists of the traced bits, and a cycle count
//! lacks the threshold. The packets are described in ARM IHI 0064H, "Instruction trace
//! packets", and for ETE in ARM DDI 0487, part D.

use crate::element::Atoms;
use armsnap_arch::quantity::{ExceptionLevel, Security};

/// The instruction set select of an address; the context decides what it means (IHI 0064,
/// "Address packets").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum InstructionSet {
    /// IS0: A64 or A32, addresses are multiples of 4.
    #[default]
    Is0,
    /// IS1: T32, addresses are multiples of 2.
    Is1,
}

/// An instruction address, as traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressBits {
    /// The same as an earlier address, 0 to 2 (exact match packet; 0 is the last).
    Match(u8),
    /// The low `bits` bits; the others are the same as in the last address.
    Low {
        /// The bits, in their positions in the address.
        value: u64,
        /// Their number: 9 or 17 (8 or 16 in IS1), 32, 64.
        bits: u8,
        /// Instruction set select.
        is: InstructionSet,
    },
}

/// The core's context, as traced (IHI 0064, Context packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContextInfo {
    info: u8,
    vmid: u32,
    context_id: u32,
}

impl ContextInfo {
    const VMID: u8 = 1 << 6;
    const CONTEXT_ID: u8 = 1 << 7;

    /// Creates it from the information byte and the identifiers that follow it.
    pub fn new(info: u8, vmid: Option<u32>, context_id: Option<u32>) -> Self {
        let mut info = info & !(Self::VMID | Self::CONTEXT_ID);
        if vmid.is_some() {
            info |= Self::VMID;
        }
        if context_id.is_some() {
            info |= Self::CONTEXT_ID;
        }
        Self {
            info,
            vmid: vmid.unwrap_or(0),
            context_id: context_id.unwrap_or(0),
        }
    }

    /// Exception level.
    pub fn el(&self) -> ExceptionLevel {
        ExceptionLevel(self.info & 3)
    }

    /// AArch64.
    pub fn is_64bit(&self) -> bool {
        self.info & 1 << 4 != 0
    }

    /// Security state, by the bits NS and NSE.
    pub fn security(&self) -> Security {
        match (self.info & 1 << 3 != 0, self.info & 1 << 5 != 0) {
            (false, false) => Security::Secure,
            (false, true) => Security::NonSecure,
            (true, false) => Security::Root,
            (true, true) => Security::Realm,
        }
    }

    /// VMID, if traced.
    pub fn vmid(&self) -> Option<u32> {
        (self.info & Self::VMID != 0).then_some(self.vmid)
    }

    /// Context ID, if traced.
    pub fn context_id(&self) -> Option<u32> {
        (self.info & Self::CONTEXT_ID != 0).then_some(self.context_id)
    }
}

/// A Trace Info packet (IHI 0064). A section that is not in the packet is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// The sections in the packet, by the bits of PLCTL: INFO, KEY, SPEC, CYCT, WNDW.
    pub sections: u8,
    /// INFO: what is traced.
    pub info: u32,
    /// P0_KEY_UPDATE: the key of the next P0 element, for data trace.
    pub p0_key: u32,
    /// CURR_SPEC_DEPTH: the number of speculative P0 elements traced before.
    pub speculation: u32,
    /// CYC_THRESHOLD: the number subtracted from cycle counts.
    pub cycle_threshold: u32,
    /// Commit window.
    pub window: u32,
}

impl TraceInfo {
    /// Cycle counts are traced (INFO.cc_enabled).
    pub fn cycle_counting(&self) -> bool {
        self.info & 1 != 0
    }

    /// The trace begins within a memory transaction (INFO.in_transaction, ETE).
    pub fn in_transaction(&self) -> bool {
        self.info & 1 << 6 != 0
    }
}

/// The meaning of the address after an Exception packet (IHI 0064, Exception packet, E1:E0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionAddress {
    /// A preferred return address follows (01).
    Return,
    /// The address that follows is the preferred return address and also the target of the branch
    /// before the exception (10).
    ReturnAndTarget,
    /// Reserved (00, 11).
    Reserved(u8),
}

/// A Conditional Instruction packet (IHI 0064).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionalInstruction {
    /// Format 1: one element with this key.
    F1 {
        /// Key.
        key: u32,
    },
    /// Format 2.
    F2 {
        /// The number of elements: 1 or 2.
        elements: u8,
        /// Whether the first has a new key.
        new_key: bool,
    },
    /// Format 3.
    F3 {
        /// The number of elements.
        elements: u8,
        /// Whether the last one has the same key as the previous one; all others have new keys.
        final_same_key: bool,
    },
}

/// A key and result of a conditional result packet, format 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedResult {
    /// Key.
    pub key: u32,
    /// RESULT: APSR flags or pass/fail, 4 bits.
    pub result: u8,
    /// CI: the key counts from the other base.
    pub cancelled: bool,
}

/// A Conditional Result packet (IHI 0064).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionalResult {
    /// Format 1: one or two results with keys.
    F1 {
        /// The first.
        first: KeyedResult,
        /// The second.
        second: Option<KeyedResult>,
    },
    /// Format 2: one result.
    F2 {
        /// The step by which the key advances.
        key_step: u8,
        /// Result token.
        token: u8,
    },
    /// Format 3: up to six results of two bits.
    F3 {
        /// Result tokens, the first in the lowest bits.
        tokens: u16,
    },
    /// Format 4: one result with the last key.
    F4 {
        /// Result token.
        token: u8,
    },
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Bytes before the first alignment synchronisation.
    NotSync,
    /// The trace ends inside this packet.
    Incomplete,
    /// A header that a trace unit of this configuration does not write.
    Reserved {
        /// The header.
        header: u8,
    },
    /// A packet whose payload no trace unit writes.
    Bad {
        /// Its header.
        header: u8,
    },
    /// Alignment synchronisation (IHI 0064, A-Sync packet).
    Async,
    /// Trace was discarded (IHI 0064, Discard packet).
    Discard,
    /// A buffer overflowed (IHI 0064, Overflow packet).
    Overflow,
    /// Trace info.
    TraceInfo(TraceInfo),
    /// Trace on (IHI 0064, Trace On packet).
    TraceOn,
    /// Function return (Armv8-M).
    FunctionReturn,
    /// Exception (IHI 0064, Exception packet).
    Exception {
        /// TYPE.
        number: u16,
        /// The meaning of the address packet that follows.
        address: ExceptionAddress,
        /// A fault is pending (M profile).
        fault_pending: bool,
    },
    /// Exception return (IHI 0064, Exception Return packet).
    ExceptionReturn,
    /// The core was reset (ETE).
    PeReset,
    /// A memory transaction failed (ETE).
    TransactionFailure,
    /// A memory transaction starts (ETE).
    TransactionStart,
    /// A memory transaction was committed (ETE).
    TransactionCommit,
    /// Software wrote to the instrumentation register (ETE 1.3).
    Instrumentation {
        /// The exception level of the instruction.
        el: ExceptionLevel,
        /// The value written.
        value: u64,
    },
    /// Timestamp (IHI 0064, Timestamp packet).
    Timestamp {
        /// The low `bits` bits of the time.
        value: u64,
        /// The number of bits traced.
        bits: u8,
        /// Cycles since the last cycle count.
        cycles: Option<u32>,
    },
    /// Where the next timestamp was taken (ETMv4.6, ETE 1.1).
    TimestampMarker,
    /// Cycle count (IHI 0064, Cycle Count packets).
    CycleCount {
        /// Format, 1 to 3.
        format: u8,
        /// The number of P0 elements that it commits.
        commit: Option<u32>,
        /// Cycles beyond the threshold; `None` if unknown.
        count: Option<u32>,
    },
    /// Numbered data synchronisation marker (IHI 0064, Data Synchronization Marker packets).
    NumberedDataSyncMarker(u8),
    /// Unnumbered data synchronisation marker (IHI 0064, Data Synchronization Marker packets).
    UnnumberedDataSyncMarker(u8),
    /// The oldest P0 elements are no longer speculative (IHI 0064, Commit packet).
    Commit(u32),
    /// The newest P0 elements did not execute (IHI 0064, Cancel packets).
    Cancel {
        /// Format, 1 to 3.
        format: u8,
        /// Atoms in the packet, which precede the cancellation.
        atoms: Option<Atoms>,
        /// The number of elements.
        count: u32,
        /// The newest remaining atom is wrong.
        mispredict: bool,
    },
    /// The newest atom is wrong (IHI 0064, Mispredict packet).
    Mispredict {
        /// Atoms in the packet, which precede the correction.
        atoms: Option<Atoms>,
    },
    /// Conditional instruction.
    ConditionalInstruction(ConditionalInstruction),
    /// Conditional flush (IHI 0064, Conditional Flush packet).
    ConditionalFlush,
    /// Conditional result.
    ConditionalResult(ConditionalResult),
    /// A packet without meaning (ETMv4.3).
    Ignore,
    /// Events 0 to 3, one bit each (IHI 0064, Event packet).
    Event(u8),
    /// Context; `None`: the same as the last (IHI 0064, Context packet).
    Context(Option<ContextInfo>),
    /// Target address (IHI 0064, "Address packets").
    Address(AddressBits),
    /// Target address with context (IHI 0064, Address with Context packet).
    AddressWithContext {
        /// The low `bits` bits of the address.
        value: u64,
        /// Their number: 32 or 64.
        bits: u8,
        /// Instruction set select.
        is: InstructionSet,
        /// The context.
        context: ContextInfo,
    },
    /// Source address (ETE).
    SourceAddress(AddressBits),
    /// Instructions that the trace only counts (IHI 0064, Q packet).
    Q {
        /// TYPE.
        kind: u8,
        /// The number of instructions executed.
        count: Option<u32>,
        /// Where execution continues; if `None`, the next packet contains it.
        address: Option<AddressBits>,
    },
    /// Atoms (IHI 0064, Atom packets).
    Atoms {
        /// Format, 1 to 6.
        format: u8,
        /// The atoms.
        atoms: Atoms,
    },
}

const _: () = assert!(size_of::<Packet>() <= 32);
