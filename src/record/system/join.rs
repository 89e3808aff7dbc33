//! The emulator's log joined with what the cores executed: exceptions with the addresses at which
//! execution would have gone on.
//!
//! An AArch32 core's log does not tell that address. Where what was executed does not either (an
//! interrupt behind a branch), it is known once the exception has returned: until then the core's
//! events wait. Cortex-M stacks frames at different addresses, by which returns are matched with
//! exceptions when a scheduler switches tasks.

use super::log::{Logged, Reader, Taken};
use super::numbers::{Numbers, Relation};
use crate::encode::Place;
use crate::quantity::{Address, ExceptionLevel, Isa};
use crate::record::blocks::BlockTable;
use crate::record::flow::{Flow, Onward, Steps};
use crate::record::stream::{Event, bad};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// What a core did, in its order.
#[derive(Clone, Copy, Debug)]
enum Item {
    Event(Event),
    /// An exception, by its number in the order of all of the core.
    Exception(u64, Taken),
    Return(Option<u8>),
    TailChain(u16, Option<u64>),
    Level(u8),
}

/// An exception that did not return yet.
#[derive(Clone, Debug)]
struct InFlight {
    /// It, and those before it that would have gone on at the same place.
    orders: Vec<u64>,
    frame: Option<u32>,
}

/// The most exceptions in flight that are remembered.
const MOST_IN_FLIGHT: usize = 1024;

/// The most items that wait for an exception to return.
const MOST_WAITING: usize = 1 << 20;

#[derive(Debug, Default)]
struct Core {
    waiting: VecDeque<Item>,
    in_flight: Vec<InFlight>,
    exceptions: u64,
    /// These returned: the next block begins where they were taken.
    returned: Vec<u64>,
    /// Where exceptions that wait would have gone on; `None`: not known, for good.
    found: BTreeMap<u64, Option<Place>>,
    level: Option<u8>,
    /// An exception led here, and nothing was executed since.
    handler: Option<Place>,
    /// What comes now is not recorded: it only tells where exceptions return to.
    closed: bool,
}

/// Joins the two.
#[derive(Debug)]
pub struct Join {
    numbers: Numbers,
    is_64bit: bool,
    reader: Reader,
    logged: Vec<Logged>,
    cores: Vec<Core>,
    /// Which core has QEMU's index.
    indices: BTreeMap<u32, u32>,
    /// The core that executed something last.
    current: u32,
}

impl Join {
    /// Before anything was executed.
    pub fn new(numbers: Numbers, is_64bit: bool) -> Self {
        Self {
            numbers,
            is_64bit,
            reader: Reader::default(),
            logged: Vec::new(),
            cores: Vec::new(),
            indices: BTreeMap::new(),
            current: 0,
        }
    }

    /// A core begins, which has this index.
    pub fn begin(&mut self, core: u32, index: u32) {
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize_with(count, Core::default);
        self.indices.insert(index, core);
    }

    /// The recording ends here. What is executed from now on only tells where exceptions return
    /// to.
    pub fn close(&mut self) {
        for core in &mut self.cores {
            core.closed = true;
        }
    }

    /// Some core waits to learn where an exception returns to.
    pub fn waits(&self) -> bool {
        self.cores.iter().any(|core| !core.waiting.is_empty())
    }

    /// Text of the log.
    pub fn log(&mut self, text: &[u8]) {
        self.reader.text(text, &mut self.logged);
    }

    /// The core executes something: what was logged came before.
    pub fn executes(
        &mut self,
        core: Option<u32>,
        flow: &mut Flow,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        self.reader.end(&mut self.logged);
        let logged = std::mem::take(&mut self.logged);
        for entry in &logged {
            let (core, item) = match *entry {
                Logged::Exception(taken) => {
                    let core = self.indices.get(&taken.core).copied();
                    (core.unwrap_or(taken.core), Item::Exception(0, taken))
                }
                Logged::Return { level, frame } => {
                    self.returns(frame);
                    (self.current, Item::Return(level))
                }
                Logged::TailChain { number, handler } => {
                    (self.current, Item::TailChain(number, handler))
                }
                Logged::Level(level) => (self.current, Item::Level(level)),
                Logged::OtherState => {
                    return Err(bad(
                        "an AArch64 core executes AArch32 code, which is not recorded",
                    ));
                }
            };
            self.item(core, item, flow, blocks, steps)?;
        }
        self.logged = logged;
        self.logged.clear();
        self.current = core.unwrap_or(self.current);
        Ok(())
    }

    /// What a core did.
    #[inline]
    pub fn event(
        &mut self,
        core: u32,
        event: Event,
        flow: &mut Flow,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        match self.cores.get_mut(core as usize) {
            Some(state) if state.closed && state.returned.is_empty() => Ok(()),
            Some(state) if state.waiting.is_empty() && state.returned.is_empty() => {
                state.handler = None;
                flow.event(core, event, blocks, steps)
            }
            _ => self.item(core, Item::Event(event), flow, blocks, steps),
        }
    }

    /// The core stands here, and nothing more comes of it.
    pub fn end(
        &mut self,
        core: u32,
        next: Option<Place>,
        flow: &mut Flow,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        while let Some(state) = self.cores.get_mut(core as usize) {
            for order in std::mem::take(&mut state.returned) {
                state.found.insert(order, next);
            }
            if state.waiting.is_empty() {
                break;
            }
            state.give_up();
            self.drain(core, flow, blocks, steps)?;
        }
        flow.end(core, next, blocks, steps)
    }

