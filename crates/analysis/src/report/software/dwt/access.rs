//! Data accesses: a comparator sends up to two packets for each.

/// A data access that a comparator matched, with what the DWT traces of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The number of the comparator.
    pub comparator: u8,
    /// The address of the instruction.
    pub pc: Option<u32>,
    /// The traced low bits of the address of the data, and the number of bytes that they have.
    pub address: Option<(u32, u8)>,
    /// The value, and its size in bytes.
    pub value: Option<(u32, u8)>,
    /// Whether it was a write, which only a packet with the value says.
    pub write: Option<bool>,
}

/// Joins the packets of accesses, for each comparator.
#[derive(Clone, Debug, Default)]
pub(super) struct Accesses([Option<Access>; 4]);

impl Accesses {
    /// Adds the address of an instruction. Returns an access that is complete.
    pub(super) fn pc(&mut self, comparator: u8, pc: u32) -> Option<Access> {
        let open = &mut self.0[usize::from(comparator & 3)];
        match open {
            Some(open) if open.pc.is_none() => {
                open.pc = Some(pc);
                None
            }
            _ => open.replace(Access {
                pc: Some(pc),
                ..Access::of(comparator)
            }),
        }
    }

    /// Adds the address of data. Returns an access that is complete.
    pub(super) fn address(&mut self, comparator: u8, address: u32, bytes: u8) -> Option<Access> {
        let open = &mut self.0[usize::from(comparator & 3)];
        let address = Some((address, bytes));
        match open {
            Some(open) if open.address.is_none() => {
                open.address = address;
                None
            }
            _ => open.replace(Access {
                address,
                ..Access::of(comparator)
            }),
        }
    }

    /// Adds a value, which completes its access.
    pub(super) fn value(&mut self, comparator: u8, value: u32, bytes: u8, write: bool) -> Access {
        let open = self.0[usize::from(comparator & 3)].take();
        Access {
            value: Some((value, bytes)),
            write: Some(write),
            ..open.unwrap_or(Access::of(comparator))
        }
    }

    /// Returns the accesses that no packet completes any more.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Access> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }
}

impl Access {
    /// An access of which nothing is known.
    pub(super) const fn of(comparator: u8) -> Self {
        Self {
            comparator: comparator & 3,
            pc: None,
            address: None,
            value: None,
            write: None,
        }
    }
}
