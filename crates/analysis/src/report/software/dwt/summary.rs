//! What the DWT reported, added up.

use super::super::Time;
use super::spread::Spread;
use super::{
    Access, Action, Activation, COMPARATORS, COUNTERS, Event, Happening, Nesting, Sample,
    exception_name,
};
use armsnap_snapshot::program::symbols::Symbols;
use serde::Serialize;
use std::collections::BTreeMap;

/// The most sampled addresses that are counted separately.
const MOST_ADDRESSES: usize = 1 << 20;
/// What stands for the other addresses.
const OTHERS: &str = "[others]";

/// How often each address was counted; `None` stands for those that are not told apart.
type Counts = BTreeMap<Option<u32>, u64>;

/// The names of code and data.
#[derive(Default)]
pub struct Names {
    /// The symbols of the programs.
    pub symbols: Symbols,
    /// The names of what the comparators match.
    pub variables: [Option<String>; COMPARATORS],
}

impl Names {
    /// Returns the name of the function at an address, or the address.
    pub fn function(&self, address: u32) -> String {
        // The first instruction of a function has an offset of 0, and bit 0 is no part of it.
        let function = self.symbols.function(u64::from(address & !1));
        function.map_or_else(|| format!("{address:#010x}"), |(name, _)| name.to_owned())
    }
}

/// An exception.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExceptionSummary {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// How often it was entered.
    pub entered: u64,
    /// How often it ended.
    pub exited: u64,
    /// How often execution returned to it.
    pub returned: u64,
    /// How often it interrupted another exception.
    pub nested: u64,
    /// How often another one interrupted it.
    pub interrupted: u64,
    /// The ticks from entry to end, where both are known.
    pub ticks: Spread,
    /// These without the handlers that interrupted it.
    pub own_ticks: Spread,
}

/// Samples of the program counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampleSummary {
    /// All samples.
    pub count: u64,
    /// Those at which the core was asleep.
    pub asleep: u64,
    /// Those that are prohibited in the core's security state.
    pub prohibited: u64,
    /// Those of each function, or of each address without one; most first.
    pub functions: Vec<(String, u64)>,
}

/// The accesses that a comparator matched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparatorSummary {
    /// Its number.
    pub comparator: u8,
    /// The variable, if known.
    pub variable: Option<String>,
    /// All accesses.
    pub accesses: u64,
    /// Reads whose value was traced.
    pub reads: u64,
    /// Writes whose value was traced.
    pub writes: u64,
    /// The first value.
    pub first: Option<u32>,
    /// The last value.
    pub last: Option<u32>,
    /// The least value.
    pub min: Option<u32>,
    /// The greatest value.
    pub max: Option<u32>,
    /// The functions with the instructions, where these were traced; most accesses first.
    pub functions: Vec<(String, u64)>,
}

/// A counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CounterSummary {
    /// Its name.
    pub counter: &'static str,
    /// How often it wrapped: every 256 counts; `cyc` every time its period ended.
    pub wraps: u64,
}

/// What a DWT reported, added up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The name of the trace source.
    pub source: String,
    /// The time of the first event, in ticks.
    pub first: Option<Time>,
    /// The time of the last event, in ticks.
    pub last: Option<Time>,
    /// How often the ITM lost packets.
    pub overflows: u64,
    /// How often bytes of the trace are missing or damaged.
    pub lost: u64,
    /// The exception packets.
    pub exception_packets: u64,
    /// The exceptions, by number.
    pub exceptions: Vec<ExceptionSummary>,
    /// The samples of the program counter.
    pub samples: SampleSummary,
    /// Data accesses, by comparator.
    pub data: Vec<ComparatorSummary>,
    /// Event counter packets.
    pub counter_packets: u64,
    /// The counters that wrapped.
    pub counters: Vec<CounterSummary>,
    /// Packets of other kinds.
    pub others: u64,
    /// What is added up so far.
    #[serde(skip)]
    adding: Adding,
}

/// What is added up before names are known.
#[derive(Clone, Debug, Default)]
struct Adding {
    nesting: Nesting,
    exceptions: BTreeMap<u16, ExceptionSummary>,
    samples: Counts,
    data: BTreeMap<u8, (ComparatorSummary, Counts)>,
    counters: [u64; 8],
}

