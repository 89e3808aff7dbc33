//! Packets of an MTB → program flow, encoded as ETMv4 trace.
//!
//! The code contains what an MTB leaves out: between two packets a core executes a straight line,
//! in which no branch is taken.

use super::mtb::Packet;
use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::element::TraceOnReason;
use armsnap_trace::encode::{CodeAddress, Tracer};
use armsnap_trace::etmv4::{self, TraceUnitOptions};
use armsnap_trace::flow::{CodeImage, ContextKey, View, instruction};
use std::collections::HashMap;

/// The number of bytes of trace between synchronisation points.
const SYNC_BYTES: usize = 4096;
/// The maximum length of a straight line, and of all of them together, in bytes of code.
const LONGEST_LINE: u64 = 1 << 16;
const MAX_CODE: u64 = 1 << 28;
/// The maximum number of vectors (Armv8-M ARM DDI 0553, B3.29: 16 exceptions and 480 interrupts).
const VECTORS: u64 = 16 + 480;
/// The exception number of SVC.
const SVC: u16 = 11;
/// Used for an unknown number; ETMv4 reserves it.
const UNKNOWN: u16 = 0;

/// The exception handlers.
#[derive(Debug, Default)]
pub struct Vectors(HashMap<u64, Vec<u16>>);

impl Vectors {
    /// Reads the vectors at an address, up to the first word that cannot be a vector.
    pub fn read(base: u64, word: impl Fn(u64) -> Option<u32>) -> Self {
        let mut out = Self::default();
        for number in 1..VECTORS {
            let Some(handler) = word(base.wrapping_add(4 * number)) else {
                break;
            };
            if handler == 0 {
                continue;
            }
            if handler & 1 == 0 || word(u64::from(handler & !3)).is_none() {
                break;
            }
            let numbers = out.0.entry((handler & !1).into()).or_default();
            numbers.push(number as u16);
        }
        out
    }

    /// The ETMv4 number of the exception with this handler; `None` if several share it.
    fn number(&self, handler: u64, after_svc: bool) -> Option<u16> {
        match self.0.get(&handler)?.as_slice() {
            [number] => Some(number_in_etmv4(*number)),
            several => (after_svc && several.contains(&SVC)).then_some(SVC),
        }
    }
}

/// The ETMv4 number of an M-profile exception (ARM IHI 0064H, "Exception packet", TYPE).
const fn number_in_etmv4(number: u16) -> u16 {
    match number {
        0..24 => number,
        _ => 0x208 + (number - 24),
    }
}

/// The result of encoding the packets.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The trace.
    pub bytes: Vec<u8>,
    /// The number of locations from which execution cannot be followed to the next packet.
    pub gaps: u64,
    /// The number of exceptions whose handler is in no vector, or in several.
    pub unnumbered: u64,
    /// Whether the trace reaches the location where the core halted.
    pub to_end: bool,
    /// Whether there was more code than is followed.
    pub exhausted: bool,
}

/// Follows packets.
#[derive(Debug)]
pub struct Branches<C> {
    tracer: Tracer<etmv4::TraceUnit, C>,
    code: C,
    view: View,
    vectors: Vectors,
    /// The address where execution continues, if it is known.
    here: Option<u64>,
    /// The special value that was the target of the last branch.
    returning: Option<u64>,
    /// The return addresses of exceptions, the innermost last.
    returns: Vec<u64>,
    left: u64,
    out: Traced,
}

/// EXC_RETURN and, in Armv8-M, FNC_RETURN (DDI 0553, B3.22, B3.34), which are not addresses of
/// code.
const fn is_special(address: u64) -> bool {
    address >= 0xFE00_0000
}

/// FNC_RETURN: the return from a function that was called from the other security state.
const fn is_function_return(address: u64) -> bool {
    address >> 24 == 0xFE
}

const fn t32(address: u64) -> CodeAddress {
    CodeAddress {
        address: Address(address),
        isa: Isa::T32,
    }
}

impl<C: CodeImage + Clone> Branches<C> {
    /// Prepares a trace unit for the executed code.
    pub fn new(unit: TraceUnitOptions, code: C, vectors: Vectors) -> Self {
        Self {
            tracer: Tracer::new(etmv4::TraceUnit::new(unit), code.clone(), SYNC_BYTES),
            view: code.view(&ContextKey::default()),
            code,
            vectors,
            here: None,
            returning: None,
            returns: Vec::new(),
            left: MAX_CODE,
            out: Traced::default(),
        }
    }

