//! The packets that an ETMv4 writes for a program: addresses compressed against earlier ones,
//! atoms held back until a packet is full, and points at which decoders can synchronise.
//!
//! Everything is traced after it was executed, so nothing is speculative. The trace unit reads no
//! code.

use super::config::{Config, Protocol, Registers};
use super::encode::{Encoder, Packed};
use super::packet::{
    AddressBits, ContextInfo, ExceptionAddress, InstructionSet, Packet, TraceInfo,
};
use crate::element::{Atoms, Context, Mark, TraceOnReason};
use crate::encode::{CodeAddress, Options, TakenException, Waypoint};
use crate::flow::Waypoints;
use crate::protocol::{Core, Profile};
use armsnap_arch::quantity::{Isa, Security};

/// Entries of the return stack.
const RETURN_STACK: usize = 3;

/// The features and settings of an ETMv4. [`TraceUnitOptions::registers`] returns its register values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceUnitOptions {
    /// Trace ID.
    pub trace_id: u8,
    /// The traced core.
    pub core: Core,
    /// Cycle counts are traced, each after at least this many cycles; limited to 4 to 4095.
    pub cycles: Option<u32>,
    /// Timestamps are traced.
    pub timestamps: bool,
    /// Context IDs are traced.
    pub context_ids: bool,
    /// VMIDs are traced.
    pub vmids: bool,
    /// The return stack is used.
    pub return_stack: bool,
    /// Branch broadcasting.
    pub branch_broadcast: bool,
}

impl Default for TraceUnitOptions {
    /// An Armv8-A core with trace ID 0x10, everything optional off.
    fn default() -> Self {
        Self {
            trace_id: 0x10,
            core: Core::default(),
            cycles: None,
            timestamps: false,
            context_ids: false,
            vmids: false,
            return_stack: false,
            branch_broadcast: false,
        }
    }
}

impl TraceUnitOptions {
    /// The registers of this trace unit, an ETMv4.2 (IHI 0064H, chapter 7), by name.
    pub fn registers(&self) -> [(&'static str, u32); 13] {
        let flag = |set: bool, bit: u32| u32::from(set) << bit;
        let configr = 1
            | flag(self.branch_broadcast, 3)
            | flag(self.cycles.is_some(), 4)
            | flag(self.context_ids, 6)
            | flag(self.vmids, 7)
            | flag(self.timestamps, 11)
            | flag(self.return_stack, 12);
        let threshold = self.cycles.unwrap_or(0).clamp(4, 0xfff);
        // TRCBB, TRCCCI, RETSTACK, four events, COMMOPT, a timestamp of 64 bits.
        let idr0 = 0x2800_0ea1;
        // 64-bit addresses, 32-bit context IDs and VMIDs, 12-bit cycle counter.
        let idr2 = 0x0000_1088;
        [
            ("TRCCONFIGR", configr),
            ("TRCTRACEIDR", self.trace_id.into()),
            ("TRCCCCTLR", flag(self.cycles.is_some(), 0) * threshold),
            ("TRCIDR0", idr0),
            ("TRCIDR1", 0x4100_f420),
            ("TRCIDR2", idr2),
            ("TRCIDR8", 0),
            ("TRCIDR9", 0),
            ("TRCIDR10", 0),
            ("TRCIDR11", 0),
            ("TRCIDR12", 0),
            ("TRCIDR13", 0),
            ("TRCDEVARCH", 0x4772_4a13),
        ]
    }

    /// The configuration for a decoder of its trace.
    pub fn config(&self) -> Config {
        let registers = self.registers();
        let find = |name: &str| {
            let register = registers.iter().find(|register| register.0 == name)?;
            Some(register.1.into())
        };
        Config::read(&Registers::read(Protocol::Etmv4, find), self.core)
    }
}

/// The last traced addresses, newest first; addresses are compressed against them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traced {
    addresses: [(u64, InstructionSet); 3],
}

