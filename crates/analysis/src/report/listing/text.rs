//! Listings for people: one aligned line per packet or element.
//!
//! `offset  id  kind  what`, with the offset in decimal as the reference counts it and the trace ID
//! in hex. Independent of protocols and files.

use super::branches::Line;
use super::instructions::Instruction;
use super::running_counts::{CountForm, LineCounts};
use super::text_buffer::TextBuffer;
use super::{BranchLines, Lines, RunningCounts};
use armsnap_arch::quantity::{BufferOffset, Isa, TraceId};
use armsnap_snapshot::capture::PerfClock;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{Context, Exception, Itm, Mark, Stm};
use armsnap_trace::flow::{Gap, InstructionKind, QRange, Range};
use armsnap_trace::protocol::{Describe, Field};

const ID: usize = 11;
const KIND: usize = 15;
const WHAT: usize = 34;
/// Packet lines show the bytes before the text.
const BYTES: usize = 34;
const ISA: usize = 74;
const LAST: usize = 86;
const FUNCTION: usize = 118;
/// Columns of the listing of instructions.
const ADDRESS: usize = 20;
const CODE: usize = 40;
const DISASSEMBLY: usize = 52;
const PLACE: usize = 92;
/// Columns of the listing of branches.
const CYCLE: usize = 6;
const VALUE: usize = 20;
const FIELDS: usize = 66;

/// Writes the lines of one source.
pub struct TextLines<'a> {
    symbols: Option<&'a Symbols>,
    clock: Option<PerfClock>,
    /// What the trace contains in place of VMIDs.
    virtual_id: &'static str,
    id: [u8; 2],
    start: usize,
    counts: LineCounts,
    out: TextBuffer,
}

impl<'a> TextLines<'a> {
    /// Creates the lines for the source with this trace ID; `symbols` are the functions of its
    /// core's program.
    pub fn new(id: TraceId, symbols: Option<&'a Symbols>) -> Self {
        let digits = format!("{:02x}", id.0);
        let digits = digits.as_bytes();
        Self {
            symbols,
            clock: None,
            virtual_id: ", VMID ",
            id: [digits[0], digits[1]],
            start: 0,
            counts: LineCounts::new(CountForm::Column {
                start: CYCLE,
                next: VALUE,
            }),
            out: TextBuffer::default(),
        }
    }

    /// Adds the times of perf's clock to timestamps, in nanoseconds.
    pub const fn with_clock(mut self, clock: Option<PerfClock>) -> Self {
        self.clock = clock;
        self
    }

    /// Shows CONTEXTIDR_EL2 in place of VMIDs, if `are_host_ids`.
    pub const fn with_host_ids(mut self, are_host_ids: bool) -> Self {
        if are_host_ids {
            self.virtual_id = ", CONTEXTIDR_EL2 ";
        }
        self
    }

    /// Starts a line.
    #[inline]
    pub fn begin(&mut self, at: BufferOffset, kind: &str) {
        self.out.line(at);
        self.start = self.out.len();
        let width = at.0.checked_ilog10().unwrap_or(0) as usize + 1;
        if let Some(blanks @ 1..) = (ID - 2).checked_sub(width) {
            self.out.pad(self.start, blanks);
        }
        self.out.decimal(at.0);
        self.out.pad(self.start, ID);
        self.out.byte(self.id[0]);
        self.out.byte(self.id[1]);
        self.out.pad(self.start, KIND);
        self.out.text(kind);
    }

    /// Ends a line.
    #[inline]
    pub fn end(&mut self) {
        self.out.byte(b'\n');
    }

    /// Moves to the column of the text.
    #[inline]
    pub fn what(&mut self) {
        self.out.pad(self.start, WHAT);
    }

