//! Executes single instructions of the replayed program.

use super::Stopped;
use super::memory::Memory;
use super::watch::Watch;
use crate::recover::bits::untagged;
use crate::recover::execution::template::Template;
use crate::recover::execution::templates::Templates;
use armsnap_arch::semantics::{
    Control, Location, Machine, Operand, Operation, Relation, Temporaries, Values,
    execute_relations,
};

/// The largest block of memory that DC ZVA clears.
const LARGEST_BLOCK: u64 = 2048;

/// A store: address, size in bytes, value.
type Store = (u64, u8, Option<u64>);

/// Exclusive stores of an instruction of which it is not known yet whether they happened.
#[derive(Clone, Debug)]
pub struct Exclusive {
    /// The register that is 0 if they did, and 1 if not.
    status: Location,
    stores: Vec<Store>,
}

/// The memory of the program while an instruction is executed.
struct Bus<'m> {
    memory: &'m mut Memory,
    pending: &'m mut Option<Exclusive>,
    watch: &'m mut Watch,
    /// Stores that may not happen.
    maybe: Vec<Store>,
    narrow: bool,
    /// Whether there was a store to an unknown address.
    astray: bool,
}

impl Bus<'_> {
    fn address(&self, address: u64) -> u64 {
        match self.narrow {
            true => address & 0xffff_ffff,
            false => untagged(address),
        }
    }

    /// What is not decided by the next access never is.
    fn settle(&mut self) {
        self.watch.settle();
        for (address, size, _) in self.pending.take().into_iter().flat_map(|it| it.stores) {
            self.memory.store(address, size, None);
        }
    }
}

impl Machine for Bus<'_> {
    #[inline]
    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        if self.pending.is_some() {
            self.settle();
        }
        let address = self.address(address);
        self.watch.access(address, size, false);
        self.memory.load(address, size)
    }

    fn load_unknown(&mut self) {
        self.watch.loses_load = true;
    }

    #[inline]
    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        if self.pending.is_some() {
            self.settle();
        }
        match address {
            Some(address) => {
                let address = self.address(address);
                self.watch.access(address, size, true);
                self.memory.store(address, size, value);
            }
            None => self.astray = true,
        }
    }

    fn may_store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        if self.pending.is_some() {
            self.settle();
        }
        match address {
            Some(address) => {
                let address = self.address(address);
                self.watch.exclusive(address, size);
                self.maybe.push((address, size, value));
            }
            None => self.astray = true,
        }
    }

    fn may_store_anywhere(&mut self) {
        self.astray = true;
    }
}

/// Registers and memory before an instruction.
#[derive(Clone, Debug)]
pub struct Processor {
    /// The registers.
    pub values: Values,
    /// The memory.
    pub memory: Memory,
    pending: Option<Exclusive>,
    temporaries: Temporaries,
}

impl Processor {
    /// The state at the start.
    pub fn new(values: Values, memory: Memory) -> Self {
        Self {
            values,
            memory,
            pending: None,
            temporaries: Temporaries::default(),
        }
    }

    /// Executes an instruction that is not a system call. `after` is the address of the next one
    /// in the trace, if it is there. Returns the address at which execution continues, if it is known.
    pub fn execute(
        &mut self,
        templates: &Templates,
        template: &Template,
        after: Option<u64>,
        watch: &mut Watch,
    ) -> Result<Option<u64>, Stopped> {
        if template.opaque || template.stores_anywhere || template.changes_space {
            return Err(Stopped::NoModel);
        }
        if self.pending.is_some() && matches!(template.control, Control::Conditional { .. }) {
            self.decide(templates, template, after, watch);
        }
        let clears = template.clears_block.map(|base| self.values[base.index()]);
        let before = self.pending.as_ref().map(|pending| pending.status);
        let (next, begins) = self.run(templates, template, watch)?;
        // A written status register says nothing about the stores any more.
        if !begins && before.is_some_and(|status| writes(templates, template, status)) {
            self.settle(watch);
        }
        match clears {
            None => {}
            Some(None) => return Err(Stopped::UnknownAddress),
            Some(Some(base)) => {
                self.settle(watch);
                self.clear_block(untagged(base), watch);
            }
        }
        Ok(next)
    }

    /// Clears the block of memory that an address is in (DC ZVA).
    fn clear_block(&mut self, address: u64, watch: &mut Watch) {
        // BS, the logarithm of its size in words; DZP, which forbids the instruction.
        let block = self.values[Location::ZERO_BLOCK.index()].filter(|id| *id < 16);
        let size = block.map_or(LARGEST_BLOCK, |id| 4 << id).min(LARGEST_BLOCK);
        let start = address / size * size;
        let end = start.saturating_add(size);
        watch.range(start..end);
        match block {
            Some(_) => self
                .memory
                .write(start, &[0; LARGEST_BLOCK as usize][..size as usize]),
            None => self.memory.forget_unless_zero(start..end),
        }
    }