    /// Follows the next packet.
    pub fn packet(&mut self, packet: &Packet) {
        if packet.starts {
            self.here = None;
            self.returning = None;
            self.tracer.gap(TraceOnReason::BeginOrFilter);
        }
        match (packet.atomic, is_special(packet.source)) {
            (true, true) => self.returned(packet),
            (true, false) => self.exception(packet),
            (false, _) => self.branch(packet),
        }
    }

    /// Follows a branch instruction.
    fn branch(&mut self, packet: &Packet) {
        self.lose_return();
        let size = self.size_at(packet.source);
        self.line_to(packet.source, size);
        if is_special(packet.destination) {
            self.returning = Some(packet.destination);
            self.here = None;
        } else {
            self.here = Some(packet.destination);
        }
    }

    /// Follows an exception, or a PC that a debugger wrote, which looks the same.
    fn exception(&mut self, packet: &Packet) {
        self.lose_return();
        if self.here.is_some() {
            self.line_to(packet.source, 0);
        }
        let number = self.number(packet.destination, packet.source);
        self.tracer.exception(number, t32(packet.source));
        self.returns.push(packet.source);
        self.here = Some(packet.destination);
    }

    /// Follows the second packet of a return.
    fn returned(&mut self, packet: &Packet) {
        let to = packet.destination;
        self.here = Some(to);
        let Some(special) = self.returning.take() else {
            // The first packet was overwritten.
            self.returns.pop();
            return;
        };
        if is_function_return(special) {
            return;
        }
        let interrupted = self.returns.last() == Some(&to);
        if !interrupted && self.vectors.0.contains_key(&to) {
            let number = self.number(to, 0);
            self.tracer.tail_chain(number);
        } else {
            self.tracer.exception_return();
            self.returns.pop();
        }
    }

    /// Without the second packet of a return, its target is not known.
    fn lose_return(&mut self) {
        if self.returning.take().is_some() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.out.gaps += 1;
        self.tracer.gap(TraceOnReason::BeginOrFilter);
        self.here = None;
    }

    fn number(&mut self, handler: u64, return_to: u64) -> u16 {
        // SVC (DDI 0553, C2.4.191): its number, followed by 0xDF.
        let before = return_to.wrapping_sub(2);
        let after_svc = self.code.slice(self.view, Address(before)).get(1) == Some(&0xDF);
        let number = self.vectors.number(handler, after_svc);
        self.out.unnumbered += u64::from(number.is_none());
        number.unwrap_or(UNKNOWN)
    }

    fn size_at(&self, address: u64) -> u64 {
        let found = instruction(&self.code, self.view, Isa::T32, Address(address));
        found.map_or(2, |found| found.bytes.into())
    }

    /// Traces the straight line from where execution continues up to `address`, and the instruction
    /// of `size` bytes there.
    fn line_to(&mut self, address: u64, size: u64) {
        let known = self.here.filter(|here| {
            let length = address.checked_sub(*here);
            length.is_some_and(|length| length <= LONGEST_LINE)
        });
        if known.is_none() && self.here.is_some() {
            self.lose();
        }
        let start = known.unwrap_or(address);
        let length = address + size - start;
        let Some(left) = self.left.checked_sub(length) else {
            self.out.exhausted = true;
            return self.lose();
        };
        self.left = left;
        if length > 0 {
            self.tracer.run(t32(start), Address(address + size));
        }
    }

    /// Ends the trace; `halted` is the address where the core halted, if it was tracing up to
    /// there.
    pub fn finish(mut self, halted: Option<u64>) -> Traced {
        if self.returning.is_some() {
            self.lose_return();
        }
        let end = halted.filter(|&end| self.leads_to(end));
        if let Some(end) = end {
            self.line_to(end, 0);
            self.out.to_end = true;
            self.here = Some(end);
        }
        self.tracer.finish(self.here.map(t32));
        self.tracer.take(&mut self.out.bytes);
        self.out.gaps += self.tracer.gaps();
        self.out
    }

    /// Whether a straight line without an unconditional branch leads to an address.
    fn leads_to(&self, end: u64) -> bool {
        let Some(mut at) = self.here.filter(|here| {
            let length = end.checked_sub(*here);
            length.is_some_and(|length| length <= LONGEST_LINE)
        }) else {
            return false;
        };
        while at < end {
            let found = instruction(&self.code, self.view, Isa::T32, Address(at));
            let Some(found) = found else {
                return false;
            };
            let branches = matches!(found.kind, Kind::Branch { .. } | Kind::Indirect);
            if branches && !found.conditional {
                return false;
            }
            at += u64::from(found.bytes);
        }
        at == end
    }
}