    fn mark_text(&mut self, mark: &Mark) {
        match *mark {
            Mark::NoSync(reason) => self.out.text(reason.name()),
            Mark::TraceOn(reason) => self.out.text(reason.name()),
            Mark::Context(ref context) => self.context(context),
            Mark::ExceptionReturn | Mark::End => {}
            Mark::Cycles(count) => self.out.decimal(count.into()),
            Mark::Timestamp(value) => {
                self.out.hex(value);
                if let Some(clock) = self.clock {
                    self.out.byte(b' ');
                    self.named("ns", clock.nanoseconds(value));
                }
            }
            Mark::Event(number) => self.out.decimal(number.into()),
            Mark::Trigger => self.out.text("trigger"),
            Mark::Marker(value) => self.out.hex(value.into()),
            Mark::Transaction(state) => self.out.text(state.name()),
            Mark::Instrumentation { el, value } => {
                self.named("EL", u64::from(el.0));
                self.out.byte(b' ');
                self.out.hex(value);
            }
            Mark::Data {
                address,
                value,
                bytes,
                write,
            } => {
                self.out.text(match write {
                    Some(true) => "write",
                    Some(false) => "read",
                    None => "access",
                });
                if let Some(address) = address {
                    self.hex(" at ", address.0);
                }
                if let Some(value) = value {
                    self.hex(" value ", value);
                    self.named(" bytes ", bytes.into());
                }
            }
            Mark::Stm(ref stm) => self.stm(stm),
            Mark::Itm(itm) => self.itm(itm),
        }
    }

    fn exception_text(&mut self, exception: &Exception) {
        self.out.text(exception.name);
        self.named(", number ", exception.number.into());
        if let Some(address) = exception.return_address {
            self.hex(", returns to ", address.0);
        }
    }

    fn last(&mut self, range: &Range) {
        let last = &range.last;
        if last.conditional {
            self.out.text("conditional ");
        }
        self.out.text(match (last.kind, last.returns, last.link) {
            (InstructionKind::Indirect | InstructionKind::Branch, true, _) => "return",
            (InstructionKind::Branch, false, true) => "call",
            (InstructionKind::Indirect, false, true) => "indirect call",
            (kind, _, _) => kind.name(),
        });
        if matches!(
            last.kind,
            InstructionKind::Branch | InstructionKind::Indirect
        ) && !last.taken
        {
            self.out.text(" not taken");
        }
    }

    /// Appends the function that contains an address to the line.
    fn function(&mut self, address: u64) {
        if let Some((name, offset)) = self.symbols.and_then(|s| s.function(address)) {
            self.out.pad(self.start, FUNCTION);
            self.out.text(name);
            if offset > 0 {
                self.hex("+", offset);
            }
        }
    }

    fn named(&mut self, name: &str, value: u64) {
        self.out.text(name);
        self.out.decimal(value);
    }

    fn hex(&mut self, name: &str, value: u64) {
        self.out.text(name);
        self.out.hex(value);
    }

    fn context(&mut self, context: &Context) {
        self.out.text(context.isa.name());
        if let Some(el) = context.el {
            self.named(" EL", el.0.into());
        }
        if let Some(security) = context.security {
            self.out.byte(b' ');
            self.out.text(security.name());
        }
        if let Some(is_64bit) = context.is_64bit {
            self.out
                .text(if is_64bit { ", 64 bits" } else { ", 32 bits" });
        }
        if let Some(vmid) = context.vmid {
            self.hex(self.virtual_id, vmid.into());
        }
        if let Some(context_id) = context.context_id {
            self.hex(", context ID ", context_id.into());
        }
    }

    fn stm(&mut self, stm: &Stm) {
        let start = self.out.len();
        if let (Some(master), Some(channel)) = (stm.master, stm.channel) {
            self.named("master ", master.into());
            self.named(" channel ", channel.into());
        }
        if stm.bits > 0 {
            self.part(start, "D");
            self.out.decimal(stm.bits.into());
            self.hex(" ", stm.value);
        }
        for (set, name) in [
            (stm.marker, "marker"),
            (stm.trigger, "trigger"),
            (stm.frequency, "frequency"),
            (stm.master_error, "master error"),
            (stm.global_error, "global error"),
        ] {
            if set {
                self.part(start, name);
            }
        }
        if let Some(timestamp) = stm.timestamp {
            self.part(start, "at ");
            self.out.hex(timestamp);
        }
    }

    /// Appends text, preceded by a blank unless it is the first after `start`.
    fn part(&mut self, start: usize, text: &str) {
        if self.out.len() > start {
            self.out.byte(b' ');
        }
        self.out.text(text);
    }