impl Traced {
    fn note(&mut self, address: u64, is: InstructionSet) {
        self.addresses.rotate_right(1);
        self.addresses[0] = (address, is);
    }

    /// Whether the upper half is the same as in the last address.
    fn upper_known(&self, address: u64) -> bool {
        address >> 32 == self.addresses[0].0 >> 32
    }

    /// The shortest form of an address.
    fn shorten(&self, address: u64, is: InstructionSet) -> AddressBits {
        let entries = (0u8..).zip(self.addresses);
        for (entry, traced) in entries {
            if traced == (address, is) {
                return AddressBits::Match(entry);
            }
        }
        let differs = address ^ self.addresses[0].0;
        // One or two bytes of address above the bits that are always zero.
        let bits = match is {
            InstructionSet::Is0 if differs >> 9 == 0 => 9,
            InstructionSet::Is0 if differs >> 17 == 0 => 17,
            InstructionSet::Is1 if differs >> 8 == 0 => 8,
            InstructionSet::Is1 if differs >> 16 == 0 => 16,
            _ if self.upper_known(address) => 32,
            _ => 64,
        };
        let value = if bits == 64 {
            address
        } else {
            address & ((1 << bits) - 1)
        };
        AddressBits::Low { value, bits, is }
    }
}

/// Traces one core.
#[derive(Clone, Debug)]
pub struct TraceUnit {
    options: TraceUnitOptions,
    encoder: Encoder,
    out: Vec<u8>,
    atoms: Atoms,
    traced: Traced,
    /// A target that is not written yet, because an exception packet may contain it.
    pending_target: Option<CodeAddress>,
    context: Context,
    /// The last context written.
    sent: Option<ContextInfo>,
    /// The execution state, AArch64 or not, in which `sent` is known to be the context.
    sent_in: Option<bool>,
    timestamp: u64,
    cycles: u64,
}

impl TraceUnit {
    /// Creates a trace unit that has not written anything.
    pub fn new(options: TraceUnitOptions) -> Self {
        Self {
            encoder: Encoder::new(&options.config()),
            options,
            out: Vec::new(),
            atoms: Atoms { bits: 0, count: 0 },
            traced: Traced::default(),
            pending_target: None,
            context: Context::default(),
            sent: None,
            sent_in: None,
            timestamp: 0,
            cycles: 0,
        }
    }

    fn write(&mut self, packet: &Packet) {
        let written = self.encoder.packet(packet, &mut self.out);
        debug_assert!(written.is_ok(), "{packet:?}");
    }

    #[inline]
    fn atom(&mut self, taken: bool) {
        self.atoms.bits |= u32::from(taken) << self.atoms.count;
        self.atoms.count += 1;
        if self.atoms.count == 24 {
            self.write_atoms();
        }
    }

    fn write_atoms(&mut self) {
        while self.atoms.count > 0 {
            let packed = Packed::of(self.atoms);
            self.out.push(packed.header);
            self.atoms.bits >>= packed.count;
            self.atoms.count -= packed.count;
        }
    }

    /// Writes the atoms and the target that are held back.
    fn write_held(&mut self) {
        self.write_atoms();
        if let Some(place) = self.pending_target.take() {
            self.write_address(place);
        }
    }

    fn context_info(&self, isa: Isa) -> ContextInfo {
        let context = &self.context;
        let (ns, nse) = match context.security {
            Some(Security::NonSecure) | None => (1, 0),
            Some(Security::Secure) => (0, 0),
            Some(Security::Root) => (0, 1),
            Some(Security::Realm) => (1, 1),
        };
        let el = context.el.unwrap_or_default().0 & 3;
        let sf = u8::from(isa == Isa::A64);
        ContextInfo::new(
            el | nse << 3 | sf << 4 | ns << 5,
            context.vmid.filter(|_| self.options.vmids),
            context.context_id.filter(|_| self.options.context_ids),
        )
    }

