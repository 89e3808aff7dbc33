//! Elements → events of the DWT, with their times.

use super::super::clock::{Clock, Tick};
use super::access::{Access, Accesses};
use super::{Action, Event, Happening, Sample};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::SourceSinks;
use armsnap_trace::element::{AtomSink, Element, ElementSink, Itm, Mark};

/// The most events that wait for their time.
const MOST_WAITING: usize = 4096;

/// Collects the events of a source.
#[derive(Debug)]
pub struct Dwt {
    clock: Clock,
    /// The last packet of hardware: if damaged trace follows, it may consist of parts of two.
    last: Option<(u8, u8, u32)>,
    accesses: Accesses,
    /// Events without a time yet: the next timestamp is theirs.
    waiting: Vec<Event>,
    events: Vec<Event>,
}

impl Dwt {
    /// Collects events whose timestamps `clock` adds up.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            last: None,
            accesses: Accesses::default(),
            waiting: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Takes the events since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn event(&mut self, what: Happening) {
        self.waiting.push(Event { time: None, what });
        if self.waiting.len() >= MOST_WAITING {
            self.events.append(&mut self.waiting);
        }
    }

    fn access(&mut self, complete: Option<Access>) {
        if let Some(access) = complete {
            self.event(Happening::Access(access));
        }
    }

    fn end_accesses(&mut self) {
        for access in self.accesses.end() {
            self.waiting.push(Event {
                time: None,
                what: Happening::Access(access),
            });
        }
    }

    fn hardware(&mut self, discriminator: u8, bytes: u8, value: u32) {
        let comparator = discriminator >> 1 & 3;
        let action = match value >> 12 & 3 {
            1 => Some(Action::Entered),
            2 => Some(Action::Exited),
            3 => Some(Action::Returned),
            _ => None,
        };
        let what = match (discriminator, bytes, value) {
            (0, 1, _) => Happening::Counters(value as u8),
            (1, 2, _) if let Some(action) = action => Happening::Exception {
                number: (value & 0x1ff) as u16,
                action,
            },
            (2, 4, pc) => Happening::Sample(Sample::Pc(pc)),
            (2, 1, 0) => Happening::Sample(Sample::Asleep),
            (2, 1, 0xff) => Happening::Sample(Sample::Prohibited),
            (8..=15, 4, pc) if discriminator & 1 == 0 => {
                let complete = self.accesses.pc(comparator, pc);
                return self.access(complete);
            }
            (8..=15, 2 | 4, address) if discriminator & 1 == 1 => {
                let complete = self.accesses.address(comparator, address, bytes);
                return self.access(complete);
            }
            // Armv8-M: the comparator matched, and nothing else is traced.
            (8..=15, 1, 1) if discriminator & 1 == 0 => Happening::Access(Access::of(comparator)),
            (16..=23, _, value) => {
                let write = discriminator & 1 == 1;
                Happening::Access(self.accesses.value(comparator, value, bytes, write))
            }
            _ => Happening::Other {
                discriminator,
                value,
            },
        };
        self.event(what);
    }

    fn packet(&mut self, packet: Option<(u8, u8, u32)>) {
        if let Some((port, bytes, value)) = packet {
            self.hardware(port, bytes, value);
        }
    }

    fn mark(&mut self, mark: &Mark) {
        let last = self.last.take();
        if !matches!(mark, Mark::NoSync(_)) {
            self.packet(last);
        }
        if let Mark::Itm(Itm::Hardware { port, bytes, value }) = *mark {
            self.last = Some((port, bytes, value));
            return;
        }
        match self.clock.mark(mark) {
            Tick::Now(time) => {
                self.end_accesses();
                for event in &mut self.waiting {
                    event.time = Some(time);
                }
                self.events.append(&mut self.waiting);
            }
            Tick::Lost => {
                // Their timestamp is lost.
                self.end_accesses();
                self.events.append(&mut self.waiting);
                self.event(Happening::Lost(matches!(mark, Mark::Itm(Itm::Overflow))));
            }
            Tick::None => {}
        }
    }
}

impl ElementSink for Dwt {
    fn element(&mut self, _: BufferOffset, element: Element) {
        if let Element::Mark(mark) = element {
            self.mark(&mark);
        }
    }
}

impl AtomSink for Dwt {
    const LOCATES: bool = false;
}

impl SourceSinks<Self> for Dwt {
    fn end(&mut self, _: BufferOffset) {
        let last = self.last.take();
        self.packet(last);
        self.end_accesses();
        self.events.append(&mut self.waiting);
    }

    fn output(&mut self) -> &mut Self {
        self
    }
}
