//! What the steps of execution were built into: nodes, relations and accesses.

use super::bounds::Bounds;
use super::kept_frames::Handled;
use crate::recover::bits::{Bits, low, untagged};
use crate::recover::execution::recorded;
use crate::recover::execution::template::Template;
use crate::recover::execution::templates::Templates;
use crate::recover::graph::build::Sink;
use crate::recover::graph::nodes::{BASE, Graph, NONE, RESULT};
use crate::recover::memory::access::{Access, AccessKind, Place, free_place};
use armsnap_trace::data_addresses::Accessed;
use std::ops::Range;

/// What was built so far.
#[derive(Debug, Default)]
pub(in crate::recover) struct Built {
    pub graph: Graph,
    /// The first stands for the final contents.
    pub accesses: Vec<Access>,
    pub bounds: Bounds,
    /// Signals whose handlers returned, and that were not examined yet, towards the past.
    pub handled: Vec<Handled>,
    /// Nodes of the stack pointer, each with the next access after the instruction that left it.
    pub stack_pointers: Vec<(u32, u32)>,
    /// Whether the stack pointer is set in other ways than to allocate and free in a function.
    pub switches_stack: bool,
    /// Recorded addresses, by access.
    recorded: Vec<(u32, u64)>,
    /// Nodes of the stack pointer with values that are inferred in another way.
    pub hinted: Vec<(u32, u64)>,
    /// Bits of nodes that are inferred.
    pub inferred: Vec<(u32, Bits)>,
    /// Nodes whose bits 63:56 are not proved to be free of a tag; the second layer infers that they
    /// are.
    pub tagged: Vec<u32>,
}

impl Built {
    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.graph.bytes()
            + self.accesses.capacity() * (size_of::<Access>() + size_of::<u32>())
            + self.stack_pointers.capacity() * size_of::<(u32, u32)>()
    }

    /// Returns the recorded address of an access.
    pub fn recorded(&self, access: impl FnOnce() -> u32) -> Option<u64> {
        if self.recorded.is_empty() {
            return None;
        }
        let access = access();
        let found = self.recorded.binary_search_by_key(&access, |&(of, _)| of);
        found.ok().map(|found| self.recorded[found].1)
    }

    /// Adds an access; relations that come with it are queued.
    fn add_access(&mut self, kind: AccessKind, op: u32, nodes: [u32; 4], step: u32) {
        if self.accesses.is_empty() {
            self.accesses.push(Access {
                relation: NONE,
                step: 0,
                kind: AccessKind::Load,
                place: Place::Elsewhere,
            });
        }
        let relation = match kind {
            AccessKind::Unmodelled | AccessKind::Lost => NONE,
            AccessKind::Signal => {
                // The relation built just before.
                let relation = self.graph.relations.len() as u32 - 1;
                let number = self.accesses.len() as u32;
                self.graph.set_tag(relation, free_place(kind), number);
                relation
            }
            _ => {
                let relation = self.graph.add_relation(op, nodes);
                let number = self.accesses.len() as u32;
                self.graph.set_tag(relation, free_place(kind), number);
                relation
            }
        };
        self.accesses.push(Access {
            relation,
            step,
            kind,
            place: Place::Open,
        });
    }
}

/// Adds a step to what was built.
pub(in crate::recover) struct StepSink<'a> {
    pub built: &'a mut Built,
    pub templates: &'a Templates,
    /// The instruction of the step, and what was recorded of its accesses.
    pub template: Option<Template>,
    pub recorded: &'a [Accessed],
}

impl Sink for StepSink<'_> {
    fn node(&mut self, node: u32) {
        let added = self.built.graph.add_node();
        debug_assert_eq!(added, node, "nodes are numbered by the builder");
    }

    fn fact(&mut self, node: u32, bits: Bits) {
        if bits.mask == low(56) {
            self.built.tagged.push(node);
        }
        self.built.graph.learn(node, bits, NONE);
    }

    fn inferred(&mut self, node: u32, bits: Bits) {
        self.built.inferred.push((node, bits));
    }

    fn relation(&mut self, op: u32, nodes: [u32; 4]) {
        self.built.graph.add_relation(op, nodes);
        if let Some(more) = self.templates.op(op).added() {
            self.built.bounds.add(nodes[RESULT], nodes[BASE], more);
        }
    }

    fn stack_pointer(&mut self, node: u32, access: u32) {
        self.built.stack_pointers.push((node, access));
    }

    fn switches_stack(&mut self) {
        self.built.switches_stack = true;
    }

    fn below(&mut self, node: u32, bound: u32) {
        self.built.bounds.begin(node, bound);
    }

    fn access(&mut self, op: u32, nodes: [u32; 4], step: u32, access: u32) {
        let what = self.templates.op(op);
        let kind = AccessKind::of(op, what).unwrap_or(AccessKind::Load);
        self.built.add_access(kind, op, nodes, step);
        debug_assert_eq!(self.built.accesses.len() as u32, access + 1);
        if matches!(kind, AccessKind::Load | AccessKind::Store) {
            self.recorded(op, nodes[BASE], access);
        }
        if kind == AccessKind::Store && what.direct {
            let end = u64::from(what.access().unwrap_or(0)).wrapping_add(what.displacement);
            self.built.bounds.store(access, end);
        }
        if let (AccessKind::Load, Some(size)) = (kind, what.access()) {
            let upper = Bits::UNKNOWN.extend(8 * u32::from(size));
            self.built.graph.learn(nodes[0], upper, NONE);
        }
    }

    fn signal(&mut self, step: u32) {
        let kind = AccessKind::Signal;
        self.built.add_access(kind, NONE, [NONE; 4], step);
    }

    fn handled(&mut self, [started, returned]: [u32; 2], accesses: Range<u32>) {
        let first = self.built.accesses[accesses.start as usize].relation;
        self.built.handled.push(Handled {
            started,
            returned,
            accesses,
            relations: first..self.built.graph.relations.len() as u32,
        });
    }

    fn barrier(&mut self, step: u32, hard: bool) {
        let kind = if hard {
            AccessKind::Lost
        } else {
            AccessKind::Unmodelled
        };
        self.built.add_access(kind, NONE, [NONE; 4], step);
    }
}

impl StepSink<'_> {
    /// Takes the address of an access from the recorded addresses.
    fn recorded(&mut self, op: u32, base: u32, access: u32) {
        let Some(template) = self.template.filter(|_| !self.recorded.is_empty()) else {
            return;
        };
        let Some(found) = recorded::address(&template, self.templates, self.recorded, op) else {
            return;
        };
        self.built.recorded.push((access, untagged(found)));
        if base != NONE {
            let what = self.templates.op(op);
            let value = found.wrapping_sub(what.displacement);
            self.fact(
                base,
                match what.narrow {
                    true => Bits::known(value & low(32)),
                    false => Bits::new(low(56), value),
                },
            );
        }
    }
}
