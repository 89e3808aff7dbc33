//! What a DWT reports: exceptions, samples of the program counter, data accesses, counters.
//!
//! [`Dwt`] makes [`Event`]s of elements; [`Nesting`] makes executions of exception handlers of
//! these, and [`Summary`] adds everything up. Packets and their meanings are those of ARM DDI 0403E,
//! appendix D4.3, and ARM DDI 0553, section D4.

mod access;
mod collect;
mod comparators;
mod nesting;
mod spread;
mod summary;
mod text;

pub use access::Access;
pub use collect::Dwt;
pub use comparators::{COMPARATORS, addresses, variables};
pub use nesting::{Activation, Nesting};
pub use spread::Spread;
pub use summary::{Names, Summary};

use super::Time;

/// An event that the DWT reported, and its time, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time.
    pub time: Option<Time>,
    /// What happened.
    pub what: Happening,
}

/// What the DWT reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// An exception was entered, ended, or returned to.
    Exception {
        /// Its number; 0 stands for code outside exceptions.
        number: u16,
        /// What happened to it.
        action: Action,
    },
    /// A sample of the program counter.
    Sample(Sample),
    /// Counters wrapped: a bit for each of [`COUNTERS`].
    Counters(u8),
    /// A data access that a comparator matched.
    Access(Access),
    /// Packets were lost: the ITM says so (`true`), or the trace is damaged.
    Lost(bool),
    /// A packet of another kind.
    Other {
        /// Its discriminator.
        discriminator: u8,
        /// Its payload.
        value: u32,
    },
}

/// What happened to an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was entered.
    Entered,
    /// It ended.
    Exited,
    /// Execution returned to it.
    Returned,
}

/// A periodic sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The core was at this address.
    Pc(u32),
    /// The core was asleep.
    Asleep,
    /// The core may not be sampled in its security state.
    Prohibited,
}

/// The counters of the event counter packet, by bit.
pub const COUNTERS: [&str; 6] = ["cpi", "exc", "sleep", "lsu", "fold", "cyc"];

/// Returns the name of an exception, or of code outside exceptions.
pub fn exception_name(number: u16) -> String {
    match number {
        0 => "Thread".to_owned(),
        number => crate::report::psr::m_exception(number.into()).into_owned(),
    }
}
