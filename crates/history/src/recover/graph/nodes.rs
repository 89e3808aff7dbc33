//! Nodes (values of locations over an interval of time) and the relations between them.

use crate::recover::bits::{Bits, Conflict};

/// No node, relation, access or event.
pub(in crate::recover) const NONE: u32 = u32::MAX;

/// Index of the result among the nodes of a relation; its operands follow.
pub(in crate::recover) const RESULT: usize = 0;

/// The base of the address, and the data of a store or the number of a system call, among the nodes
/// of accesses.
pub(in crate::recover) const BASE: usize = 1;
pub(in crate::recover) const DATA: usize = 2;
/// The predicate.
pub(in crate::recover) const PREDICATE: usize = 3;

/// An instance of an operation of an instruction: its result and operands. The node of a constant
/// or of an unused operand is [`NONE`].
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Relation {
    /// Index of the operation.
    pub op: u32,
    pub nodes: [u32; 4],
    /// By node: the next occurrence of that node, as `4 * relation + index`.
    next: [u32; 4],
}

/// All nodes and relations, numbered backward in time.
#[derive(Debug, Default)]
pub(in crate::recover) struct Graph {
    bits: Vec<Bits>,
    /// By node: its first occurrence in relations.
    first: Vec<u32>,
    pub relations: Vec<Relation>,
    /// Relations that may reveal more now.
    queue: Vec<u32>,
    queued: Vec<u64>,
    /// The nodes at which facts contradicted each other.
    pub conflicts: Vec<u32>,
}

impl Graph {
    pub fn nodes(&self) -> u32 {
        self.bits.len() as u32
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.bits.capacity() * size_of::<Bits>()
            + self.first.capacity() * size_of::<u32>()
            + self.relations.capacity() * size_of::<Relation>()
            + self.queue.capacity() * size_of::<u32>()
    }

    pub fn add_node(&mut self) -> u32 {
        self.bits.push(Bits::UNKNOWN);
        self.first.push(NONE);
        self.nodes() - 1
    }

    pub fn add_relation(&mut self, op: u32, nodes: [u32; 4]) -> u32 {
        let number = self.relations.len() as u32;
        let mut next = [NONE; 4];
        for (index, &node) in nodes.iter().enumerate() {
            if node != NONE {
                let first = &mut self.first[node as usize];
                next[index] = *first;
                *first = 4 * number + index as u32;
            }
        }
        self.relations.push(Relation { op, nodes, next });
        if self.queued.len() * 64 <= number as usize {
            self.queued.push(0);
        }
        self.enqueue(number);
        number
    }

    /// The relations that contain a node, with its index among their nodes, earliest first.
    pub fn places(&self, node: u32) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut at = self.first[node as usize];
        std::iter::from_fn(move || {
            let place = (at != NONE).then_some((at / 4, (at % 4) as usize))?;
            at = self.relations[place.0 as usize].next[place.1];
            Some(place)
        })
    }

    pub fn bits(&self, node: u32) -> Bits {
        self.bits.get(node as usize).copied().unwrap_or_default()
    }

    /// A number stored with a relation, in the slot of an unused node.
    pub fn tag(&self, relation: u32, place: usize) -> u32 {
        self.relations[relation as usize].next[place]
    }

    pub fn set_tag(&mut self, relation: u32, place: usize, tag: u32) {
        self.relations[relation as usize].next[place] = tag;
    }

    pub fn enqueue(&mut self, relation: u32) {
        let (word, bit) = (relation as usize / 64, 1 << (relation % 64));
        if self.queued[word] & bit == 0 {
            self.queued[word] |= bit;
            self.queue.push(relation);
        }
    }

    /// Whether a relation may reveal more.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    pub fn next(&mut self) -> Option<u32> {
        let relation = self.queue.pop()?;
        self.queued[relation as usize / 64] &= !(1 << (relation % 64));
        Some(relation)
    }

    /// Adds known bits to a node, and queues the relations that depend on it, except one.
    pub fn learn(&mut self, node: u32, bits: Bits, but: u32) {
        let old = self.bits[node as usize];
        if bits.mask & !old.mask == 0 && (bits.value ^ old.value) & bits.mask == 0 {
            return;
        }
        match old.join(bits) {
            Ok(new) => {
                self.bits[node as usize] = new;
                let mut at = self.first[node as usize];
                while at != NONE {
                    let relation = at / 4;
                    at = self.relations[relation as usize].next[(at % 4) as usize];
                    if relation != but {
                        self.enqueue(relation);
                    }
                }
            }
            Err(Conflict) => self.conflict(node),
        }
    }

    pub fn conflict(&mut self, node: u32) {
        self.conflicts.push(node);
    }

    /// The masks of all nodes.
    pub fn masks(&self) -> Vec<u64> {
        self.bits.iter().map(|bits| bits.mask).collect()
    }

    /// Forgets all bits except those of earlier masks. Nodes added since become unknown.
    pub fn restore(&mut self, masks: &[u64]) {
        for (index, bits) in self.bits.iter_mut().enumerate() {
            *bits = bits.only(masks.get(index).copied().unwrap_or(0));
        }
        self.queue.clear();
        self.queued.fill(0);
        self.conflicts.clear();
    }
}