    /// The core that runs returned from an exception.
    fn returns(&mut self, frame: Option<u32>) {
        let Some(state) = self.cores.get_mut(self.current as usize) else {
            return;
        };
        let index = match frame {
            // A scheduler makes the frame of a new task: no exception has stacked it.
            Some(_) => state.in_flight.iter().rposition(|e| e.frame == frame),
            None => state.in_flight.len().checked_sub(1),
        };
        if let Some(index) = index {
            let orders = state.in_flight.remove(index).orders;
            state.returned.extend(orders);
        }
    }

    fn item(
        &mut self,
        core: u32,
        mut item: Item,
        flow: &mut Flow,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        let Some(state) = self.cores.get_mut(core as usize) else {
            return Err(bad("the log names a core that did not begin"));
        };
        match &mut item {
            Item::Exception(order, taken) if taken.return_to.is_none() => {
                state.exceptions += 1;
                *order = state.exceptions;
                let mut orders = std::mem::take(&mut state.returned);
                orders.push(*order);
                state.in_flight.push(InFlight {
                    orders,
                    frame: taken.frame,
                });
                if state.in_flight.len() > MOST_IN_FLIGHT {
                    state.in_flight.remove(0);
                }
            }
            Item::Event(Event::Block(id)) => {
                let place = blocks.get(*id).map(|block| block.start);
                for order in std::mem::take(&mut state.returned) {
                    state.found.insert(order, place);
                }
            }
            _ => {}
        }
        if !state.closed {
            state.waiting.push_back(item);
        }
        if state.waiting.len() > MOST_WAITING {
            state.give_up();
        }
        self.drain(core, flow, blocks, steps)
    }

    /// Passes on what need not wait.
    fn drain(
        &mut self,
        core: u32,
        flow: &mut Flow,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        let (numbers, is_64bit) = (self.numbers, self.is_64bit);
        let Some(state) = self.cores.get_mut(core as usize) else {
            return Ok(());
        };
        while let Some(&item) = state.waiting.front() {
            match item {
                Item::Event(event) => {
                    state.handler = None;
                    flow.event(core, event, blocks, steps)?;
                }
                Item::Exception(order, taken) => {
                    let faulted = Numbers::relation(&taken) == Relation::Faulted;
                    let onward = flow.onward(core, faulted, blocks);
                    match state.return_to(order, &taken, onward, is_64bit) {
                        Found::Later => return Ok(()),
                        Found::Never => {
                            flow.end(core, None, blocks, steps)?;
                            steps.broken(core, None)?;
                        }
                        Found::At(place) => {
                            let number = numbers.of(&taken).into();
                            flow.exception(core, number, place, blocks, steps)?;
                        }
                    }
                    state.found.remove(&order);
                    state.handler = taken.handler.map(handler);
                    state.level(core, taken.level, steps);
                }
                Item::Return(level) => {
                    flow.end(core, None, blocks, steps)?;
                    if numbers.microcontroller {
                        steps.exception_return(core);
                    }
                    state.level(core, level, steps);
                }
                Item::TailChain(number, entry) => {
                    flow.end(core, None, blocks, steps)?;
                    steps.tail_chain(core, numbers.of_microcontroller(number).into())?;
                    state.handler = entry.map(handler);
                }
                Item::Level(level) => {
                    if state.level != Some(level) {
                        flow.end(core, None, blocks, steps)?;
                    }
                    state.level(core, Some(level), steps);
                }
            }
            state.waiting.pop_front();
        }
        Ok(())
    }
}

/// A handler of a Cortex-M.
fn handler(address: u64) -> Place {
    Place {
        address: Address(address & !1),
        isa: Isa::T32,
    }
}

/// Where an exception would have gone on.
enum Found {
    At(Place),
    Later,
    Never,
}

impl Core {
    fn return_to(&self, order: u64, taken: &Taken, onward: Onward, is_64bit: bool) -> Found {
        let logged = taken.return_to.map(Address);
        if let Some(place) = logged.and_then(|address| place(address, onward, is_64bit)) {
            return Found::At(place);
        }
        let fits = |place: Place| match onward {
            Onward::Either(one, other) => place == one || place == other,
            Onward::At(_) | Onward::Unknown => true,
        };
        match (onward, self.handler) {
            (Onward::At(place), _) | (Onward::Unknown, Some(place)) => Found::At(place),
            (Onward::Either(..) | Onward::Unknown, _) => match self.found.get(&order) {
                None => Found::Later,
                Some(Some(place)) if fits(*place) => Found::At(*place),
                Some(_) => Found::Never,
            },
        }
    }

    /// The exception that others wait for has no address.
    fn give_up(&mut self) {
        if let Some(Item::Exception(order, _)) = self.waiting.front() {
            self.found.entry(*order).or_insert(None);
        }
    }

    fn level(&mut self, core: u32, level: Option<u8>, steps: &mut impl Steps) {
        if let Some(level) = level.filter(|level| self.level != Some(*level)) {
            self.level = Some(level);
            steps.level(core, ExceptionLevel(level));
        }
    }
}

/// The place of an address that was logged: its instruction set is that of what was executed,
/// unless a branch led to it.
fn place(address: Address, onward: Onward, is_64bit: bool) -> Option<Place> {
    let at = |isa| Some(Place { address, isa });
    match onward {
        _ if is_64bit => at(Isa::A64),
        Onward::At(place) if place.address == address => Some(place),
        Onward::Either(place, _) | Onward::Either(_, place) if place.address == address => {
            Some(place)
        }
        Onward::At(place) | Onward::Either(_, place) => at(place.isa),
        Onward::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
