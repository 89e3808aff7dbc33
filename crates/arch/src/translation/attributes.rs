//! The attributes in descriptors, for the user: permissions and memory type.
//!
//! DDI 0487, D8.4 (permissions) and D8.5 (memory types); DDI 0406, B3.7 and B3.8.

use super::{bit, field};
use std::fmt;

/// The restrictions that the tables above an entry impose (D8.4.1: APTable, XNTable, PXNTable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableAttributes {
    read_only: bool,
    privileged: bool,
    never_executed: bool,
    never_executed_privileged: bool,
}

impl TableAttributes {
    /// Adds the restrictions of a table descriptor.
    pub(super) fn add(&mut self, descriptor: u64) {
        self.read_only |= bit(descriptor, 62);
        self.privileged |= bit(descriptor, 61);
        self.never_executed |= bit(descriptor, 60);
        self.never_executed_privileged |= bit(descriptor, 59);
    }
}

/// The permissions of privileged or unprivileged accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
    /// Executes.
    pub execute: bool,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |set, mark| if set { mark } else { '-' };
        let (read, write) = (mark(self.read, 'r'), mark(self.write, 'w'));
        write!(f, "{read}{write}{}", mark(self.execute, 'x'))
    }
}

/// The permissions and the memory type of a block or page, according to its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The permissions of EL1, or of the only exception level of the regime.
    pub privileged: Access,
    /// The permissions of EL0, in a regime that includes it.
    pub user: Option<Access>,
    /// The memory type, if the registers determine it.
    pub memory: Option<&'static str>,
    /// Whether the block or page may share a TLB entry with its neighbours (the contiguous bit).
    pub contiguous: bool,
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.privileged)?;
        if let Some(user) = self.user {
            write!(f, " user {user}")?;
        }
        if let Some(memory) = self.memory {
            write!(f, " {memory}")?;
        }
        if self.contiguous {
            f.write_str(" contiguous")?;
        }
        Ok(())
    }
}

/// Returns the attributes of a 64-bit descriptor of stage 1; `user` is whether the regime includes
/// EL0, `aarch32` whether it is an AArch32 regime.
pub(super) fn of_long(
    descriptor: u64,
    tables: TableAttributes,
    user: bool,
    aarch32: bool,
    mair: Option<u64>,
) -> Attributes {
    let write = !bit(descriptor, 7) && !tables.read_only;
    let memory = mair.map(|mair| memory_type(field(mair, 8 * field(descriptor, 2, 3) as u32, 8)));
    let contiguous = bit(descriptor, 52);
    let never_executed = bit(descriptor, 54) || tables.never_executed;
    if !user {
        let privileged = Access {
            read: true,
            write,
            execute: !never_executed,
        };
        return Attributes {
            privileged,
            user: None,
            memory,
            contiguous,
        };
    }
    let reaches = bit(descriptor, 6) && !tables.privileged;
    // In AArch64, memory that EL0 can write is never executable at EL1; in AArch32, XN applies to
    // PL1 too (DDI 0406, B3.7.2).
    let never_privileged = bit(descriptor, 53)
        || tables.never_executed_privileged
        || if aarch32 {
            never_executed
        } else {
            reaches && write
        };
    let privileged = Access {
        read: true,
        write,
        execute: !never_privileged,
    };
    let user = Access {
        read: reaches,
        write: reaches && write,
        execute: !never_executed,
    };
    Attributes {
        privileged,
        user: Some(user),
        memory,
        contiguous,
    }
}

/// Returns the attributes of a 32-bit descriptor. Domains are not considered.
pub(super) fn of_short(descriptor: u32, shift: u32) -> Attributes {
    let value = u64::from(descriptor);
    // AP[2], AP[1:0], XN (B3.5.1), whose positions depend on the kind of descriptor.
    let (ap2, ap, xn) = match shift {
        20.. => (bit(value, 15), field(value, 10, 2), bit(value, 4)),
        16 => (bit(value, 9), field(value, 4, 2), bit(value, 15)),
        _ => (bit(value, 9), field(value, 4, 2), bit(value, 0)),
    };
    let read = ap != 0;
    let write = read && !ap2;
    let user = ap >= 2;
    Attributes {
        privileged: Access {
            read,
            write,
            execute: read && !xn && !(shift >= 20 && bit(value, 0)),
        },
        user: Some(Access {
            read: user,
            write: ap == 3 && !ap2,
            execute: user && !xn,
        }),
        memory: None,
        contiguous: false,
    }
}

/// The memory type for an attribute in MAIR_ELx (D19.2.97).
fn memory_type(attribute: u64) -> &'static str {
    match attribute {
        0x00 => "device-nGnRnE",
        0x04 => "device-nGnRE",
        0x08 => "device-nGRE",
        0x0c => "device-GRE",
        0x44 => "non-cacheable",
        0x01..0x10 => "device",
        _ => "normal",
    }
}
