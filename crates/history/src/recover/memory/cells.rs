//! Memory over time: cells of 8 bytes, each with the accesses that are known to have hit it.

use super::order::Order;
use crate::recover::bits::Bits;
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::graph::nodes::NONE;
use armsnap_arch::hash::NumberMap;
use std::ops::RangeInclusive;

/// What an access does to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Kind {
    /// The final contents.
    Final,
    Load,
    Store,
    /// It may have written: its condition is unknown.
    MayStore,
    /// Its condition did not hold.
    Nothing,
}

/// Whether an event is connected with the one before it in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Link {
    /// Nothing between them wrote the cell.
    Joined,
    /// Something between them may have.
    Blocked,
}

/// An access to a cell.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Event {
    /// Its number, by which events are ordered; 0 for the final contents.
    pub access: u32,
    pub cell: u32,
    /// The node of its data, if that is not a constant.
    pub node: u32,
    /// The barrier that it waits for: the accesses between them are known to have missed its cell.
    pub barrier: u32,
    /// The bytes of the cell that it covers.
    pub bytes: u8,
    /// Where it begins in the cell; negative if in the previous cell.
    pub shift: i8,
    pub kind: Kind,
    pub link: Link,
}

/// How an event is connected, and what it is: its barrier, kind and link.
pub(in crate::recover) type Connection = (u32, Kind, Link);

/// Eight bytes of memory.
#[derive(Debug)]
pub(in crate::recover) struct Cell {
    /// The address divided by 8.
    pub granule: u64,
    /// The final contents, where known.
    pub last: Bits,
    /// Whether the contents never change.
    pub constant: bool,
    /// Ordered by access.
    pub events: Order,
}

type Granules = NumberMap<u64, u32>;

/// All cells that accesses are known to have hit.
#[derive(Debug, Default)]
pub(in crate::recover) struct Cells {
    pub all: Vec<Cell>,
    pub events: Vec<Event>,
    granules: Granules,
}

