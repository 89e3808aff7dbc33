//! A slow and simple flow that the fast one is compared with. It decodes each instruction each time
//! it is executed, and keeps addresses instead of blocks.

use super::super::lines::LineEnd;
use super::*;
use armsnap_arch::arch::branch::{Instruction, Kind, decode};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    address: u64,
    isa: Isa,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Nowhere,
    Await,
    At(Place),
}

pub(super) struct Twin<'a> {
    config: FlowConfig,
    code: &'a Levels,
    view: View,
    here: Where,
    stack: Vec<Place>,
    linking: Option<Place>,
    /// The output of the last instruction atom, held back.
    held: Vec<(BufferOffset, Out)>,
    held_from: Option<Place>,
    q: Option<Q>,
    /// The end of the instructions of the last atom.
    left: u64,
    /// The address up to which execution was followed, and whether memory is missing there.
    lost: Option<(u64, bool)>,
    pub out: Vec<(BufferOffset, Out)>,
}

/// A Q element whose end is not known yet.
struct Q {
    at: BufferOffset,
    from: Where,
    /// The address up to which execution was followed.
    start: Option<u64>,
    instructions: Option<u32>,
    view: View,
}

struct Walked {
    range: Range,
    last: Option<Instruction>,
    stop: Option<Gap>,
}

impl<'a> Twin<'a> {
    pub fn new(config: FlowConfig, code: &'a Levels) -> Self {
        Self {
            config,
            code,
            view: View(0),
            here: Where::Nowhere,
            stack: Vec::new(),
            linking: None,
            held: Vec::new(),
            held_from: None,
            q: None,
            left: 0,
            lost: None,
            out: Vec::new(),
        }
    }

    fn byte(&self, address: u64) -> Option<u8> {
        self.code
            .slice(self.view, Address(address))
            .first()
            .copied()
    }

    fn next(&self, place: Place) -> Result<Instruction, Gap> {
        let address = Address(place.address);
        let mut word = 0;
        let mut count = 0;
        while let Some(byte) = self.byte(place.address + count)
            && count < 4
        {
            word |= u32::from(byte) << (8 * count);
            count += 1;
        }
        let isa = place.isa;
        let instruction = decode(isa, address, word).ok_or(Gap::NotFollowed { address, isa })?;
        if count < u64::from(instruction.bytes) {
            return Err(Gap::MemoryMissing(address));
        }
        Ok(instruction)
    }

    fn waypoint(&self, kind: Kind) -> bool {
        let waypoints = self.config.waypoints;
        match kind {
            Kind::Other => false,
            Kind::Branch { .. } | Kind::Indirect | Kind::Isb | Kind::Transaction => true,
            Kind::Barrier => waypoints.barriers,
            Kind::Wait => waypoints.waits,
        }
    }

    /// Walks until `done` returns true for an instruction, its address, and the number of
    /// instructions including it.
    fn walk(
        &self,
        from: Place,
        taken: bool,
        mut done: impl FnMut(&Instruction, u64, u32) -> bool,
    ) -> Walked {
        let mut place = from;
        let mut instructions = 0;
        let mut conditional = 0;
        let mut last = None;
        let mut last_conditional = false;
        let mut stop = None;
        loop {
            let mut instruction = match self.next(place) {
                Ok(instruction) => instruction,
                Err(gap) => {
                    stop = Some(gap);
                    break;
                }
            };
            instruction.conditional |= conditional > 0;
            last_conditional = instruction.conditional;
            conditional = if conditional > 0 {
                conditional - 1
            } else {
                instruction.it_block
            };
            let address = place.address;
            place.address += u64::from(instruction.bytes);
            instructions += 1;
            last = Some(instruction);
            if done(&instruction, address, instructions) {
                break;
            }
        }
        let kind = last.map_or(Kind::Other, |last| last.kind);
        let range = Range {
            start: Address(from.address),
            end: Address(place.address),
            isa: from.isa,
            instructions,
            last: LastInstruction {
                kind: match kind {
                    Kind::Branch { .. } => InstructionKind::Branch,
                    Kind::Indirect => InstructionKind::Indirect,
                    Kind::Isb => InstructionKind::Isb,
                    Kind::Barrier if self.waypoint(kind) => InstructionKind::Barrier,
                    Kind::Wait if self.waypoint(kind) => InstructionKind::Wfi,
                    Kind::Transaction => InstructionKind::Transaction,
                    _ => InstructionKind::Other,
                },
                taken: taken && last.is_some(),
                link: last.is_some_and(|last| last.link),
                returns: last.is_some_and(|last| last.returns),
                conditional: last_conditional,
            },
        };
        Walked { range, last, stop }
    }

