//! Contents of the trace without a code image: branch targets, events, exceptions, contexts and
//! time, each with the running cycle count.
//!
//! The columns are those of "High Throughput Hardware Accelerated CoreSight Trace Decoding", table
//! I: Type, Cycle, Value. The listing is complete for a trace with branch broadcasting; otherwise
//! it shows the branches whose targets are in the trace.

use super::text_buffer::TextBuffer;
use super::{BranchLines, Counts, Listed, RunningCounts};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
use armsnap_history::decode::{SinkState, SourceSinks, Stage, StageStates, Unsaved};
use armsnap_trace::element::{AtomPacket, AtomSink, Atoms, Element, ElementSink, Exception, Mark};

/// The maximum number of lines waiting for their cycle count. A trace unit sends the count right
/// after the element that it belongs to; only events and the like come in between.
const HELD: usize = 16;

/// A line of this listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A branch to this address.
    Branch(Address),
    /// An exception was taken.
    Exception(Exception),
    /// An event, a context, a timestamp or a marker.
    Mark(Mark),
}

impl Line {
    /// Returns the line of an element; `None` if it is not listed.
    #[inline]
    pub const fn of(element: &Element) -> Option<Self> {
        Some(match *element {
            Element::Address { address, .. } => Self::Branch(address),
            Element::Exception(exception) | Element::ExceptionHere(exception) => {
                Self::Exception(exception)
            }
            Element::Mark(
                mark @ (Mark::Context(_)
                | Mark::Event(_)
                | Mark::Trigger
                | Mark::Timestamp(_)
                | Mark::Marker(_)),
            ) => Self::Mark(mark),
            Element::Mark(_)
            | Element::WaypointAtoms(_)
            | Element::InstructionAtoms(_)
            | Element::TimedAtom { .. }
            | Element::TimedInstructions { .. }
            | Element::RunTo { .. }
            | Element::Q { .. }
            | Element::SourceAddress { .. }
            | Element::CancelInstruction => return None,
        })
    }

    /// The short name of its type.
    pub const fn short_name(&self) -> &'static str {
        match self {
            Self::Branch(_) => "Br",
            Self::Exception(_) => "Ex",
            Self::Mark(Mark::Context(_)) => "Ctx",
            Self::Mark(Mark::Timestamp(_)) => "Ts",
            Self::Mark(_) => "Evt",
        }
    }
}

/// Returns the cycles of atoms: those of the first one, and of each later one.
fn cycles_of(atoms: Atoms, first: u8, each: u8) -> u32 {
    u32::from(first) + u32::from(atoms.count.saturating_sub(1)) * u32::from(each)
}

/// A branch that waits for its count.
#[derive(Clone, Copy, Debug)]
struct Target {
    at: BufferOffset,
    address: Address,
    isa: Isa,
}

/// Lists elements as branches.
#[derive(Clone, Debug)]
pub struct Branches<L> {
    lines: L,
    /// The running count.
    cycle: u64,
    /// Whether the running count starts from the last reset, and is completed later.
    later: bool,
    /// Whether the trace counts cycles, so that lines wait for their count.
    counting: bool,
    /// The oldest line that waits, if it is a branch: a branch ends the waiting of all lines.
    branch: Option<Target>,
    /// The other lines that wait.
    held: Vec<(BufferOffset, Element)>,
    counts: Counts,
}

impl<L: BranchLines> Branches<L> {
    /// Lists to `lines`; `counting` if the trace unit was set to count cycles.
    pub fn new(lines: L, counting: bool) -> Self {
        Self {
            lines,
            cycle: 0,
            later: false,
            counting,
            branch: None,
            held: Vec::with_capacity(HELD),
            counts: Counts::default(),
        }
    }

    #[inline(always)]
    fn branch(&mut self, branch: Target) {
        self.counts.elements += 1;
        if L::SILENT {
            return;
        }
        if !self.counting {
            let line = Line::Branch(branch.address);
            self.lines.branch_line(branch.at, &line, None);
            return;
        }
        self.release();
        self.branch = Some(branch);
    }

