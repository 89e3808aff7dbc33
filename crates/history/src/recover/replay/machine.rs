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
    stores: Vec<Store>,
    /// The registers if they happened, and if not.
    both: Box<[Values; 2]>,
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
        let clears = template.clears_block.map(|base| self.values[base.index()]);
        if self.pending.is_some() {
            if clears.is_none() && !accesses(templates, template) {
                return Ok(self.run_both(templates, template, after, watch));
            }
            self.settle(watch);
        }
        let next = self.run(templates, template, watch)?;
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

    /// Returns where it continues, if that is known.
    fn run(
        &mut self,
        templates: &Templates,
        template: &Template,
        watch: &mut Watch,
    ) -> Result<Option<u64>, Stopped> {
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
        if !bus.maybe.is_empty() {
            let stores = std::mem::take(&mut bus.maybe);
            self.begin(templates, template, stores, watch);
        }
        let (values, temporaries) = (&self.values, &self.temporaries);
        Ok(template
            .control
            .leads_to(template.end(), values, temporaries))
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
        let status = status.filter(|status| self.values[status.index()].is_none());
        let mut both = Box::new([self.values; 2]);
        if let Some(status) = status {
            both[0][status.index()] = Some(0);
            both[1][status.index()] = Some(1);
        }
        self.pending = Some(Exclusive { stores, both });
        if status.is_none() {
            watch.undecided();
            self.settle(watch);
        }
    }

    /// Executes an instruction without accesses both for exclusive stores that happened and for those that did
    /// not, and learns from a branch which is the case.
    fn run_both(
        &mut self,
        templates: &Templates,
        template: &Template,
        after: Option<u64>,
        watch: &mut Watch,
    ) -> Option<u64> {
        let mut pending = self.pending.take()?;
        let mut none = Memory::default();
        let mut bus = Bus {
            memory: &mut none,
            pending: &mut None,
            watch: &mut Watch::default(),
            maybe: Vec::new(),
            narrow: templates.is_narrow(),
            astray: false,
        };
        let nexts = [0, 1].map(|which| {
            let (values, temporaries) = (&mut pending.both[which], &mut self.temporaries);
            let relations = operations(templates, template);
            execute_relations(relations, values, temporaries, &mut bus);
            template
                .control
                .leads_to(template.end(), values, temporaries)
        });
        let happened = match (nexts, after) {
            ([Some(yes), Some(no)], Some(after)) if yes != no && yes == after => true,
            ([Some(yes), Some(no)], Some(after)) if yes != no && no == after => false,
            _ => {
                let [yes, no] = &*pending.both;
                let both = yes.iter().zip(no);
                for (slot, (yes, no)) in self.values.iter_mut().zip(both) {
                    *slot = yes.filter(|_| yes == no);
                }
                self.pending = Some(pending);
                return nexts[0].filter(|_| nexts[0] == nexts[1]);
            }
        };
        self.values = pending.both[usize::from(!happened)];
        watch.decide(happened);
        for (address, size, value) in pending.stores {
            if happened {
                self.memory.store(address, size, value);
            }
        }
        after
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

/// Whether an instruction loads or stores.
fn accesses(templates: &Templates, template: &Template) -> bool {
    let all = templates.ops_of(template);
    all.iter().any(|op| op.access().is_some())
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
