//! Collects what happens on one track while its trace is decoded.

use super::blocks::{Block, BlockStretches};
use super::clock::Clock;
use super::marks::{MarkKind, Marks};
use super::slices::{ENTRY_UNSEEN, EXCEPTION, EXIT_UNSEEN, Slice, Slices};
use crate::profile::{Call, CallKind, Ended, Functions, GapSeen, Listener, Moment};
use crate::report::history;
use armsnap_history::timeline::Gap;
use armsnap_snapshot::text::one_line;
use armsnap_trace::element::{Exception, Itm, Mark, NoSyncReason, Stm, TraceOnReason};
use armsnap_trace::flow::Range;
use std::collections::BTreeMap;

/// The capacity for all tracks together.
const SLICES: usize = 450_000;
const BLOCKS: usize = 1_000_000;
const READINGS: usize = 120_000;
const MARKS: usize = 24_000;

/// The input for a track's timeline.
#[derive(Debug)]
pub struct TrackListener {
    /// Whether the track follows a program: its positions count instructions, not messages.
    follows: bool,
    messages: u64,
    /// The first position.
    pub(super) first: u64,
    begun: bool,
    cycles_read: Option<u64>,
    pub(super) slices: Slices,
    pub(super) blocks: BlockStretches,
    pub(super) marks: Marks,
    pub(super) time: Clock,
    pub(super) cycles: Clock,
    /// By reason: the number of gaps, and the position of the first.
    pub(super) gaps: BTreeMap<&'static str, (u64, u64)>,
}

impl TrackListener {
    /// Listens to one of `tracks` tracks.
    pub fn new(tracks: usize, follows: bool) -> Self {
        let share = |room: usize| room / tracks.max(1);
        Self {
            follows,
            messages: 0,
            first: 0,
            begun: false,
            cycles_read: None,
            slices: Slices::new(share(SLICES)),
            blocks: BlockStretches::new(share(BLOCKS)),
            marks: Marks::new(share(MARKS)),
            time: Clock::new(share(READINGS)),
            cycles: Clock::new(share(READINGS)),
            gaps: BTreeMap::new(),
        }
    }

    /// The number of messages, on a track that does not follow a program.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    fn place(&self, moment: &Moment) -> u64 {
        match self.follows {
            true => moment.instructions,
            false => self.messages,
        }
    }

    #[inline]
    fn read_cycles(&mut self, moment: &Moment) {
        if moment.cycles != self.cycles_read
            && let Some(cycles) = moment.cycles
        {
            self.cycles_read = moment.cycles;
            self.cycles.read(moment.instructions, cycles);
        }
    }
}

impl Listener for TrackListener {
    const RUNS: bool = true;

    fn begin(&mut self, call: &Call, _: &Functions) {
        // Callers discovered later began before what has been read already.
        if call.kind != CallKind::Caller {
            self.read_cycles(&call.begin);
        }
        if !self.begun {
            self.begun = true;
            self.first = call.begin.instructions;
        }
    }

    fn end(&mut self, call: &Call, end: &Moment, how: Ended, _: &Functions) {
        self.read_cycles(end);
        if end.instructions <= call.begin.instructions {
            return;
        }
        let mut flags = 0;
        match call.kind {
            CallKind::Exception => flags |= EXCEPTION,
            CallKind::Unseen | CallKind::Caller | CallKind::Continued => flags |= ENTRY_UNSEEN,
            _ => {}
        }
        if matches!(how, Ended::Unseen | Ended::Switched | Ended::Open) {
            flags |= EXIT_UNSEEN;
        }
        let slice = Slice {
            start: call.begin.instructions,
            end: end.instructions,
            function: call.function.index() as u32,
            flags,
        };
        self.slices.add(call.depth, slice);
    }

    fn exception(&mut self, moment: &Moment, exception: &Exception) {
        let text = || history::exception(exception);
        self.marks
            .add(moment.instructions, MarkKind::Exception, text);
    }

    fn gap(&mut self, gap: &GapSeen) {
        let place = gap.from.instructions;
        let reason = reason(&gap.gap);
        self.gaps.entry(reason).or_insert((0, place)).0 += 1;
        if let Some(to) = &gap.to
            && to.instructions > place
        {
            self.blocks.skip(to.instructions - place);
        }
        self.marks
            .add(place, MarkKind::Gap, || history::gap(&gap.gap));
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let place = self.place(moment);
        if !self.follows {
            // Sources without a core have no separate callback for time.
            if let Some(time) = moment.time {
                self.time.read(place, time);
            }
            self.messages += 1;
        }
        let kind = match mark {
            Mark::Event(_) | Mark::Trigger | Mark::Marker(_) => MarkKind::Event,
            Mark::Transaction(_) => MarkKind::Transaction,
            Mark::Instrumentation { .. } | Mark::Stm(_) | Mark::Itm(_) => MarkKind::Message,
            _ => return,
        };
        self.marks.add(place, kind, || mark_text(mark));
    }

    fn time(&mut self, moment: &Moment) {
        if let (Some(time), true) = (moment.time, self.follows) {
            self.time.read(moment.instructions, time);
        }
    }

    #[inline]
    fn block(&mut self, instructions: u64, index: Option<usize>, line: impl FnOnce() -> Range) {
        let block = || {
            let line = line();
            Block {
                start: line.start.0,
                instructions: line.instructions,
            }
        };
        match index {
            Some(index) => self.blocks.add_numbered(instructions, index, block),
            None => self.blocks.add(instructions, block()),
        }
    }