    fn itm(&mut self, itm: Itm) {
        match itm {
            Itm::Stimulus { port, bytes, value } => {
                self.named("stimulus port ", port.into());
                self.payload(bytes, value);
            }
            Itm::Hardware { port, bytes, value } => {
                self.named("hardware ", port.into());
                self.payload(bytes, value);
            }
            Itm::Overflow => self.out.text("overflow"),
            Itm::GlobalTimestamp(value) => self.hex("global timestamp ", value),
            Itm::LocalTimestamp {
                delta,
                relation,
                total,
            } => {
                self.named("local timestamp +", delta.into());
                self.named(" = ", total);
                self.out.byte(b' ');
                self.out.text(relation.name());
            }
        }
    }

    fn payload(&mut self, bytes: u8, value: u32) {
        self.hex(": ", value.into());
        self.named(" in ", bytes.into());
        self.out.text(if bytes == 1 { " byte" } else { " bytes" });
    }
}

impl BranchLines for TextLines<'_> {
    fn branch_line(&mut self, _: BufferOffset, line: &Line, cycle: Option<u64>) {
        self.start = self.out.len();
        self.out.text(line.short_name());
        self.out.pad(self.start, CYCLE);
        match cycle {
            Some(cycle) => self.counts.write(&mut self.out, cycle),
            None => {
                self.out.byte(b'-');
                self.out.pad(self.start, VALUE);
            }
        }
        if let Line::Branch(address) = line {
            self.out.hex(address.0);
            self.end();
            return;
        }
        let value = self.out.len();
        match line {
            Line::Branch(_) => {}
            Line::Exception(exception) => self.exception_text(exception),
            Line::Mark(Mark::Marker(marker)) => self.hex("marker ", u64::from(*marker)),
            Line::Mark(mark) => self.mark_text(mark),
        }
        self.out.join_words(value);
        self.end();
    }

    fn count_later(&mut self) {
        self.counts.leave_out();
    }

    fn take_counts(&mut self) -> RunningCounts {
        self.counts.take()
    }

    fn out(&mut self) -> &mut TextBuffer {
        &mut self.out
    }
}