/// The mask of bits of a mask of bytes.
pub(in crate::recover) const fn byte_bits(bytes: u8) -> u64 {
    // Moves each bit to the lowest bit of its own byte, then spreads it over the byte.
    let spread = (bytes as u64).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let low = (spread + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101;
    low.wrapping_mul(0xff)
}

impl Event {
    /// Bits of the data of an access as bits of the cell.
    pub fn to_cell(self, data: Bits) -> Bits {
        moved(data, self.shift).only(byte_bits(self.bytes))
    }

    /// Bits of the cell as bits of the data of an access.
    pub fn to_data(self, cell: Bits) -> Bits {
        let cell = cell.only(byte_bits(self.bytes));
        let by = 8 * u32::from(self.shift.unsigned_abs());
        if self.shift >= 0 {
            Bits::new(shr(cell.mask, by), shr(cell.value, by))
        } else {
            Bits::new(shl(cell.mask, by), shl(cell.value, by))
        }
    }
}

/// Bits of the data of an access as bits of a cell. The access begins at byte `shift` of the cell;
/// negative if in the previous cell.
pub(in crate::recover) const fn moved(data: Bits, shift: i8) -> Bits {
    let by = 8 * shift.unsigned_abs() as u32;
    if shift >= 0 {
        Bits::new(shl(data.mask, by), shl(data.value, by))
    } else {
        Bits::new(shr(data.mask, by), shr(data.value, by))
    }
}

const fn shl(word: u64, by: u32) -> u64 {
    if by < 64 { word << by } else { 0 }
}

const fn shr(word: u64, by: u32) -> u64 {
    if by < 64 { word >> by } else { 0 }
}

impl Cells {
    /// The cell of a granule, initialised from the final memory; `None` if there is no final
    /// memory: devices and memory that was released do not keep what is written.
    pub fn at(&mut self, granule: u64, memory: &dyn FinalMemory, is_final: bool) -> Option<u32> {
        if let Some(&cell) = self.granules.get(&granule) {
            return (cell != NONE).then_some(cell);
        }
        let address = granule << 3;
        let mut bytes = [0; 8];
        if memory.read(address, &mut bytes) < 8 {
            self.granules.insert(granule, NONE);
            return None;
        }
        let constant = memory.is_constant(address) && memory.is_constant(address + 7);
        let last = if constant || is_final {
            Bits::known(u64::from_le_bytes(bytes))
        } else {
            Bits::UNKNOWN
        };
        let cell = self.all.len() as u32;
        self.granules.insert(granule, cell);
        let event = self.events.len() as u32;
        self.events.push(Event {
            access: 0,
            cell,
            node: NONE,
            barrier: NONE,
            bytes: 0xff,
            shift: 0,
            kind: Kind::Final,
            link: Link::Blocked,
        });
        let mut order = Order::default();
        order.insert(0, 0, event);
        self.all.push(Cell {
            granule,
            last,
            constant,
            events: order,
        });
        Some(cell)
    }

    /// The cell of a granule, if an access hit it.
    pub fn find(&self, granule: u64) -> Option<u32> {
        let cell = self.granules.get(&granule).copied();
        cell.filter(|&cell| cell != NONE)
    }

    /// The granules in a range that accesses hit, each with its cell.
    pub fn within(&self, granules: RangeInclusive<u64>) -> Vec<(u64, u32)> {
        if granules.end() - granules.start() < self.granules.len() as u64 {
            let found = granules.map(|granule| (granule, self.find(granule)));
            found
                .filter_map(|(granule, cell)| Some((granule, cell?)))
                .collect()
        } else {
            let found = self
                .granules
                .iter()
                .map(|(&granule, &cell)| (granule, cell));
            found
                .filter(|(granule, cell)| granules.contains(granule) && *cell != NONE)
                .collect()
        }
    }

    /// Inserts an event in the order of its cell; returns its index there.
    pub fn insert(&mut self, event: Event) -> usize {
        let number = self.events.len() as u32;
        let order = &mut self.all[event.cell as usize].events;
        let at = order.place(event.access);
        order.insert(at, event.access, number);
        self.events.push(event);
        at
    }

    /// Forgets all events after the first `count`, except final contents.
    fn truncate(&mut self, count: usize) {
        let mut kept = Vec::new();
        for (number, event) in (count as u32..).zip(&self.events[count..]) {
            if event.kind == Kind::Final {
                // It was connected with events that are forgotten.
                let event = Event {
                    barrier: NONE,
                    link: Link::Blocked,
                    ..*event
                };
                kept.push((number, event));
            }
        }
        self.events.truncate(count);
        for cell in &mut self.all {
            let last = cell.events[0];
            cell.events.retain(|event| (event as usize) < count);
            if let Ok(found) = kept.binary_search_by_key(&last, |(number, _)| *number) {
                cell.events.insert(0, 0, self.events.len() as u32);
                self.events.push(kept[found].1);
            }
        }
    }

    /// The index of an event in its cell.
    pub fn place(&self, event: u32) -> usize {
        let Event { access, cell, .. } = self.events[event as usize];
        let order = &self.all[cell as usize].events;
        order.place(access)
    }

    /// How events are connected, and what they are.
    pub fn connections(&self) -> Vec<Connection> {
        let connection = |event: &Event| (event.barrier, event.kind, event.link);
        self.events.iter().map(connection).collect()
    }

    /// Returns to earlier events, connected as they were then. Final contents of other cells are
    /// kept.
    pub fn restore(&mut self, connections: &[Connection]) {
        self.truncate(connections.len());
        for (event, connection) in self.events.iter_mut().zip(connections) {
            (event.barrier, event.kind, event.link) = *connection;
        }
    }

    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.events.capacity() * (size_of::<Event>() + size_of::<(u32, u32)>())
            + self.all.capacity() * (size_of::<Cell>() + 2 * size_of::<(u64, u32)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_bits_agree() {
        for bytes in 0..=255_u8 {
            let bits = byte_bits(bytes);
            for byte in 0..8 {
                let wanted = if bytes >> byte & 1 == 1 { 0xff } else { 0 };
                assert_eq!(bits >> (8 * byte) & 0xff, wanted, "{bytes:#x} {byte}");
            }
        }
    }

    #[test]
    fn data_across_cells_is_moved_both_ways() {
        let event = |bytes, shift| Event {
            access: 1,
            cell: 0,
            node: NONE,
            barrier: NONE,
            bytes,
            shift,
            kind: Kind::Store,
            link: Link::Blocked,
        };
        let data = Bits::known(0x8877_6655_4433_2211);
        let first = event(0xe0, 5);
        let second = event(0x1f, -3);
        assert_eq!(first.to_cell(data).value, 0x3322_1100_0000_0000);
        assert_eq!(second.to_cell(data).value, 0x88_7766_5544);
        let back = first.to_data(first.to_cell(data));
        let both = back.join(second.to_data(second.to_cell(data))).unwrap();
        assert_eq!(both, data);
    }

    /// Memory that is zero everywhere.
    struct Zeros;

    impl FinalMemory for Zeros {
        fn read(&self, _: u64, out: &mut [u8]) -> usize {
            out.fill(0);
            out.len()
        }

        fn is_constant(&self, _: u64) -> bool {
            false
        }
    }

    #[test]
    fn cells_go_back_to_what_they_were() {
        let mut cells = Cells::default();
        let event = |access, cell, kind| Event {
            access,
            cell,
            node: NONE,
            barrier: NONE,
            bytes: 0xff,
            shift: 0,
            kind,
            link: Link::Blocked,
        };
        let first = cells.at(8, &Zeros, true).unwrap();
        cells.insert(event(5, first, Kind::MayStore));
        let before = cells.connections();
        // Found later: another cell, an access between, a condition, and connections.
        let second = cells.at(9, &Zeros, true).unwrap();
        cells.insert(event(3, first, Kind::Load));
        cells.insert(event(4, second, Kind::Store));
        cells.events[1].kind = Kind::Nothing;
        cells.events[1].barrier = 7;
        cells.events[0].link = Link::Joined;
        let last = cells.events.iter_mut().find(|e| e.cell == second).unwrap();
        (last.link, last.barrier) = (Link::Joined, 3);
        cells.restore(&before);
        assert_eq!(cells.connections()[..2], before);
        let order = |cell: u32| cells.all[cell as usize].events.from(0).collect::<Vec<_>>();
        assert_eq!(order(first), [0, 1]);
        // The final contents of a cell are kept.
        assert_eq!(order(second), [2]);
        let last = cells.events[2];
        assert_eq!((last.kind, last.link), (Kind::Final, Link::Blocked));
        assert_eq!(last.barrier, NONE);
        assert_eq!(cells.find(9), Some(second));
        assert_eq!(cells.place(1), 1);
    }
}