    /// Handles an element other than a branch and cycles.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::TimedAtom { cycles, .. } => return self.count(cycles),
            Element::TimedInstructions { atoms, first, each } => {
                return self.count(cycles_of(atoms, first, each));
            }
            _ => {}
        }
        let Some(line) = Line::of(&element) else {
            return;
        };
        self.counts.elements += 1;
        if L::SILENT {
            return;
        }
        if !self.counting {
            self.lines.branch_line(at, &line, None);
            return;
        }
        if usize::from(self.branch.is_some()) + self.held.len() >= HELD {
            self.release();
        }
        self.held.push((at, element));
    }

    #[inline(always)]
    fn release(&mut self) {
        if let Some(branch) = self.branch.take() {
            let cycle = self.counting.then_some(self.cycle);
            let line = Line::Branch(branch.address);
            self.lines.branch_line(branch.at, &line, cycle);
        }
        if !self.held.is_empty() {
            self.release_others();
        }
    }

    #[inline(never)]
    fn release_others(&mut self) {
        let cycle = self.counting.then_some(self.cycle);
        for (at, element) in self.held.drain(..) {
            if let Some(line) = Line::of(&element) {
                self.lines.branch_line(at, &line, cycle);
            }
        }
    }

    #[inline(always)]
    fn count(&mut self, cycles: u32) {
        if L::SILENT {
            return;
        }
        self.counting = true;
        self.cycle += u64::from(cycles);
        self.release();
    }
}

impl<L> Branches<L> {
    /// The elements that wait for their count.
    fn held(&self) -> Vec<(BufferOffset, Element)> {
        let branch = self.branch.map(|Target { at, address, isa }| {
            let element = Element::Address { address, isa };
            (at, element)
        });
        branch
            .into_iter()
            .chain(self.held.iter().copied())
            .collect()
    }

    fn hold(&mut self, held: &[(BufferOffset, Element)]) {
        (self.branch, self.held) = match *held {
            [(at, Element::Address { address, isa }), ref others @ ..] => {
                (Some(Target { at, address, isa }), others.to_vec())
            }
            _ => (None, held.to_vec()),
        };
    }
}

impl<L: BranchLines> Listed for Branches<L> {
    fn text(&mut self) -> &mut TextBuffer {
        self.lines.out()
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn count_later(&mut self) {
        self.later = true;
        self.lines.count_later();
    }

    fn running_counts(&mut self) -> RunningCounts {
        if !self.later {
            return RunningCounts::default();
        }
        let mut counts = self.lines.take_counts();
        counts.cycles = self.cycle;
        counts
    }

    fn reset(&mut self) {
        self.counts = Counts::default();
        if self.later {
            self.cycle = 0;
        }
    }
}

impl<L: BranchLines> Stage for Branches<L> {
    /// A running count depends on everything before it, so if it is written at once, there is no
    /// state in which a part could start.
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        if L::SILENT {
            return Ok(());
        }
        if self.counting && !self.later {
            return Err(Unsaved);
        }
        to.sink = SinkState::Cycles {
            counting: self.counting,
            held: self.held(),
        };
        Ok(())
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        if L::SILENT {
            return Ok(());
        }
        let SinkState::Cycles { counting, held } = &from.sink else {
            return Err(Unsaved);
        };
        self.counting = *counting;
        self.cycle = 0;
        self.hold(held);
        Ok(())
    }
}

impl<'a, L: BranchLines + 'a> SourceSinks<dyn Listed + 'a> for Branches<L> {
    fn end(&mut self, _: BufferOffset) {
        self.release();
    }

    fn output(&mut self) -> &mut (dyn Listed + 'a) {
        self
    }
}

impl<L: BranchLines> ElementSink for Branches<L> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::WaypointAtoms(_) | Element::InstructionAtoms(_) => {}
            Element::Address { address, isa } => self.branch(Target { at, address, isa }),
            Element::Mark(Mark::Cycles(cycles)) => self.count(cycles),
            _ => self.other(at, element),
        }
    }
}