impl Lines for TextLines<'_> {
    fn packet(&mut self, at: BufferOffset, packet: &impl Describe, bytes: &[u8]) {
        self.begin(at, packet.name());
        self.out.pad(self.start, BYTES);
        self.out.hex_bytes(packet.shared_byte().as_slice());
        self.out.hex_bytes(bytes);
        let mut column = FIELDS;
        packet.fields(&mut |name, field| {
            self.out.pad(self.start, column);
            column = 0;
            self.out.text(name);
            self.out.byte(b'=');
            match field {
                Field::Count(value) => self.out.decimal(value),
                Field::Hex(value) => self.out.hex(value),
                Field::Flag(value) => self.out.text(if value { "yes" } else { "no" }),
                Field::Name(value) => self.out.text(value),
                Field::Atoms(atoms) => super::atoms(&mut self.out, atoms),
            }
        });
        self.end();
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.out.mark(at, mark);
        self.begin(at, super::kind(mark));
        if !matches!(mark, Mark::ExceptionReturn | Mark::End) {
            self.what();
        }
        self.mark_text(mark);
        self.end();
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.begin(at, "exception");
        self.what();
        self.exception_text(exception);
        self.end();
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.begin(at, "range");
        self.what();
        self.out.hex(range.start.0);
        self.hex("-", range.end.0);
        self.out.pad(self.start, ISA);
        self.out.text(range.isa.name());
        self.named(" ", range.instructions.into());
        self.out.pad(self.start, LAST);
        self.last(range);
        if let Some(cycles) = cycles {
            self.named(", cycles ", cycles.into());
        }
        self.function(range.start.0);
        self.end();
    }

    fn instruction(&mut self, at: BufferOffset, instruction: &Instruction, cycles: Option<u32>) {
        self.begin(at, instruction.isa.name());
        self.out.pad(self.start, ADDRESS);
        self.out.hex(instruction.address.0);
        self.out.pad(self.start, CODE);
        match *instruction.bytes {
            [a, b, c, d] if instruction.isa != Isa::T32 => self.out.hex_bytes(&[d, c, b, a]),
            [a, b, c, d] => {
                self.out.hex_bytes(&[b, a]);
                self.out.byte(b' ');
                self.out.hex_bytes(&[d, c]);
            }
            [a, b] => self.out.hex_bytes(&[b, a]),
            _ => self.out.hex_bytes(&instruction.bytes),
        }
        self.out.pad(self.start, DISASSEMBLY);
        self.out.text(&instruction.text);
        if let Some(cycles) = cycles {
            self.named("  ; cycles ", cycles.into());
        }
        if let Some((name, offset)) = &instruction.function {
            self.out.pad(self.start, PLACE);
            self.out.text(name);
            self.hex("+", *offset);
        }
        if let Some(line) = &instruction.line {
            self.out.text("  ");
            self.out.text(&line.file);
            self.named(":", line.line.into());
        }
        self.end();
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.begin(at, "q_range");
        self.what();
        self.out.hex(range.start.0);
        self.hex("..", range.end.0);
        if let Some(instructions) = range.instructions {
            self.out.pad(self.start, ISA);
            self.out.text(range.isa.name());
            self.named(" ", instructions.into());
        }
        self.end();
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        match gap {
            Gap::MemoryMissing(address) => {
                self.begin(at, "memory_missing");
                self.what();
                self.out.hex(address.0);
            }
            Gap::NotFollowed { address, isa } => {
                self.begin(at, "no_sync");
                self.what();
                self.out.text(isa.name());
                self.hex(" is not followed, at ", address.0);
            }
            Gap::ReturnStackEmpty => {
                self.begin(at, "no_sync");
                self.what();
                self.out
                    .text("bad_image: a return to an address that was never stacked");
            }
            Gap::TargetNotTraced { after } => {
                self.begin(at, "no_sync");
                self.what();
                self.hex("bad_image: no target of the branch before ", after.0);
            }
            Gap::NotReached { from, to } => {
                self.begin(at, "no_sync");
                self.what();
                self.hex("bad_image: no straight line from ", from.0);
                self.hex(" to ", to.0);
            }
        }
        self.end();
    }

    fn offset_column(&self, digits: usize) -> usize {
        (ID - 2).saturating_sub(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
    use armsnap_trace::element::NoSyncReason;

    #[test]
    fn parts_of_an_stm_element_are_separated_by_one_space() {
        let what = |stm: Stm| {
            let mut lines = TextLines::new(TraceId(0x20), None);
            lines.mark(BufferOffset(0), &Mark::Stm(stm));
            let text = String::from_utf8(lines.out.take()).unwrap();
            text[WHAT..].trim_end().to_owned()
        };
        let marked = Stm {
            master: Some(65),
            channel: Some(0),
            marker: true,
            timestamp: Some(0x10),
            ..Stm::default()
        };
        assert_eq!(what(marked), "master 65 channel 0 marker at 0x10");
        let value = Stm {
            bits: 8,
            value: 0xab,
            ..Stm::default()
        };
        assert_eq!(what(value), "D8 0xab");
        let trigger = Stm {
            trigger: true,
            ..Stm::default()
        };
        assert_eq!(what(trigger), "trigger");
    }

    #[test]
    fn lines_are_aligned() {
        let mut lines = TextLines::new(TraceId(0x10), None);
        lines.mark(BufferOffset(858), &Mark::NoSync(NoSyncReason::Start));
        lines.mark(
            BufferOffset(1_234_567_890),
            &Mark::Context(Context {
                isa: Isa::A64,
                el: Some(ExceptionLevel(1)),
                security: Some(Security::NonSecure),
                is_64bit: Some(true),
                vmid: Some(3),
                context_id: None,
            }),
        );
        lines.exception(
            BufferOffset(900),
            &Exception {
                number: 14,
                name: "IRQ",
                return_address: Some(Address(0x8000)),
            },
        );
        assert_eq!(
            std::str::from_utf8(lines.out.bytes()).unwrap(),
            "      858  10  no_sync            start\n\
             1234567890 10  context            A64 EL1 non-secure, 64 bits, VMID 0x3\n      900  10  exception          IRQ, number 14, returns to 0x8000\n"
        );
    }
}
