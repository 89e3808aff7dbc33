//! Joins the emulator's log with the flow of the cores: exceptions and their return addresses.
//!
//! The log of an AArch32 core has no return addresses. Where the flow does not determine one (an
//! interrupt after a branch), it is known once the handler returns; until then the core's events
//! are queued. On Cortex-M, returns are matched with exceptions by the address of the stacked
//! frame, because a scheduler may switch tasks.
//!
//! With TrustZone-M, the security state changes at SG, BXNS, BLXNS, the return of a non-secure function, exceptions,
//! and their returns.

use super::fetches::Fetches;
use super::log::{Logged, Reader, Taken};
use super::numbers::{Numbers, Relation};
use crate::record::blocks::{Block, BlockTable};
use crate::record::flow::{Flow, FlowSink, Onward};
use crate::record::stream::{Event, bad};
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap_trace::encode::CodeAddress;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// An item in a core's event sequence.
#[derive(Clone, Copy, Debug)]
enum Item {
    Event(Event),
    /// An exception, with its sequence number on the core.
    Exception(u64, Taken),
    Return(Option<u8>, Option<bool>),
    TailChain(u16, Option<u64>, Option<bool>),
    Level(u8),
    /// The address of an SG instruction that entered secure state.
    Gate(u64),
    FunctionReturn,
}

/// An exception that has not returned yet.
#[derive(Clone, Debug)]
struct InFlight {
    /// The sequence numbers of the exception, and of earlier ones with the same return address.
    orders: Vec<u64>,
    frame: Option<u32>,
}

/// The maximum number of exceptions in flight.
const MAX_IN_FLIGHT: usize = 1024;

/// The maximum number of items queued until an exception returns.
const MAX_WAITING: usize = 1 << 20;

#[derive(Debug, Default)]
struct CoreQueue {
    waiting: VecDeque<Item>,
    in_flight: Vec<InFlight>,
    exceptions: u64,
    /// Exceptions that returned: the next block starts at their return address.
    returned: Vec<u64>,
    /// The return addresses of queued exceptions; `None`: cannot be determined.
    found: BTreeMap<u64, Option<CodeAddress>>,
    level: Option<u8>,
    /// The security state of a core with TrustZone-M.
    security: Option<Security>,
    /// The last instruction may have left secure state.
    leaves_secure: bool,
    /// The handler entered by an exception, if nothing has been executed since.
    handler: Option<CodeAddress>,
    /// An AArch64 core executed AArch32 code last.
    aarch32: bool,
    /// The recording has ended: further execution only yields return addresses.
    closed: bool,
}

/// Joins log and flow.
#[derive(Debug)]
pub struct Join {
    numbers: Numbers,
    is_64bit: bool,
    /// The initial security state of cores with TrustZone-M.
    security: Option<Security>,
    fetches: Fetches,
    reader: Reader,
    logged: Vec<Logged>,
    cores: Vec<CoreQueue>,
    /// The core for each of QEMU's indices.
    indices: BTreeMap<u32, u32>,
    /// The core that executed something last.
    current: u32,
}

impl Join {
    /// Starts before the first instruction. `security` is the security state of cores with TrustZone-M.
    pub fn new(numbers: Numbers, is_64bit: bool, security: Option<Security>) -> Self {
        Self {
            numbers,
            is_64bit,
            security,
            fetches: Fetches::default(),
            reader: Reader::default(),
            logged: Vec::new(),
            cores: Vec::new(),
            indices: BTreeMap::new(),
            current: 0,
        }
    }

    /// Adds a core with QEMU's index.
    pub fn begin(&mut self, core: u32, index: u32) {
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize_with(count, || CoreQueue {
            security: self.security,
            ..CoreQueue::default()
        });
        self.indices.insert(index, core);
    }

    /// Ends the recording. Further execution only yields return addresses.
    pub fn close(&mut self) {
        for core in &mut self.cores {
            core.closed = true;
        }
    }

    /// Returns whether a core waits for the return address of an exception.
    pub fn waits(&self) -> bool {
        self.cores.iter().any(|core| !core.waiting.is_empty())
    }

    /// Adds text of the log.
    pub fn log(&mut self, text: &[u8]) {
        self.reader.text(text, &mut self.logged);
    }