    /// Returns where it continues, if that is known, and whether stores are pending that it began.
    fn run(
        &mut self,
        templates: &Templates,
        template: &Template,
        watch: &mut Watch,
    ) -> Result<(Option<u64>, bool), Stopped> {
        let mut bus = Bus {
            memory: &mut self.memory,
            pending: &mut self.pending,
            watch,
            maybe: Vec::new(),
            narrow: templates.is_narrow(),
            astray: false,
        };
        let relations = operations(templates, template);
        execute_relations(relations, &mut self.values, &mut self.temporaries, &mut bus);
        if bus.astray {
            return Err(Stopped::UnknownAddress);
        }
        let begins = !bus.maybe.is_empty();
        if begins {
            let stores = std::mem::take(&mut bus.maybe);
            self.begin(templates, template, stores, watch);
        }
        let (values, temporaries) = (&self.values, &self.temporaries);
        let next = template
            .control
            .leads_to(template.end(), values, temporaries);
        Ok((next, begins))
    }

    /// Waits for a branch to show whether exclusive stores happened.
    fn begin(
        &mut self,
        templates: &Templates,
        template: &Template,
        stores: Vec<Store>,
        watch: &mut Watch,
    ) {
        let status = exclusive_status(templates, template);
        let exclusive = status.filter(|status| self.values[status.index()].is_none());
        self.pending = Some(Exclusive {
            status: exclusive.unwrap_or(Location::NOWHERE),
            stores,
        });
        if exclusive.is_none() {
            watch.undecided();
            self.settle(watch);
        }
    }

    /// Learns from a branch whether pending exclusive stores happened.
    fn decide(
        &mut self,
        templates: &Templates,
        template: &Template,
        after: Option<u64>,
        watch: &mut Watch,
    ) {
        let Some((pending, after)) = self.pending.as_ref().zip(after) else {
            return;
        };
        let status = pending.status.index();
        let mut leads_to = |value| {
            let mut none = Memory::default();
            let mut bus = Bus {
                memory: &mut none,
                pending: &mut None,
                watch: &mut Watch::default(),
                maybe: Vec::new(),
                narrow: templates.is_narrow(),
                astray: false,
            };
            let mut values = self.values;
            values[status] = Some(value);
            let relations = operations(templates, template);
            execute_relations(relations, &mut values, &mut self.temporaries, &mut bus);
            template
                .control
                .leads_to(template.end(), &values, &self.temporaries)
        };
        let happened = match [leads_to(0), leads_to(1)] {
            [Some(yes), Some(no)] if yes != no && yes == after => true,
            [Some(yes), Some(no)] if yes != no && no == after => false,
            _ => return,
        };
        self.values[status] = Some(u64::from(!happened));
        watch.decide(happened);
        for (address, size, value) in self.pending.take().into_iter().flat_map(|it| it.stores) {
            if happened {
                self.memory.store(address, size, value);
            }
        }
    }

    /// Gives up on pending exclusive stores.
    pub fn settle(&mut self, watch: &mut Watch) {
        watch.settle();
        for (address, size, _) in self.pending.take().into_iter().flat_map(|it| it.stores) {
            self.memory.store(address, size, None);
        }
    }

    /// The byte at an address, if it is known.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let address = untagged(address);
        let stores = self.pending.iter().flat_map(|pending| &pending.stores);
        let mut unsure =
            stores.map(|(start, size, _)| *start..start.saturating_add(u64::from(*size)));
        match unsure.any(|range| range.contains(&address)) {
            true => None,
            false => self.memory.byte(address),
        }
    }
}

fn operations<'t>(
    templates: &'t Templates,
    template: &Template,
) -> impl Iterator<Item = (Relation, u64)> + use<'t> {
    let first = template.first as usize;
    let ops = &templates.ops[first..first + usize::from(template.count)];
    ops.iter().map(|op| {
        let [a, b, c] = op.operands;
        let relation = Relation {
            operation: op.operation,
            destination: op.destination,
            a,
            b,
            c,
        };
        (relation, op.displacement)
    })
}

/// The register that is 0 if an unconditional exclusive store happens, and 1 if not: it is one bit of
/// an unknown value, and nothing else is written.
fn exclusive_status(templates: &Templates, template: &Template) -> Option<Location> {
    let all: Vec<Relation> = operations(templates, template)
        .map(|(relation, _)| relation)
        .collect();
    let mut kept = all.iter().filter(|relation| relation.destination.is_kept());
    let (written, None) = (*kept.next()?, kept.next()) else {
        return None;
    };
    let of = |operand| {
        let mut all = all.iter();
        all.find(|relation| Operand::Location(relation.destination) == operand)
    };
    let bit = match written.operation {
        Operation::Copy => *of(written.a)?,
        _ => written,
    };
    let is_bit = bit.operation == Operation::Extract { low: 0, count: 1 };
    let is_unknown = of(bit.a)?.operation == Operation::Unknown;
    (is_bit && is_unknown).then_some(written.destination)
}

/// Whether an instruction writes a location.
pub fn writes(templates: &Templates, template: &Template, location: Location) -> bool {
    let mut written = operations(templates, template).map(|(relation, _)| relation.destination);
    written.any(|written| written == location)
        || template.control == Control::SystemCall && location == Location::general(0)
}
