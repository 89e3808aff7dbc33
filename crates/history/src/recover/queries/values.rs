//! Values at a step, from the solved window.

use super::Solved;
use crate::recover::bits::{Bits, untagged};
use crate::recover::execution::templates::Templates;
use crate::recover::facts::final_state::{FinalMemory, Others};
use crate::recover::graph::build::{Builder, Sink, Through};
use crate::recover::graph::nodes::{DATA, NONE, RESULT};
use crate::recover::graph::walk::{FirstWalk, INTERVAL, Walk};
use crate::recover::memory::cells::{Event, Kind, Link, byte_bits};
use crate::recover::memory::regions::Class;
use crate::recover::solver::Solver;
use crate::recover::solver::inference::Inference;
use crate::recover::solver::refine::{Values, refine};
use crate::recover::status::{Known, Registers, Status};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::{Location, Operand, Operation};
use std::collections::HashMap;
use std::ops::Range;

/// The most intervals walked to find the value of a location that is not read.
const FARTHEST: u32 = 16;

/// Watches a walk for the nodes of locations.
struct Again {
    /// Whether the node of a location is wanted and not found yet.
    wanted: [bool; Location::KEPT],
    /// How many are wanted.
    left: usize,
    /// What the last step revealed of wanted locations.
    settled: Vec<(usize, ValueSource)>,
}

/// Where the value of a location comes from that is not read from a step on.
#[derive(Clone, Copy)]
enum ValueSource {
    Node(u32),
    /// An operation whose result is not read.
    Dead(u32),
    Lost,
}

impl Again {
    fn settle(&mut self, location: usize, how: ValueSource) {
        if let Some(wanted) = self.wanted.get_mut(location)
            && std::mem::take(wanted)
        {
            self.left -= 1;
            self.settled.push((location, how));
        }
    }
}

impl Sink for Again {
    fn found(&mut self, location: usize, node: u32) {
        self.settle(location, ValueSource::Node(node));
    }

    fn dead(&mut self, location: usize, op: u32) {
        self.settle(location, ValueSource::Dead(op));
    }

    fn lost(&mut self, location: usize, _: u32) {
        self.settle(location, ValueSource::Lost);
    }
}

/// What the last queries of registers found, for queries at nearby positions: stepping by single
/// instructions queries each of them.
#[derive(Debug, Default)]
pub(in crate::recover) struct Nearby {
    /// The walk to the step requested last.
    walk: Option<Walk>,
    /// By location that is not read at some steps: these steps, and its value there.
    unread: HashMap<usize, (Range<u32>, Option<Known<u64>>)>,
}

impl Solver<Inference> {
    /// The result of an operation that was left out, which belongs to the instruction at the step
    /// built last: computed forward from the values before it.
    fn evaluate(
        &self,
        through: &Through<'_>,
        builder: &Builder,
        step: u32,
        op: u32,
    ) -> Option<Known<u64>> {
        let template = through.steps.template(through.templates, step)?;
        if !(template.first..template.first + u32::from(template.count)).contains(&op) {
            // It belongs to the kernel.
            return None;
        }
        let mut values = vec![(Bits::UNKNOWN, Status::Proved); 256];
        for (location, &node) in builder.current().iter().enumerate() {
            if let Some(known) = self.known(node) {
                values[location] = (Bits::known(known.value), known.status);
            }
        }
        let operand = |values: &[(Bits, Status)], operand| match operand {
            Operand::Constant(value) => (Bits::known(value), Status::Proved),
            Operand::Location(location) => values[location.index()],
        };
        for number in template.first..=op {
            let what = through.templates.op(number);
            let [a, b, c] = what.operands.map(|o| operand(&values, o));
            let mut all = Values {
                d: Bits::UNKNOWN,
                a: a.0,
                b: b.0,
                c: c.0,
            };
            let loads = matches!(what.operation, Operation::Load { .. });
            if what.is_store() || loads || refine(what.operation, &mut all).is_err() {
                all.d = Bits::UNKNOWN;
            }
            let status = a.1.max(b.1).max(c.1);
            values[what.destination.index()] = (all.d, status);
        }
        let (bits, status) = values[through.templates.op(op).destination.index()];
        bits.whole().map(|value| Known { value, status })
    }