    /// Writes the address, with the context if it is not the last one written.
    fn write_address(&mut self, place: CodeAddress) {
        let (address, is) = select(place);
        let context = self.context_info(place.isa);
        if self.sent == Some(context) {
            let bits = self.traced.shorten(address, is);
            self.write(&Packet::Address(bits));
        } else {
            let known = self.traced.upper_known(address);
            self.write(&Packet::AddressWithContext {
                value: if known {
                    address & 0xffff_ffff
                } else {
                    address
                },
                bits: if known { 32 } else { 64 },
                is,
                context,
            });
            self.sent(context);
        }
        self.traced.note(address, is);
    }

    fn sent(&mut self, context: ContextInfo) {
        self.sent = Some(context);
        self.sent_in = None;
    }

    /// Writes the context, if it changed, after a waypoint that leads to `place`. A context packet
    /// keeps the instruction set of the last address, so if the instruction set changed, the
    /// address is written too.
    #[inline]
    fn write_context(&mut self, place: CodeAddress) {
        if self.sent_in != Some(place.isa == Isa::A64) {
            self.write_new_context(place);
        }
    }

    #[cold]
    fn write_new_context(&mut self, place: CodeAddress) {
        let context = self.context_info(place.isa);
        if self.sent == Some(context) {
            self.sent_in = Some(place.isa == Isa::A64);
            return;
        }
        self.write_held();
        if self.last_set() == select(place).1 {
            self.write(&Packet::Context(Some(context)));
            self.sent(context);
        } else {
            self.write_address(place);
        }
    }

    /// The instruction set select of the last address.
    fn last_set(&self) -> InstructionSet {
        self.traced.addresses[0].1
    }

    /// Writes cycles once they reach the threshold.
    #[inline]
    fn write_cycles(&mut self) {
        if let Some(threshold) = self.options.cycles {
            self.write_cycles_from(threshold);
        }
    }

    fn write_cycles_from(&mut self, threshold: u32) {
        const MOST: u64 = 0xfff;
        let threshold = u64::from(threshold.clamp(4, MOST as u32));
        if self.cycles < threshold {
            return;
        }
        self.write_held();
        let beyond = self.cycles - threshold;
        self.cycles = 0;
        // After an overflow of the counter the count is unknown.
        let count = (beyond <= MOST).then_some(beyond as u32);
        let format = if count.is_some_and(|count| count < 4) {
            3
        } else {
            1
        };
        self.write(&Packet::CycleCount {
            format,
            commit: None,
            count,
        });
    }
}

/// The address and its instruction set select.
fn select(place: CodeAddress) -> (u64, InstructionSet) {
    let address = place.address.0;
    match place.isa {
        Isa::T32 | Isa::ThumbEe => (address & !1, InstructionSet::Is1),
        Isa::A64 | Isa::A32 | Isa::Jazelle => (address & !3, InstructionSet::Is0),
    }
}

impl crate::encode::TraceUnit for TraceUnit {
    fn options(&self) -> Options {
        Options {
            waypoints: Waypoints::default(),
            return_stack: if self.options.return_stack {
                RETURN_STACK
            } else {
                0
            },
            branch_broadcast: self.options.branch_broadcast,
        }
    }

    /// IHI 0064, "Exception packet", TYPE.
    fn debug_halt(&self) -> Option<u16> {
        Some(match self.options.core.profile {
            Profile::A | Profile::R => 1,
            Profile::M => 24,
        })
    }

    fn context(&mut self, context: &Context, at: Option<CodeAddress>) {
        self.write_held();
        self.context = *context;
        self.sent_in = None;
        // An address in the middle of a line would hide the start of the line.
        if let Some(place) = at.filter(|place| select(*place).1 == self.last_set()) {
            self.write_context(place);
        }
    }