/// Atoms are not listed; their cycles count.
impl<L: BranchLines> AtomSink for Branches<L> {
    const LOCATES: bool = !L::SILENT;
    const IGNORES_WAYPOINT_ATOMS: bool = true;

    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        _: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        for (index, &byte) in bytes.iter().enumerate() {
            match atoms(byte) {
                Some(AtomPacket::Instructions(atoms, Some([first, each]))) => {
                    self.count(cycles_of(atoms, first, each));
                }
                Some(_) => {}
                None => return index,
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::TextLines;
    use super::*;
    use armsnap_arch::quantity::{Isa, TraceId};

    fn listed(counting: bool, elements: &[Element]) -> String {
        let mut branches = Branches::new(TextLines::new(TraceId(1), None), counting);
        for element in elements {
            branches.element(BufferOffset(0), *element);
        }
        SourceSinks::<dyn Listed>::end(&mut branches, BufferOffset(0));
        String::from_utf8(branches.text().take()).unwrap()
    }

    fn to(address: u64) -> Element {
        Element::Address {
            address: Address(address),
            isa: Isa::A64,
        }
    }

    /// Table I of the paper, without the names of its events.
    #[test]
    fn a_branch_has_the_count_that_follows_it() {
        let text = listed(
            true,
            &[
                to(0xff0040),
                Element::Mark(Mark::Cycles(4)),
                Element::Mark(Mark::Event(0)),
                Element::Mark(Mark::Cycles(12)),
                to(0xff0080),
                Element::Mark(Mark::Event(1)),
                Element::Mark(Mark::Cycles(0x45)),
                to(0xff0040),
            ],
        );
        assert_eq!(
            text,
            "Br    0x4           0xff0040\n\
             Evt   0x10          0\n\
             Br    0x55          0xff0080\n\
             Evt   0x55          1\n\
             Br    0x55          0xff0040\n"
        );
    }

    #[test]
    fn every_line_has_three_columns() {
        let exception = Exception {
            number: 14,
            name: "IRQ",
            return_address: Some(Address(0x8000)),
        };
        let context = armsnap_trace::element::Context {
            isa: Isa::A64,
            el: Some(armsnap_arch::quantity::ExceptionLevel(1)),
            is_64bit: Some(true),
            ..Default::default()
        };
        let marks = [
            Mark::Context(context),
            Mark::Timestamp(0x1234),
            Mark::Marker(5),
            Mark::Trigger,
        ];
        let mut elements = vec![Element::Exception(exception)];
        elements.extend(marks.map(Element::Mark));
        assert_eq!(
            listed(false, &elements),
            "Ex    -             IRQ,number_14,returns_to_0x8000\n\
             Ctx   -             A64_EL1,64_bits\n\
             Ts    -             0x1234\n\
             Evt   -             marker_0x5\n\
             Evt   -             trigger\n"
        );
    }

    #[test]
    fn at_most_16_lines_wait_for_a_count() {
        let mut elements = vec![to(0x40)];
        elements.extend([Element::Mark(Mark::Event(1)); HELD]);
        elements.push(Element::Mark(Mark::Cycles(4)));
        let text = listed(true, &elements);
        let cycles: Vec<&str> = text.lines().map(|line| line[6..10].trim()).collect();
        assert_eq!(cycles, [&["0x0"; HELD][..], &["0x4"]].concat());
        // What waits belongs to the state.
        let mut branches = Branches::new(TextLines::new(TraceId(1), None), true);
        for (count, element) in elements.iter().take(HELD).enumerate() {
            assert_eq!(branches.held().len(), count);
            branches.element(BufferOffset(count as u64), *element);
        }
        let held = branches.held();
        let mut other = Branches::new(TextLines::new(TraceId(1), None), true);
        other.hold(&held);
        assert_eq!((other.held(), held.len()), (held, HELD));
    }

    #[test]
    fn without_counts_there_is_no_cycle() {
        assert_eq!(listed(false, &[to(0x40)]), "Br    -             0x40\n");
    }
}