    /// What is known of a node, with its status.
    pub fn known(&self, node: u32) -> Option<Known<u64>> {
        let value = self.built.graph.bits(node).whole()?;
        let status = if self.proved(node) == !0 {
            Status::Proved
        } else {
            Status::Inferred
        };
        Some(Known { value, status })
    }
}

impl FirstWalk {
    /// The first interval, at or after one, in which a wanted location is settled.
    fn next_to_settle(&self, interval: u32, wanted: &[bool; Location::KEPT]) -> Option<u32> {
        let bits = wanted
            .iter()
            .rev()
            .fold(0, |bits: u128, &wanted| bits << 1 | u128::from(wanted));
        let mut intervals = (interval..).zip(&self.checkpoints[interval as usize..]);
        let (found, _) = intervals.find(|(_, checkpoint)| checkpoint.settled & bits != 0)?;
        Some(found)
    }
}

impl Solved<'_> {
    /// The registers before a step.
    pub fn registers(&mut self, step: u32) -> Registers {
        let mut out = Registers::unknown();
        let mut again = Again {
            wanted: [false; Location::KEPT],
            left: 0,
            settled: Vec::new(),
        };
        let (walks, nearby) = (self.walks, &mut *self.nearby);
        let before = nearby
            .walk
            .take()
            .filter(|walk| walk.next <= step + 1 && walk.next > step / INTERVAL * INTERVAL);
        let walk = before.or_else(|| walks.from(step / INTERVAL));
        let Some(mut walk) = walk.and_then(|walk| walks.until(walk, step, &mut again)) else {
            return out;
        };
        nearby.walk = Some(walk.clone());
        for (location, &node) in walk.builder.current().iter().enumerate() {
            if node != NONE {
                out.0[location] = self.solver.known(node);
                continue;
            }
            let unread = nearby.unread.get(&location);
            match unread.filter(|(steps, _)| steps.contains(&step)) {
                Some((_, value)) => out.0[location] = *value,
                None => {
                    again.wanted[location] = true;
                    again.left += 1;
                }
            }
        }
        // A location that is not read after this step was written before it, or is lost.
        let mut walked = 0;
        while again.left > 0 {
            if walk.next.is_multiple_of(INTERVAL) {
                walked += 1;
                let next = walks
                    .first
                    .next_to_settle(walk.next / INTERVAL, &again.wanted);
                let Some(start) = next
                    .filter(|_| walked < FARTHEST)
                    .and_then(|i| walks.from(i))
                else {
                    break;
                };
                if start.next != walk.next {
                    walk = start;
                }
            }
            let Some(there) = walks.on(&mut walk, &mut again) else {
                break;
            };
            for (location, how) in again.settled.drain(..) {
                let value = match how {
                    ValueSource::Node(node) => self.solver.known(node),
                    ValueSource::Dead(op) => {
                        let through = walks.through;
                        self.solver.evaluate(&through, &walk.builder, there, op)
                    }
                    ValueSource::Lost => None,
                };
                out.0[location] = value;
                nearby.unread.insert(location, (step..there, value));
            }
        }
        // From every step of this interval, the walk ends at the same step.
        let interval = step..(step / INTERVAL + 1).saturating_mul(INTERVAL);
        for (location, _) in again
            .wanted
            .iter()
            .enumerate()
            .filter(|(_, wanted)| **wanted)
        {
            nearby.unread.insert(location, (interval.clone(), None));
        }
        out
    }

    /// Memory before a step, byte by byte.
    pub fn memory(&mut self, step: u32, address: u64, out: &mut [Option<Known<u8>>]) {
        let (facts, other) = (self.facts, self.walks.first.other_space());
        if other.is_some_and(|latest| step >= latest) {
            // Not even read-only sections are known: another program may be there.
            return out.fill(None);
        }
        let access = self.access_before(step);
        let mut last = FinalBytes::of(&*facts.memory);
        // A word that no access is known to reach.
        let mut unreached: Option<(u64, Option<Status>)> = None;
        for (offset, slot) in (0_u64..).zip(out) {
            let address = untagged(address.wrapping_add(offset));
            let granule = address >> 3;
            if let Some(number) = self.solver.cells.find(granule) {
                *slot = self.cell_byte(number, (access, step), address);
                continue;
            }
            let Some(value) = last.at(address) else {
                *slot = None;
                continue;
            };
            let status = if facts.memory.is_constant(address) {
                Some(Status::Proved)
            } else if !self.ends {
                None
            } else if let Some((_, status)) = unreached.filter(|(of, _)| *of == granule) {
                status
            } else {
                let status = self.unwritten(granule, (access, step));
                unreached = Some((granule, status));
                status
            };
            *slot = status.map(|status| Known { value, status });
        }
    }

    /// A byte of a cell that accesses reach.
    fn cell_byte(
        &mut self,
        number: u32,
        (access, step): (u32, u32),
        address: u64,
    ) -> Option<Known<u8>> {
        let by = 8 * (address & 7);
        let solver = &*self.solver;
        let cell = &solver.cells.all[number as usize];
        if cell.constant {
            return Some(Known {
                value: (cell.last.value >> by) as u8,
                status: Status::Proved,
            });
        }
        let class = solver.class_of(cell.granule);
        let order = &cell.events;
        let older = order.place(access);
        let newer: Vec<u32> = order.back_from(older).take(MAX_EVENTS).collect();
        let older: Vec<u32> = order.from(older).take(MAX_EVENTS).collect();
        let joined = |event: u32| solver.cells.events[event as usize].link == Link::Joined;
        // The link that contains this point, and the links from it to each event.
        let here = newer.first().is_some_and(|&event| joined(event));
        let ways = |events: &[u32], links: &mut dyn Iterator<Item = u32>| -> Vec<(u32, bool)> {
            let mut clear = here;
            let mut way = |event: &u32| {
                let own = (*event, clear);
                clear &= links.next().is_some_and(joined);
                own
            };
            events.iter().map(&mut way).collect()
        };
        // A link goes to the next older event: that of the nearest newer event contains this point.
        let newer = ways(&newer, &mut newer.iter().skip(1).copied());
        let older = ways(&older, &mut older.iter().copied());
        let mut best: Option<Known<u8>> = None;
        for (events, after) in [(newer, true), (older, false)] {
            for (event, clear) in events {
                let event = self.solver.cells.events[event as usize];
                if byte_bits(event.bytes) >> by & 1 == 0 || event.kind == Kind::Nothing {
                    continue;
                }
                if event.kind == Kind::MayStore || event.kind == Kind::Store && after {
                    break;
                }
                let (from, to, earlier) = if after {
                    (event.access + 1, access, step)
                } else {
                    let step = self.solver.built.accesses[event.access as usize].step;
                    (access, event.access, step)
                };
                if !clear && !self.reaches((class, address >> 3, earlier), from, to) {
                    break;
                }
                let (bits, proved) = self.solver.event_bits(&event, self.templates());
                let mask = 0xff << by;
                if bits.mask & mask == mask {
                    let sure = proved & mask == mask
                        && self.reaches((Class::Anything, address >> 3, earlier), from, to);
                    let status = if sure {
                        Status::Proved
                    } else {
                        Status::Inferred
                    };
                    if best.is_none_or(|best| status < best.status) {
                        best = Some(Known {
                            value: (bits.value >> by) as u8,
                            status,
                        });
                    }
                }
                if event.kind == Kind::Store || best.is_some() {
                    break;
                }
            }
        }
        best
    }

    /// Whether the contents of a granule of a class are the same at two accesses. The earlier one
    /// is at or after a step.
    pub(in crate::recover) fn reaches(
        &mut self,
        (class, granule, step): (Class, u64, u32),
        from: u32,
        to: u32,
    ) -> bool {
        let others = self.facts.others != Others::None;
        let narrow = self.facts.architecture != Architecture::AArch64;
        !self.solver.is_shared((class, granule), step, others)
            && !self.solver.is_barred((class, granule), narrow, from..to)
    }

    /// With what status it is known that nothing wrote a granule, which no access is known to have
    /// reached.
    fn unwritten(&mut self, granule: u64, (access, step): (u32, u32)) -> Option<Status> {
        let class = self.solver.class_of(granule);
        if self.reaches((Class::Anything, granule, step), 1, access) {
            return Some(Status::Proved);
        }
        let reaches = self.reaches((class, granule, step), 1, access);
        reaches.then_some(Status::Inferred)
    }
}