    fn emit(&mut self, at: BufferOffset, out: Out) {
        self.release();
        self.out.push((at, out));
    }

    fn release(&mut self) {
        self.out.append(&mut self.held);
        self.held_from = None;
    }

    fn settle(&mut self, at: BufferOffset) {
        if self.here != Where::Await {
            return;
        }
        if !self.config.return_stack {
            self.here = Where::Nowhere;
            self.lost = Some((self.left, false));
            return;
        }
        let popped = self.stack.pop();
        self.stack.extend(self.linking.take());
        self.here = match popped {
            Some(place) => Where::At(place),
            None => {
                self.emit(at, Out::Gap(Gap::ReturnStackEmpty));
                self.lost = Some((self.left, false));
                Where::Nowhere
            }
        };
    }

    /// Finds the current address for an atom, or emits a gap.
    fn settle_for_atom(&mut self, at: BufferOffset) {
        let awaits = self.here == Where::Await;
        self.settle(at);
        if awaits && !self.config.return_stack {
            let after = Address(self.left);
            self.emit(at, Out::Gap(Gap::TargetNotTraced { after }));
        }
    }

    fn stop(&mut self, at: BufferOffset, gap: Gap) {
        if let Gap::MemoryMissing(address) = gap {
            self.lost = Some((address.0, true));
        }
        self.emit(at, Out::Gap(gap));
    }

    fn push(&mut self, place: Place) {
        if self.stack.len() == 16 {
            self.stack.remove(0);
        }
        self.stack.push(place);
    }

    /// Continues after an instruction that ends at `after`.
    fn leave(&mut self, last: &Instruction, after: Place, taken: bool) {
        let link = last.link && self.config.return_stack;
        self.here = match last.kind {
            Kind::Branch { target, isa } if taken => {
                if link {
                    self.push(after);
                }
                Where::At(Place {
                    address: target.0,
                    isa,
                })
            }
            Kind::Indirect if taken => {
                self.linking = link.then_some(after);
                Where::Await
            }
            _ => Where::At(after),
        };
    }

    fn atom(&mut self, at: BufferOffset, single: bool, taken: bool, cycles: Option<u32>) {
        self.settle_for_atom(at);
        let Where::At(from) = self.here else {
            self.release();
            return;
        };
        let waypoints = self.config.waypoints;
        let walked = self.walk(from, taken, |instruction, _, _| {
            single || waypoints.contain(instruction.kind)
        });
        let range = walked.range;
        if let Some(gap) = walked.stop {
            if range.instructions > 0 {
                let last = LastInstruction {
                    taken: true,
                    ..range.last
                };
                self.emit(at, Out::Range(Range { last, ..range }, None));
            }
            self.stop(at, gap);
            self.here = Where::Nowhere;
            return;
        }
        self.release();
        if single {
            self.held.push((at, Out::Range(range, cycles)));
            self.held_from = Some(from);
        } else {
            self.out.push((at, Out::Range(range, cycles)));
        }
        let after = Place {
            address: range.end.0,
            isa: from.isa,
        };
        self.left = after.address;
        let last = walked.last.unwrap();
        if taken && last.exception_return && self.config.exception_returns {
            // Not `emit`: the instruction stays held back, but the mark does not.
            self.out.push((at, Out::Mark(Mark::ExceptionReturn)));
        }
        self.leave(&last, after, taken);
    }