    /// Processes the log up to this point, before the core executes its next block.
    pub fn executes(
        &mut self,
        core: Option<u32>,
        flow: &mut Flow,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        self.reader.end(&mut self.logged);
        let logged = std::mem::take(&mut self.logged);
        for entry in &logged {
            let (core, item) = match *entry {
                Logged::Exception(taken) => {
                    let core = self.indices.get(&taken.core).copied();
                    (core.unwrap_or(taken.core), Item::Exception(0, taken))
                }
                Logged::Return {
                    level,
                    frame,
                    secure,
                } => {
                    self.returns(frame);
                    (self.current, Item::Return(level, secure))
                }
                Logged::TailChain {
                    number,
                    handler,
                    secure,
                } => (self.current, Item::TailChain(number, handler, secure)),
                Logged::Level(level) => (self.current, Item::Level(level)),
                Logged::Gate { core, address } => {
                    let core = self.indices.get(&core).copied().unwrap_or(core);
                    (core, Item::Gate(address))
                }
                Logged::FunctionReturn => (self.current, Item::FunctionReturn),
                Logged::Fetch { address, secure } => {
                    if self.security.is_some() {
                        self.fetches.note(address, secure);
                    }
                    continue;
                }
            };
            self.item(core, item, flow, blocks, sink)?;
        }
        self.logged = logged;
        self.logged.clear();
        self.current = core.unwrap_or(self.current);
        Ok(())
    }

    /// Handles an event of a core.
    #[inline]
    pub fn event(
        &mut self,
        core: u32,
        event: Event,
        flow: &mut Flow,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        match self.cores.get_mut(core as usize) {
            Some(state) if state.closed && state.returned.is_empty() => Ok(()),
            Some(state)
                if state.waiting.is_empty()
                    && state.returned.is_empty()
                    && !state.leaves_secure =>
            {
                state.handler = None;
                state.executes(event, blocks);
                flow.event(core, event, blocks, sink)
            }
            _ => self.item(core, Item::Event(event), flow, blocks, sink),
        }
    }

    /// Ends the flow of a core before the instruction at `next`.
    pub fn end(
        &mut self,
        core: u32,
        next: Option<CodeAddress>,
        flow: &mut Flow,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        while let Some(state) = self.cores.get_mut(core as usize) {
            state.returned_to(next);
            if state.waiting.is_empty() {
                break;
            }
            state.give_up();
            self.drain(core, flow, blocks, sink)?;
        }
        flow.end(core, next, blocks, sink)?;
        if let Some(state) = self.cores.get_mut(core as usize)
            && std::mem::take(&mut state.leaves_secure)
            && let Some(next) = next
        {
            let secure = self.fetches.is_secure(next.address.0).unwrap_or(false);
            state.security(core, Some(security(secure)), sink);
        }
        Ok(())
    }

    /// Handles an exception return of the running core.
    fn returns(&mut self, frame: Option<u32>) {
        let Some(state) = self.cores.get_mut(self.current as usize) else {
            return;
        };
        let index = match frame {
            // The frame of a new task was made by a scheduler, not stacked by an exception.
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
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        let Some(state) = self.cores.get_mut(core as usize) else {
            return Err(bad("the log names a core that was not started"));
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
                if state.in_flight.len() > MAX_IN_FLIGHT {
                    state.in_flight.remove(0);
                }
            }
            Item::Event(Event::Block(id)) => {
                state.returned_to(blocks.get(*id).map(|block| block.start));
            }
            Item::Gate(address) => state.returned_to(Some(handler(*address))),
            _ => {}
        }
        if !state.closed {
            state.waiting.push_back(item);
        }
        if state.waiting.len() > MAX_WAITING {
            state.give_up();
        }
        self.drain(core, flow, blocks, sink)
    }

    /// Passes on the items whose return addresses are known.
    fn drain(
        &mut self,
        core: u32,
        flow: &mut Flow,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        let (numbers, is_64bit) = (self.numbers, self.is_64bit);
        let Some(state) = self.cores.get_mut(core as usize) else {
            return Ok(());
        };
        while let Some(&item) = state.waiting.front() {
            match item {
                Item::Event(event) => {
                    if let Event::Block(id) = event
                        && std::mem::take(&mut state.leaves_secure)
                        && let Some(block) = blocks.get(id)
                    {
                        let secure = self.fetches.is_secure(block.start.address.0);
                        let security = security(secure.unwrap_or(false));
                        if state.security != Some(security) {
                            flow.end(core, None, blocks, sink)?;
                        }
                        state.security(core, Some(security), sink);
                    }
                    state.handler = None;
                    state.executes(event, blocks);
                    flow.event(core, event, blocks, sink)?;
                }
                Item::Exception(order, taken) => {
                    let faulted = Numbers::relation(&taken) == Relation::Faulted;
                    let onward = flow.onward(core, faulted, blocks);
                    match state.return_to(order, &taken, onward, is_64bit) {
                        ReturnAddress::Later => return Ok(()),
                        ReturnAddress::Never => {
                            flow.end(core, None, blocks, sink)?;
                            sink.broken(core, None)?;
                        }
                        ReturnAddress::At(place) => {
                            let number = numbers.of(&taken).into();
                            flow.exception(core, number, place, blocks, sink)?;
                        }
                    }
                    state.found.remove(&order);
                    state.handler = taken.handler.map(handler);
                    state.leaves_secure = false;
                    state.level(core, taken.level, sink);
                    state.security(core, taken.secure.map(security), sink);
                }
                Item::Return(level, secure) => {
                    state.aarch32 = false;
                    state.leaves_secure = false;
                    flow.end(core, None, blocks, sink)?;
                    if numbers.microcontroller {
                        sink.exception_return(core);
                    }
                    state.level(core, level, sink);
                    state.security(core, secure.map(security), sink);
                }
                Item::TailChain(number, entry, secure) => {
                    state.leaves_secure = false;
                    flow.end(core, None, blocks, sink)?;
                    sink.tail_chain(core, numbers.of_microcontroller(number).into())?;
                    state.handler = entry.map(handler);
                    state.security(core, secure.map(security), sink);
                }
                Item::Gate(address) => {
                    state.handler = None;
                    state.leaves_secure = false;
                    flow.unreported(core, &Block::gate(address), blocks, sink)?;
                    state.security(core, Some(Security::Secure), sink);
                }
                Item::FunctionReturn => {
                    flow.end(core, None, blocks, sink)?;
                    state.leaves_secure = false;
                    state.security(core, Some(Security::Secure), sink);
                }
                Item::Level(level) => {
                    if state.level != Some(level) {
                        flow.end(core, None, blocks, sink)?;
                    }
                    state.level(core, Some(level), sink);
                }
            }
            state.waiting.pop_front();
        }
        Ok(())
    }
}