/// The size of the pieces in which final memory is read.
const PAGE: usize = 4096;

/// The final memory, read a page at a time: each read may have to query the size of a file.
struct FinalBytes<'m> {
    memory: &'m dyn FinalMemory,
    start: u64,
    bytes: [u8; PAGE],
    known: usize,
}

impl<'m> FinalBytes<'m> {
    fn of(memory: &'m dyn FinalMemory) -> Self {
        Self {
            memory,
            start: 0,
            bytes: [0; PAGE],
            known: 0,
        }
    }

    /// The byte at an address; `None` if it is not known.
    fn at(&mut self, address: u64) -> Option<u8> {
        let known = &self.bytes[..self.known];
        let offset = usize::try_from(address.wrapping_sub(self.start)).ok();
        if let Some(byte) = offset.and_then(|offset| known.get(offset)) {
            return Some(*byte);
        }
        let page_end = PAGE - address as usize % PAGE;
        self.start = address;
        self.known = self.memory.read(address, &mut self.bytes[..page_end]);
        self.bytes[..self.known].first().copied()
    }
}

/// The most events of a cell that are examined on each side.
const MAX_EVENTS: usize = 64;

impl Solver<Inference> {
    /// The bits of an event's cell, and which of them are proved.
    pub fn event_bits(&self, event: &Event, templates: &Templates) -> (Bits, u64) {
        if event.kind == Kind::Final {
            return (self.cells.all[event.cell as usize].last, !0);
        }
        let relation = self.built.accesses[event.access as usize].relation;
        let relation = &self.built.graph.relations[relation as usize];
        let node = match event.kind {
            Kind::Load => relation.nodes[RESULT],
            Kind::Store => relation.nodes[DATA],
            _ => return (Bits::UNKNOWN, 0),
        };
        let (bits, proved) = match (node, templates.op(relation.op).operands[1]) {
            (NONE, Operand::Constant(value)) if event.kind == Kind::Store => {
                (Bits::known(value), !0)
            }
            (NONE, _) => (Bits::UNKNOWN, 0),
            (node, _) => (self.built.graph.bits(node), self.proved(node)),
        };
        let proved = if self.is_placed_by_inference(event.access) {
            0
        } else {
            event.to_cell(Bits::new(proved, 0)).mask
        };
        (event.to_cell(bits), proved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Knows two ranges, and counts how often it is read.
    struct Holed(AtomicU32);

    impl FinalMemory for Holed {
        fn read(&self, address: u64, out: &mut [u8]) -> usize {
            self.0.fetch_add(1, Ordering::Relaxed);
            let inside = [0x1ff8..0x2004, 0x2010..0x2018_u64];
            let range = inside.iter().find(|range| range.contains(&address));
            let known = range.map_or(0, |range| (range.end - address) as usize);
            let count = known.min(out.len());
            for (byte, at) in out[..count].iter_mut().zip(address..) {
                *byte = at as u8;
            }
            count
        }

        fn is_constant(&self, _: u64) -> bool {
            false
        }
    }

    #[test]
    fn final_bytes_are_read_by_page_and_around_holes() {
        let memory = Holed(AtomicU32::new(0));
        let mut last = FinalBytes::of(&memory);
        for at in 0x1ff0..0x2020_u64 {
            let known = (0x1ff8..0x2004).contains(&at) || (0x2010..0x2018).contains(&at);
            assert_eq!(last.at(at), known.then_some(at as u8), "{at:#x}");
        }
        // One for each range within a page, and one for each unknown byte.
        assert_eq!(memory.0.load(Ordering::Relaxed), 3 + 28);
    }
}