    fn run_to(&mut self, at: BufferOffset, end: u64, line_end: LineEnd) {
        let Where::At(from) = self.here else {
            return;
        };
        self.here = Where::Nowhere;
        let exclusive = line_end == LineEnd::Before;
        let mut beyond = from.address > end;
        let mut reached = from.address == end && exclusive;
        let mut interrupted = None;
        let after = if beyond || reached {
            from
        } else {
            let walked = self.walk(from, true, |instruction, address, _| {
                let next = address + u64::from(instruction.bytes);
                let atom = self.waypoint(instruction.kind);
                if !exclusive {
                    reached = address == end;
                    let passes = line_end == LineEnd::WithTaken && instruction.conditional;
                    beyond = !reached && (next > end || atom && !passes);
                } else if atom {
                    beyond = true;
                } else {
                    reached = next == end;
                    beyond = next > end;
                    if next == end + 2 && instruction.bytes == 4 && from.isa == Isa::T32 {
                        interrupted = Some(address);
                    }
                }
                reached || beyond
            });
            if let Some(address) = interrupted {
                self.here = Where::At(from);
                return self.run_to(at, address, line_end);
            }
            if reached || walked.stop.is_some() && walked.range.instructions > 0 {
                self.emit(at, Out::Range(walked.range, None));
            }
            if let Some(gap) = walked.stop {
                return self.stop(at, gap);
            }
            let after = Place {
                address: walked.range.end.0,
                isa: from.isa,
            };
            if let Some(last) = walked.last
                && reached
                && !exclusive
                && self.waypoint(last.kind)
            {
                self.left = after.address;
                return self.leave(&last, after, true);
            }
            after
        };
        if reached {
            self.here = Where::At(after);
        } else {
            let from = Address(from.address);
            let to = Address(end);
            self.emit(at, Out::Gap(Gap::NotReached { from, to }));
        }
    }

    pub fn element(&mut self, at: BufferOffset, element: Element) {
        let keeps = matches!(
            element,
            Element::CancelInstruction | Element::Mark(Mark::ExceptionReturn)
        );
        if !keeps {
            self.release();
        }
        if !matches!(element, Element::Mark(_) | Element::Address { .. }) {
            self.q = None;
        }
        match element {
            Element::WaypointAtoms(atoms) => {
                for index in 0..atoms.count {
                    self.atom(at, false, atoms.bits >> index & 1 == 1, None);
                }
            }
            Element::InstructionAtoms(atoms) => {
                for index in 0..atoms.count {
                    self.atom(at, true, atoms.bits >> index & 1 == 1, None);
                }
            }
            Element::TimedAtom { taken, cycles } => self.atom(at, false, taken, Some(cycles)),
            Element::TimedInstructions { atoms, first, each } => {
                let mut cycles = vec![u32::from(each); atoms.count.into()];
                cycles[0] = first.into();
                for index in 0..atoms.count {
                    let own = cycles[usize::from(index)];
                    self.settle_for_atom(at);
                    if self.here == Where::Nowhere {
                        let rest = cycles[index.into()..].iter().sum();
                        self.emit(at, Out::Mark(Mark::Cycles(rest)));
                        break;
                    }
                    self.atom(at, true, atoms.is_e(index), Some(own));
                    if self.here == Where::Nowhere {
                        self.emit(at, Out::Mark(Mark::Cycles(own)));
                    }
                }
            }
            Element::Address { address, isa } => {
                self.lost = None;
                self.finish_q(address.0, isa);
                if self.here == Where::Await
                    && let Some(place) = self.linking.take()
                {
                    self.push(place);
                }
                self.here = Where::At(Place {
                    address: address.0,
                    isa,
                });
            }
            Element::RunTo { end, inclusive } => {
                self.settle(at);
                let line_end = if inclusive {
                    LineEnd::With
                } else {
                    LineEnd::Before
                };
                self.run_to(at, end.0, line_end);
            }
            Element::SourceAddress { address, isa } => {
                self.settle(at);
                let place = Place {
                    address: address.0,
                    isa,
                };
                let ahead = matches!(self.here, Where::At(known) if known.address <= address.0);
                if ahead {
                    self.run_to(at, address.0, LineEnd::WithTaken);
                }
                if !ahead || self.here == Where::Nowhere && self.next(place).is_ok() {
                    self.lost = None;
                    self.here = Where::At(place);
                    self.run_to(at, address.0, LineEnd::WithTaken);
                }
            }
            Element::Q { instructions } => {
                self.settle(at);
                let start = match self.here {
                    Where::At(place) => Some(place.address),
                    _ => self.lost.map(|lost| lost.0),
                };
                self.q = Some(Q {
                    at,
                    from: self.here,
                    start,
                    instructions,
                    view: self.view,
                });
                self.here = Where::Nowhere;
            }
            Element::Exception(exception) => {
                self.exception(at, exception, self.config.exceptions_here);
            }
            Element::ExceptionHere(exception) => self.exception(at, exception, true),
            Element::CancelInstruction => {
                if let Some(place) = self.held_from.take() {
                    self.held.clear();
                    self.linking = None;
                    self.here = Where::At(place);
                }
            }
            Element::Mark(mark) => self.mark(at, mark),
        }
    }

