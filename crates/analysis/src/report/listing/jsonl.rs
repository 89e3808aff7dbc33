//! The element stream as JSON Lines.
//!
//! The fields are a contract with other programs: fields may be added, never renamed. Independent
//! of protocols and files.

use super::branches::Line;
use super::instructions::Instruction;
use super::running_counts::{CountForm, LineCounts};
use super::text_buffer::TextBuffer;
use super::{BranchLines, Lines, RunningCounts};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::PerfClock;
use armsnap_trace::element::{Context, Exception, Itm, Mark, NoSyncReason, Stm};
use armsnap_trace::flow::{Gap, QRange, Range};
use armsnap_trace::protocol::{Describe, Field};

/// Writes the lines of one source.
#[derive(Clone, Debug)]
pub struct JsonLines {
    /// `{"source":…,"buffer":…,"trace_id":N,"offset":`
    head: String,
    clock: Option<PerfClock>,
    counts: LineCounts,
    /// The lines.
    out: TextBuffer,
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl JsonLines {
    /// Creates the lines for the source and buffer with these names.
    pub fn new(source: &str, buffer: &str, id: TraceId) -> Self {
        let (source, buffer) = (quoted(source), quoted(buffer));
        Self {
            head: format!(
                r#"{{"source":{source},"buffer":{buffer},"trace_id":{},"offset":"#,
                id.0
            ),
            clock: None,
            counts: LineCounts::new(CountForm::Decimal),
            out: TextBuffer::default(),
        }
    }

    /// Adds the times of perf's clock to timestamps, in nanoseconds.
    pub const fn with_clock(mut self, clock: Option<PerfClock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts a line.
    #[inline]
    pub fn begin(&mut self, at: BufferOffset, kind: &str) {
        self.out.line(at);
        self.out.text(&self.head);
        self.out.decimal(at.0);
        self.out.text(r#","kind":""#);
        self.out.text(kind);
        self.out.byte(b'"');
    }

    /// Ends a line.
    #[inline]
    pub fn end(&mut self) {
        self.out.text("}\n");
    }

    /// Appends a comma, a name in quotes, and a colon: `,"name":`.
    #[inline]
    pub fn key(&mut self, name: &str) {
        self.out.text(",\"");
        self.out.text(name);
        self.out.text("\":");
    }

    /// A small count.
    #[inline]
    pub fn count(&mut self, name: &str, value: u64) {
        self.key(name);
        self.out.decimal(value);
    }

    /// An address or 64-bit value.
    #[inline]
    pub fn hex(&mut self, name: &str, value: u64) {
        self.key(name);
        self.out.byte(b'"');
        self.out.hex(value);
        self.out.byte(b'"');
    }

    /// A word that needs no escapes.
    #[inline]
    pub fn word(&mut self, name: &str, value: &str) {
        self.key(name);
        self.out.byte(b'"');
        self.out.text(value);
        self.out.byte(b'"');
    }

    /// Any text.
    pub fn string(&mut self, name: &str, value: &str) {
        self.key(name);
        self.out.text(&quoted(value));
    }

    /// Yes or no.
    #[inline]
    pub fn flag(&mut self, name: &str, value: bool) {
        self.key(name);
        self.out.text(if value { "true" } else { "false" });
    }

    fn set_flag(&mut self, name: &str, value: bool) {
        if value {
            self.flag(name, true);
        }
    }

    fn word_of_bytes(&mut self, shared: Option<u8>, bytes: &[u8]) {
        self.key("bytes");
        self.out.byte(b'"');
        self.out.hex_bytes(shared.as_slice());
        self.out.hex_bytes(bytes);
        self.out.byte(b'"');
    }

    fn begin_mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.begin(at, super::kind(mark));
        match *mark {
            Mark::NoSync(reason) => self.word("reason", reason.name()),
            Mark::TraceOn(reason) => self.word("reason", reason.name()),
            Mark::Context(context) => self.context(&context),
            Mark::ExceptionReturn | Mark::End => {}
            Mark::Cycles(count) => self.count("count", count.into()),
            Mark::Timestamp(value) => {
                self.hex("value", value);
                if let Some(clock) = self.clock {
                    self.count("perf_time", clock.nanoseconds(value));
                }
            }
            Mark::Event(number) => self.count("number", number.into()),
            Mark::Trigger => self.flag("trigger", true),
            Mark::Marker(value) => self.hex("value", value.into()),
            Mark::Transaction(state) => self.word("state", state.name()),
            Mark::Instrumentation { el, value } => {
                self.count("el", el.0.into());
                self.hex("value", value);
            }
            Mark::Data {
                address,
                value,
                bytes,
                write,
            } => {
                if let Some(address) = address {
                    self.hex("address", address.0);
                }
                if let Some(value) = value {
                    self.hex("value", value);
                    self.count("bytes", bytes.into());
                }
                if let Some(write) = write {
                    self.flag("write", write);
                }
            }
            Mark::Stm(ref stm) => self.stm(stm),
            Mark::Itm(itm) => self.itm(itm),
        }
    }

    fn begin_exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.begin(at, "exception");
        self.count("number", exception.number.into());
        self.word("name", exception.name);
        if let Some(address) = exception.return_address {
            self.hex("return_address", address.0);
        }
    }

    fn context(&mut self, context: &Context) {
        self.word("isa", context.isa.name());
        if let Some(el) = context.el {
            self.count("el", el.0.into());
        }
        if let Some(security) = context.security {
            self.word("security", security.name());
        }
        if let Some(is_64bit) = context.is_64bit {
            self.count("bits", if is_64bit { 64 } else { 32 });
        }
        if let Some(vmid) = context.vmid {
            self.hex("vmid", vmid.into());
        }
        if let Some(context_id) = context.context_id {
            self.hex("context_id", context_id.into());
        }
    }

    fn stm(&mut self, stm: &Stm) {
        if let Some(master) = stm.master {
            self.count("master", master.into());
        }
        if let Some(channel) = stm.channel {
            self.count("channel", channel.into());
        }
        self.count("bits", stm.bits.into());
        if stm.bits > 0 {
            self.hex("value", stm.value);
        }
        self.set_flag("marker", stm.marker);
        self.set_flag("trigger", stm.trigger);
        self.set_flag("frequency", stm.frequency);
        self.set_flag("master_error", stm.master_error);
        self.set_flag("global_error", stm.global_error);
        if let Some(timestamp) = stm.timestamp {
            self.hex("timestamp", timestamp);
        }
    }

    fn itm(&mut self, itm: Itm) {
        match itm {
            Itm::Stimulus { port, bytes, value } => {
                self.word("packet", "stimulus");
                self.payload(port, bytes, value);
            }
            Itm::Hardware { port, bytes, value } => {
                self.word("packet", "hardware");
                self.payload(port, bytes, value);
            }
            Itm::Overflow => self.word("packet", "overflow"),
            Itm::GlobalTimestamp(value) => {
                self.word("packet", "global_timestamp");
                self.hex("value", value);
            }
            Itm::LocalTimestamp {
                delta,
                relation,
                total,
            } => {
                self.word("packet", "local_timestamp");
                self.count("delta", delta.into());
                self.word("relation", relation.name());
                self.hex("total", total);
            }
        }
    }

    fn payload(&mut self, port: u8, bytes: u8, value: u32) {
        self.count("port", port.into());
        self.count("bytes", bytes.into());
        self.hex("value", value.into());
    }
}

impl BranchLines for JsonLines {
    fn branch_line(&mut self, at: BufferOffset, line: &Line, cycle: Option<u64>) {
        match line {
            Line::Branch(address) => {
                self.begin(at, "branch");
                self.hex("address", address.0);
            }
            Line::Exception(exception) => self.begin_exception(at, exception),
            Line::Mark(mark) => self.begin_mark(at, mark),
        }
        if let Some(cycle) = cycle {
            self.key("cycle");
            self.counts.write(&mut self.out, cycle);
        }
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

impl Lines for JsonLines {
    fn packet(&mut self, at: BufferOffset, packet: &impl Describe, bytes: &[u8]) {
        self.begin(at, "packet");
        self.word("packet", packet.name());
        self.word_of_bytes(packet.shared_byte(), bytes);
        packet.fields(&mut |name, field| match field {
            Field::Count(value) => self.count(name, value),
            Field::Hex(value) => self.hex(name, value),
            Field::Flag(value) => self.flag(name, value),
            Field::Name(value) => self.word(name, value),
            Field::Atoms(atoms) => {
                self.key(name);
                self.out.byte(b'"');
                super::atoms(&mut self.out, atoms);
                self.out.byte(b'"');
            }
        });
        self.end();
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.out.mark(at, mark);
        self.begin_mark(at, mark);
        self.end();
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.begin_exception(at, exception);
        self.end();
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.begin(at, "range");
        self.hex("start", range.start.0);
        self.hex("end", range.end.0);
        self.word("isa", range.isa.name());
        self.count("instructions", range.instructions.into());
        self.out.text(r#","last":{"kind":""#);
        self.out.text(range.last.kind.name());
        self.out.byte(b'"');
        self.flag("taken", range.last.taken);
        self.flag("link", range.last.link);
        self.flag("return", range.last.returns);
        self.flag("conditional", range.last.conditional);
        self.out.byte(b'}');
        if let Some(cycles) = cycles {
            self.count("cycles", cycles.into());
        }
        self.end();
    }

    fn instruction(&mut self, at: BufferOffset, instruction: &Instruction, cycles: Option<u32>) {
        self.begin(at, "instruction");
        self.hex("address", instruction.address.0);
        self.word("isa", instruction.isa.name());
        self.word_of_bytes(None, &instruction.bytes);
        self.string("text", &instruction.text);
        if let Some((name, offset)) = &instruction.function {
            self.string("function", name);
            self.count("offset_in_function", *offset);
        }
        if let Some(line) = &instruction.line {
            self.string("file", &line.file);
            self.count("line", line.line.into());
        }
        if let Some(cycles) = cycles {
            self.count("cycles", cycles.into());
        }
        self.end();
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.begin(at, "q_range");
        self.hex("start", range.start.0);
        self.hex("end", range.end.0);
        // Readers rely on this field, even if a Q element has no count.
        self.count("instructions", range.instructions.unwrap_or(0).into());
        self.end();
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        match gap {
            Gap::MemoryMissing(address) => {
                self.begin(at, "memory_missing");
                self.hex("address", address.0);
            }
            Gap::NotFollowed { .. }
            | Gap::ReturnStackEmpty
            | Gap::TargetNotTraced { .. }
            | Gap::NotReached { .. } => {
                self.begin(at, "no_sync");
                self.word("reason", NoSyncReason::BadImage.name());
            }
        }
        self.end();
    }

    fn offset_column(&self, _: usize) -> usize {
        self.head.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};

    fn line(write: impl FnOnce(&mut JsonLines)) -> serde_json::Value {
        let mut lines = JsonLines::new("a \"b\"", "ETB_0", TraceId(16));
        write(&mut lines);
        serde_json::from_slice(lines.out.bytes()).unwrap()
    }

    #[test]
    fn names_are_escaped_and_the_head_is_complete() {
        let got = line(|l| l.mark(BufferOffset(7), &Mark::End));
        let want = serde_json::json!({
            "source": "a \"b\"", "buffer": "ETB_0", "trace_id": 16, "offset": 7, "kind": "end"
        });
        assert_eq!(got, want);
    }

    #[test]
    fn unknown_values_are_left_out() {
        let context = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(2)),
            security: Some(Security::NonSecure),
            is_64bit: Some(true),
            vmid: None,
            context_id: Some(0x1234),
        };
        let got = line(|l| l.mark(BufferOffset(0), &Mark::Context(context)));
        assert_eq!(got["el"], 2);
        assert_eq!(got["security"], "non-secure");
        assert_eq!(got["bits"], 64);
        assert_eq!(got["context_id"], "0x1234");
        assert!(got.get("vmid").is_none());
    }

    #[test]
    fn a_q_range_without_a_count_has_0_instructions() {
        let range = QRange {
            start: Address(0x1000),
            end: Address(0x2000),
            isa: Isa::A64,
            instructions: None,
        };
        let got = line(|l| l.q_range(BufferOffset(0), &range));
        assert_eq!(got["kind"], "q_range");
        assert_eq!(got["instructions"], 0);
    }

    #[test]
    fn exceptions_include_their_return_address() {
        let exception = Exception {
            number: 10,
            name: "IRQ",
            return_address: Some(Address(0xffff_ffc0_0008_1000)),
        };
        let got = line(|l| l.exception(BufferOffset(0), &exception));
        assert_eq!(got["number"], 10);
        assert_eq!(got["name"], "IRQ");
        assert_eq!(got["return_address"], "0xffffffc000081000");
    }
}