fn security(secure: bool) -> Security {
    match secure {
        true => Security::Secure,
        false => Security::NonSecure,
    }
}

/// Returns the address of a Cortex-M handler.
fn handler(address: u64) -> CodeAddress {
    CodeAddress {
        address: Address(address & !1),
        isa: Isa::T32,
    }
}

/// The return address of an exception.
enum ReturnAddress {
    At(CodeAddress),
    Later,
    Never,
}

impl CoreQueue {
    fn return_to(
        &self,
        order: u64,
        taken: &Taken,
        onward: Onward,
        is_64bit: bool,
    ) -> ReturnAddress {
        let logged = taken.return_to.map(Address);
        if let Some(place) = logged.and_then(|address| place(address, onward, is_64bit)) {
            // After an indirect branch of AArch32 code the instruction set is not known.
            let known = place.isa != Isa::A64 || !self.aarch32;
            return if known {
                ReturnAddress::At(place)
            } else {
                ReturnAddress::Never
            };
        }
        let fits = |place: CodeAddress| match onward {
            Onward::Either(one, other) => place == one || place == other,
            Onward::At(_) | Onward::Unknown => true,
        };
        match (onward, self.handler) {
            (Onward::At(place), _) | (Onward::Unknown, Some(place)) => ReturnAddress::At(place),
            (Onward::Either(..) | Onward::Unknown, _) => match self.found.get(&order) {
                None => ReturnAddress::Later,
                Some(Some(place)) if fits(*place) => ReturnAddress::At(*place),
                Some(_) => ReturnAddress::Never,
            },
        }
    }

    /// Notes the state in which a block is executed.
    #[inline]
    fn executes(&mut self, event: Event, blocks: &BlockTable) {
        if let Event::Block(id) = event
            && let Some(block) = blocks.get(id)
        {
            self.aarch32 = block.start.isa != Isa::A64;
            self.leaves_secure = block.leaves_secure && self.security.is_some();
        }
    }

    /// Marks the return address of the first queued exception as unknown.
    fn give_up(&mut self) {
        if let Some(Item::Exception(order, _)) = self.waiting.front() {
            self.found.entry(*order).or_insert(None);
        }
    }

    /// Notes where execution continues after exceptions that returned.
    fn returned_to(&mut self, place: Option<CodeAddress>) {
        for order in std::mem::take(&mut self.returned) {
            self.found.insert(order, place);
        }
    }

    /// Changes the security state of a core with TrustZone-M.
    fn security(&mut self, core: u32, security: Option<Security>, sink: &mut impl FlowSink) {
        if self.security.is_some()
            && let Some(security) = security.filter(|new| self.security != Some(*new))
        {
            self.security = Some(security);
            sink.security(core, security);
        }
    }

    fn level(&mut self, core: u32, level: Option<u8>, sink: &mut impl FlowSink) {
        if let Some(level) = level.filter(|level| self.level != Some(*level)) {
            self.level = Some(level);
            sink.level(core, ExceptionLevel(level));
        }
    }
}

/// Returns a logged address with its instruction set: that of the branch that leads to the address,
/// or that of the executed code.
fn place(address: Address, onward: Onward, is_64bit: bool) -> Option<CodeAddress> {
    let at = |isa| Some(CodeAddress { address, isa });
    match onward {
        Onward::Unknown if is_64bit => at(Isa::A64),
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