    fn trace_on(&mut self, reason: TraceOnReason, place: CodeAddress) {
        self.write_held();
        if self.sent.is_none() {
            self.begin();
        }
        if reason == TraceOnReason::Overflow {
            self.write(&Packet::Overflow);
            self.begin();
        }
        self.write(&Packet::TraceOn);
        self.sent = None;
        self.sent_in = None;
        self.write_address(place);
    }

    fn synchronise(&mut self, place: CodeAddress) {
        self.write_held();
        self.begin();
        self.write_address(place);
    }

    #[inline]
    fn instruction(&mut self) {}

    #[inline]
    fn waypoint(&mut self, waypoint: &Waypoint) {
        if let Some(place) = self.pending_target.take() {
            self.write_atoms();
            self.write_address(place);
        }
        self.atom(waypoint.taken);
        if waypoint.exception_return {
            self.write_atoms();
            self.write(&Packet::ExceptionReturn);
        }
        if waypoint.target_traced {
            self.pending_target = Some(waypoint.next);
        } else {
            self.write_context(waypoint.next);
        }
        self.write_cycles();
    }

    fn exception(&mut self, taken: &TakenException) {
        self.write_atoms();
        let here = match taken.chained {
            true => Some(taken.return_to),
            false => self.pending_target.take(),
        };
        let known = self
            .sent
            .is_some_and(|sent| sent.is_64bit() == (taken.return_to.isa == Isa::A64));
        // With a return stack, OpenCSD 1.3 assumes that the preceding branch has no traced target.
        let both = !self.options.return_stack
            && here == Some(taken.return_to)
            && taken.last.is_none()
            && known;
        let address = if both {
            ExceptionAddress::ReturnAndTarget
        } else {
            if let Some(place) = here {
                self.write_address(place);
            }
            ExceptionAddress::Return
        };
        self.write(&Packet::Exception {
            number: taken.number,
            address,
            fault_pending: false,
        });
        if both {
            // It is a target too, whose context may be new.
            self.write_address(taken.return_to);
        } else {
            let (address, is) = select(taken.return_to);
            let bits = self.traced.shorten(address, is);
            self.write(&Packet::Address(bits));
            self.traced.note(address, is);
        }
        self.pending_target = taken.handler;
        self.write_cycles();
    }

    fn cycles(&mut self, cycles: u32) {
        self.cycles = self.cycles.saturating_add(cycles.into());
    }

    fn mark(&mut self, mark: &Mark) {
        match *mark {
            Mark::Timestamp(value) if self.options.timestamps => {
                self.write_held();
                let differs = (value ^ self.timestamp) | 1;
                let bytes = (64 - differs.leading_zeros()).div_ceil(7) as u8;
                let bits = if bytes > 8 { 64 } else { 7 * bytes };
                let kept = if bits == 64 {
                    u64::MAX
                } else {
                    (1 << bits) - 1
                };
                let cycles = self.options.cycles.map(|_| self.cycles.min(0xfff) as u32);
                self.write(&Packet::Timestamp {
                    value: value & kept,
                    bits,
                    cycles,
                });
                self.timestamp = value;
            }
            Mark::Event(events) if events & 0xf != 0 => {
                self.write_held();
                self.write(&Packet::Event(events & 0xf));
            }
            _ => {}
        }
    }

    fn flush(&mut self) {
        self.write_held();
    }

    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

impl TraceUnit {
    /// Writes A-Sync and Trace Info: compression starts anew.
    fn begin(&mut self) {
        let cycles = self.options.cycles;
        self.write(&Packet::Async);
        self.write(&Packet::TraceInfo(TraceInfo {
            sections: 0b0001 | u8::from(cycles.is_some()) << 3,
            info: u32::from(cycles.is_some()),
            cycle_threshold: cycles.map_or(0, |threshold| threshold.clamp(4, 0xfff)),
            ..TraceInfo::default()
        }));
        self.traced = Traced::default();
        self.timestamp = 0;
        self.sent = None;
        self.sent_in = None;
    }
}

#[cfg(test)]
mod tests;