    fn exception(&mut self, at: BufferOffset, mut exception: Exception, here: bool) {
        self.settle(at);
        if let Where::At(place) = self.here {
            match exception.return_address {
                Some(end) if place.address < end.0 => self.run_to(at, end.0, LineEnd::Before),
                None if here => exception.return_address = Some(Address(place.address)),
                _ => {}
            }
        } else if let (Some((from, true)), Some(end)) = (self.lost, exception.return_address)
            && from < end.0
        {
            self.emit(at, Out::Gap(Gap::MemoryMissing(Address(from))));
        }
        self.here = Where::Nowhere;
        self.emit(at, Out::Exception(exception));
    }

    fn finish_q(&mut self, end: u64, isa: Isa) {
        let Some(Q {
            at,
            from,
            start: Some(start),
            instructions,
            view,
        }) = self.q.take()
        else {
            return;
        };
        let count = instructions.unwrap_or(0);
        let mut branched = false;
        let mut walked = 0;
        if let Where::At(from) = from
            && count > 0
        {
            let now = std::mem::replace(&mut self.view, view);
            let line = self.walk(from, true, |instruction, _, so_far| {
                branched = matches!(instruction.kind, Kind::Branch { .. } | Kind::Indirect);
                walked = so_far;
                branched || so_far == count
            });
            self.view = now;
            if walked == count && line.stop.is_none() && (branched || line.range.end.0 == end) {
                return self.emit(at, Out::Range(line.range, None));
            }
        }
        let range = QRange {
            start: Address(start),
            end: Address(end),
            isa,
            instructions,
        };
        self.emit(at, Out::Q(range));
    }

    fn mark(&mut self, at: BufferOffset, mark: Mark) {
        match &mark {
            Mark::Context(context) => {
                self.view = self.code.view(&ContextKey::from(context));
                if let Where::At(place) = &mut self.here
                    && let Some(wide) = context.is_64bit
                    && (place.isa == Isa::A64) != wide
                    && (context.isa == Isa::A64) == wide
                {
                    place.isa = context.isa;
                }
            }
            Mark::TraceOn(_) | Mark::NoSync(_) | Mark::End => {
                self.here = Where::Nowhere;
                self.stack.clear();
                self.linking = None;
                self.q = None;
                self.lost = None;
            }
            Mark::ExceptionReturn if self.held.len() == 1 => {
                return self.held.push((at, Out::Mark(mark)));
            }
            _ => {}
        }
        self.emit(at, Out::Mark(mark));
    }
}