impl Summary {
    /// Starts a summary.
    pub fn new(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ..Self::default()
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        if let Some(time) = event.time {
            self.first.get_or_insert(time);
            self.last = Some(time);
        }
        match event.what {
            Happening::Exception { number, action } => {
                self.exception_packets += 1;
                let adding = &mut self.adding;
                let all = &mut adding.exceptions;
                let exception = all.entry(number).or_default();
                match action {
                    Action::Entered => exception.entered += 1,
                    Action::Exited => exception.exited += 1,
                    Action::Returned => exception.returned += 1,
                }
                let ended = |activation| add_activation(all, &activation);
                adding.nesting.exception(number, action, event.time, ended);
            }
            Happening::Sample(sample) => {
                self.samples.count += 1;
                match sample {
                    Sample::Pc(pc) => count(&mut self.adding.samples, pc),
                    Sample::Asleep => self.samples.asleep += 1,
                    Sample::Prohibited => self.samples.prohibited += 1,
                }
            }
            Happening::Counters(bits) => {
                self.counter_packets += 1;
                for (bit, wraps) in self.adding.counters.iter_mut().enumerate() {
                    *wraps += u64::from(bits >> bit & 1);
                }
            }
            Happening::Access(access) => add_access(&mut self.adding.data, &access),
            Happening::Lost(true) => self.overflows += 1,
            Happening::Lost(false) => self.lost += 1,
            Happening::Other { .. } => self.others += 1,
        }
    }

    /// Ends the trace, and looks up names.
    pub fn finish(&mut self, names: &Names) {
        let mut adding = std::mem::take(&mut self.adding);
        let all = &mut adding.exceptions;
        adding
            .nesting
            .finish(|activation| add_activation(all, &activation));
        self.exceptions = adding
            .exceptions
            .into_iter()
            .map(|(number, exception)| ExceptionSummary {
                number,
                name: exception_name(number),
                ..exception
            })
            .collect();
        self.samples.functions = by_function(&adding.samples, names);
        self.data = adding
            .data
            .into_values()
            .map(|(comparator, pcs)| ComparatorSummary {
                variable: names.variables[usize::from(comparator.comparator & 3)].clone(),
                functions: by_function(&pcs, names),
                ..comparator
            })
            .collect();
        let counters = COUNTERS.into_iter().zip(adding.counters);
        let counters = counters.map(|(counter, wraps)| CounterSummary { counter, wraps });
        self.counters = counters.filter(|counter| counter.wraps > 0).collect();
    }
}

fn add_activation(all: &mut BTreeMap<u16, ExceptionSummary>, activation: &Activation) {
    let exception = all.entry(activation.number).or_default();
    exception.nested += u64::from(activation.depth > 1 && activation.entered.is_some());
    exception.interrupted += u64::from(activation.interrupted);
    if let Some(ticks) = activation.ticks {
        exception.ticks.add(ticks);
    }
    if let Some(own) = activation.own {
        exception.own_ticks.add(own);
    }
}

fn add_access(data: &mut BTreeMap<u8, (ComparatorSummary, Counts)>, access: &Access) {
    let (comparator, pcs) = data.entry(access.comparator).or_default();
    comparator.comparator = access.comparator;
    comparator.accesses += 1;
    match access.write {
        Some(true) => comparator.writes += 1,
        Some(false) => comparator.reads += 1,
        None => {}
    }
    if let Some((value, _)) = access.value {
        comparator.first.get_or_insert(value);
        comparator.last = Some(value);
        comparator.min = Some(comparator.min.map_or(value, |min| min.min(value)));
        comparator.max = Some(comparator.max.map_or(value, |max| max.max(value)));
    }
    if let Some(pc) = access.pc {
        count(pcs, pc);
    }
}

/// Counts an address; beyond the limit, all further addresses are counted together.
fn count(counts: &mut Counts, address: u32) {
    let address = Some(address);
    let known = counts.len() < MOST_ADDRESSES || counts.contains_key(&address);
    *counts.entry(address.filter(|_| known)).or_default() += 1;
}

fn by_function(counts: &Counts, names: &Names) -> Vec<(String, u64)> {
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for (address, count) in counts {
        let name = address.map_or_else(|| OTHERS.to_owned(), |address| names.function(address));
        *functions.entry(name).or_default() += count;
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    functions
}