    fn new_run(&mut self, number: usize, blocks: impl Iterator<Item = usize>) {
        self.blocks.learn_run(number, blocks);
    }

    #[inline]
    fn run(&mut self, instructions: u64, number: usize, blocks: usize) {
        self.blocks.add_run(instructions, number, blocks);
    }

    fn forget_runs(&mut self) {
        self.blocks.forget_runs();
    }
}

/// The reason for a gap, without its location, for a table.
fn reason(gap: &Gap) -> &'static str {
    use armsnap_trace::flow::Gap as Flow;
    match gap {
        Gap::Flow(Flow::MemoryMissing(_)) => "execution continued where no code is known",
        Gap::Flow(Flow::NotFollowed { .. }) => {
            "execution continued in an instruction set that is not supported"
        }
        Gap::Flow(Flow::ReturnStackEmpty) => {
            "a return without a traced call: trace is lost, or the code is not what ran"
        }
        Gap::Flow(Flow::TargetNotTraced { .. }) => "the target of a branch is not in the trace",
        Gap::Flow(_) => "the code does not lead to an address in the trace",
        Gap::NoSync(NoSyncReason::Start) => "the trace restarts",
        Gap::NoSync(NoSyncReason::Overflow) | Gap::TraceOff(TraceOnReason::Overflow) => {
            "trace was lost in an overflow"
        }
        Gap::NoSync(NoSyncReason::Discard) => "the trace unit discarded trace",
        Gap::NoSync(NoSyncReason::BadImage) => "the code contradicts the trace",
        Gap::NoSync(_) => "the trace is damaged",
        Gap::TraceOff(TraceOnReason::DebugRestart) => "the core was in debug state",
        Gap::TraceOff(_) => "tracing was off",
        Gap::UnknownPath(_) => "instructions on a path that was not traced",
        Gap::Buffer => "another trace buffer starts",
    }
}

fn mark_text(mark: &Mark) -> String {
    match mark {
        Mark::Event(number) => format!("event {number}"),
        Mark::Trigger => "trigger".to_owned(),
        Mark::Marker(value) => format!("timestamp marker {value:#x}"),
        Mark::Transaction(state) => format!("memory transaction: {}", state.name()),
        Mark::Instrumentation { el, value } => {
            format!("instrumentation at EL{}: {value:#x}", el.0)
        }
        Mark::Stm(stm) => stm_text(stm),
        Mark::Itm(itm) => itm_text(itm),
        _ => String::new(),
    }
}

fn stm_text(stm: &Stm) -> String {
    let part = |name: &str, value: Option<u16>| match value {
        Some(value) => format!("{name} {value}, "),
        None => String::new(),
    };
    let what = match stm {
        Stm {
            global_error: true, ..
        } => "error".to_owned(),
        Stm {
            master_error: true, ..
        } => "error of the master".to_owned(),
        Stm {
            frequency: true,
            value,
            ..
        } => format!("frequency {value} Hz"),
        Stm { trigger: true, .. } => format!("trigger {:#x}", stm.value),
        Stm { bits: 0, .. } => "flag".to_owned(),
        Stm { bits, value, .. } => format!("{value:#x} ({bits} bits)"),
    };
    let (master, channel) = (part("master", stm.master), part("channel", stm.channel));
    format!("STM {master}{channel}{what}")
}

fn itm_text(itm: &Itm) -> String {
    match *itm {
        Itm::Stimulus { port, bytes, value } => {
            let all = value.to_le_bytes();
            let text = all.get(..usize::from(bytes)).unwrap_or(&all);
            let printable = text
                .iter()
                .all(|byte| byte.is_ascii_graphic() || *byte == b' ');
            match printable {
                true => format!(
                    "ITM port {port}: {value:#x} {:?}",
                    one_line(&String::from_utf8_lossy(text))
                ),
                false => format!("ITM port {port}: {value:#x}"),
            }
        }
        Itm::Hardware { port, value, .. } => format!("DWT {port}: {value:#x}"),
        Itm::Overflow => "ITM overflow: packets were lost".to_owned(),
        _ => "ITM timestamp".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::BlockTable;
    use super::super::pack::Packer;
    use super::*;
    use armsnap_trace::flow::LastInstruction;

    #[test]
    fn blocks_after_an_unknown_path_are_in_their_place() {
        let mut listener = TrackListener::new(1, true);
        let line = || Range::a64(0x1000, 0x1010, LastInstruction::CALL);
        listener.block(0, None, line);
        let moment = |instructions| Moment {
            instructions,
            ..Moment::default()
        };
        listener.gap(&GapSeen {
            gap: Gap::Buffer,
            from: moment(4),
            to: Some(moment(9)),
            resumes_at: None,
        });
        listener.block(9, None, line);
        let table = BlockTable::of([&listener.blocks].into_iter());
        let mut wanted = Packer::default();
        // Instructions from the last block, number of blocks, their indices.
        for number in [0, 1, 0, 5, 1, 0] {
            wanted.number(number);
        }
        assert_eq!(listener.blocks.pack(&table), wanted.text());
    }

    #[test]
    fn messages_are_described() {
        let stm = Stm {
            master: Some(2),
            bits: 8,
            value: 0x41,
            ..Stm::default()
        };
        assert_eq!(stm_text(&stm), "STM master 2, 0x41 (8 bits)");
        let itm = |value| Itm::Stimulus {
            port: 1,
            bytes: 1,
            value,
        };
        assert_eq!(itm_text(&itm(0x41)), "ITM port 1: 0x41 \"A\"");
        assert_eq!(itm_text(&itm(0x1b)), "ITM port 1: 0x1b");
    }
}
