//! The calling context tree: executions by chains of callers.

use super::functions::FunctionId;
use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::flow::View;
use std::hash::{Hash, Hasher};

/// The maximum number of nodes: about 100 MB. Calls beyond it count for their caller.
pub(super) const MOST: usize = 1 << 20;

/// The maximum number of straight lines by node: about 90 MB.
const MAX_LINES: usize = 7 << 18;

/// The maximum length of a chain of callers. Beyond it, recursion counts for the first call of the
/// function in the chain, if there is one.
const LONGEST: u32 = 512;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// Stands for no caller.
    pub const ROOT: Self = Self(0);

    /// Returns its number, for use as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function, called through one chain of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function.
    pub function: FunctionId,
    /// Its caller.
    pub parent: NodeId,
    /// Its return address, after the instruction that called it.
    pub returns_to: Option<Address>,
    /// How often it was entered.
    pub calls: u64,
    /// Instructions executed in it, without those of the functions that it called.
    pub instructions: u64,
    /// Cycles counted in it, likewise.
    pub cycles: u64,
}

/// A straight line executed in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineKey {
    /// The node.
    pub node: NodeId,
    /// Its first instruction.
    pub start: Address,
    /// The address after its last instruction.
    pub end: Address,
    /// The view of memory that it was executed in.
    pub view: View,
    /// Instruction set.
    pub isa: Isa,
}

impl Hash for LineKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.node.0) << 32 | u64::from(self.view.0));
        state.write_u64(self.start.0);
        state.write_u64(self.end.0 << 2 | self.isa as u64);
    }
}

/// Identifies a callee of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChildKey {
    parent: NodeId,
    function: FunctionId,
    returns_to: Option<Address>,
}

impl Hash for ChildKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.parent.0) << 32 | u64::from(self.function.0));
        state.write_u64(self.returns_to.map_or(0, |to| to.0));
    }
}

/// The number of children that are found without a search.
const FOUND: usize = 1 << 11;

/// A child by its key, and the epoch of the tree in which it was found.
#[derive(Clone, Copy, Debug)]
struct Found {
    key: ChildKey,
    child: NodeId,
    epoch: u32,
}

const NOT_FOUND: Found = Found {
    key: ChildKey {
        parent: NodeId::ROOT,
        function: FunctionId::UNKNOWN,
        returns_to: None,
    },
    child: NodeId::ROOT,
    epoch: 0,
};

impl ChildKey {
    /// The index among the children that are found without a search.
    #[inline]
    fn slot(&self) -> usize {
        let place = self.returns_to.map_or(0, |to| to.0 >> 1);
        let mixed = (place ^ u64::from(self.function.0) << 24)
            .wrapping_add(u64::from(self.parent.0) << 32)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 53) as usize % FOUND
    }
}

/// A step of a walk.
enum Visit {
    Enter(usize),
    Leave(usize),
}

/// The calling contexts. A caller precedes its callees; the first node is the root, which stands
/// for no function.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    children: NumberMap<ChildKey, NodeId>,
    /// Some of the most recently used children. Once the tree is full, also the nodes that stand in
    /// for them.
    found: Vec<Found>,
    /// Counts how often the tree was cleared, starting at 1.
    epoch: u32,
    /// By node: the number of its callers.
    depths: Vec<u32>,
    full: bool,
    /// How often straight lines were executed in each node, if that is wanted.
    lines: NumberMap<LineKey, u64>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            children: NumberMap::default(),
            found: vec![NOT_FOUND; FOUND],
            epoch: 1,
            depths: vec![0],
            full: false,
            lines: NumberMap::default(),
        }
    }
}

impl Tree {
    /// Returns the nodes, the root first, each caller before its callees.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node with an index.
    pub fn id(&self, index: usize) -> NodeId {
        NodeId(index as u32)
    }

    /// Returns, for each node, whether its function is also one of its callers.
    pub fn recursive(&self) -> Vec<bool> {
        let functions = self.nodes.iter().map(|node| node.function.index() + 1);
        let mut open = vec![0_u32; functions.max().unwrap_or(0)];
        let mut recursive = vec![false; self.nodes.len()];
        self.walk(|visit| match visit {
            Visit::Enter(node) => {
                let open = &mut open[self.nodes[node].function.index()];
                recursive[node] = *open > 0;
                *open += 1;
            }
            Visit::Leave(node) => open[self.nodes[node].function.index()] -= 1,
        });
        recursive
    }

    /// Visits all nodes but the root, depth first.
    fn walk(&self, mut visit: impl FnMut(Visit)) {
        let mut next = vec![0_u32; self.nodes.len()];
        let mut first = vec![0_u32; self.nodes.len()];
        for index in (1..self.nodes.len()).rev() {
            let parent = self.nodes[index].parent.index();
            next[index] = first[parent];
            first[parent] = index as u32;
        }
        let mut path = Vec::new();
        let mut here = first[0];
        loop {
            if here == 0 {
                let Some(left) = path.pop() else { break };
                visit(Visit::Leave(left as usize));
                here = next[left as usize];
            } else {
                visit(Visit::Enter(here as usize));
                path.push(here);
                here = first[here as usize];
            }
        }
    }

    /// Returns whether there were more nodes than are kept, so that some calls count for their
    /// callers.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns how often straight lines were executed in each node, if a
    /// [`Listener`](super::Listener) wanted that. Beyond a maximum number, some lines are left out;
    /// the instructions of the nodes are complete even then.
    pub fn lines(&self) -> impl Iterator<Item = (&LineKey, u64)> {
        self.lines.iter().map(|(line, count)| (line, *count))
    }

    pub(super) fn add_line(&mut self, line: LineKey, count: u64) {
        let room = self.lines.len() < MAX_LINES;
        match self.lines.get_mut(&line) {
            Some(sum) => *sum = sum.saturating_add(count),
            None if room => {
                self.lines.insert(line, count);
            }
            None => {}
        }
    }

    /// Returns the functions of a node and its callers, outermost first.
    pub fn path(&self, node: NodeId) -> Vec<FunctionId> {
        let mut path = Vec::new();
        let mut here = node;
        while here != NodeId::ROOT {
            path.push(self.nodes[here.index()].function);
            here = self.nodes[here.index()].parent;
        }
        path.reverse();
        path
    }

    /// Returns the instructions and cycles of each node, including everything called from it.
    pub fn sums(&self) -> Vec<(u64, u64)> {
        let nodes = self.nodes.iter();
        let mut sums: Vec<(u64, u64)> =
            nodes.map(|node| (node.instructions, node.cycles)).collect();
        for index in (1..self.nodes.len()).rev() {
            let (instructions, cycles) = sums[index];
            let parent = &mut sums[self.nodes[index].parent.index()];
            parent.0 = parent.0.saturating_add(instructions);
            parent.1 = parent.1.saturating_add(cycles);
        }
        sums
    }

    /// Returns the instructions and cycles that each function executed itself, excluding those of
    /// its callees.
    pub fn own(&self, functions: usize) -> Vec<(u64, u64)> {
        let mut own = vec![(0_u64, 0_u64); functions];
        for node in &self.nodes {
            if let Some(sum) = own.get_mut(node.function.index()) {
                sum.0 = sum.0.saturating_add(node.instructions);
                sum.1 = sum.1.saturating_add(node.cycles);
            }
        }
        own
    }

    /// Returns the instructions and cycles of each function including everything that it called.
    /// Recursive calls count once.
    pub fn totals(&self, functions: usize) -> Vec<(u64, u64)> {
        let sums = self.sums();
        let recursive = self.recursive();
        let mut totals = vec![(0, 0); functions];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            if !recursive[index]
                && let Some(total) = totals.get_mut(node.function.index())
            {
                total.0 += sums[index].0;
                total.1 += sums[index].1;
            }
        }
        totals
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.index()]
    }

    /// Returns the node of a function called from another node.
    #[inline]
    pub(super) fn child(
        &mut self,
        parent: NodeId,
        function: FunctionId,
        returns_to: Option<Address>,
    ) -> NodeId {
        let key = ChildKey {
            parent,
            function,
            returns_to,
        };
        let found = &self.found[key.slot()];
        if found.key == key && found.epoch == self.epoch {
            return found.child;
        }
        self.find(key)
    }

    #[inline(never)]
    fn find(&mut self, key: ChildKey) -> NodeId {
        let ChildKey {
            parent,
            function,
            returns_to,
        } = key;
        let child = match self.children.get(&key) {
            Some(&known) => known,
            None => {
                let folded = self.folded(parent, function);
                match folded.or_else(|| self.push(parent, function, returns_to)) {
                    Some(new) => {
                        self.children.insert(key, new);
                        new
                    }
                    None => parent,
                }
            }
        };
        self.found[key.slot()] = Found {
            key,
            child,
            epoch: self.epoch,
        };
        child
    }

    /// Returns the node of an earlier call of the same function in a chain that is too long.
    fn folded(&self, parent: NodeId, function: FunctionId) -> Option<NodeId> {
        if self.depths[parent.index()] < LONGEST {
            return None;
        }
        let mut here = parent;
        while here != NodeId::ROOT && self.nodes[here.index()].function != function {
            here = self.nodes[here.index()].parent;
        }
        (here != NodeId::ROOT).then_some(here)
    }

    fn push(
        &mut self,
        parent: NodeId,
        function: FunctionId,
        returns_to: Option<Address>,
    ) -> Option<NodeId> {
        if self.nodes.len() >= MOST {
            self.full = true;
            return None;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            function,
            parent,
            returns_to,
            ..Node::default()
        });
        self.depths.push(self.depths[parent.index()] + 1);
        Some(id)
    }

    /// Adds the counts of another tree, whose callers may follow their callees.
    pub(super) fn merge(&mut self, other: &Self) {
        const NOT_YET: NodeId = NodeId(u32::MAX);
        let mut there = vec![NOT_YET; other.nodes.len()];
        there[0] = NodeId::ROOT;
        let mut open = Vec::new();
        for index in 1..other.nodes.len() {
            let mut here = index;
            while there[here] == NOT_YET {
                open.push(here);
                here = other.nodes[here].parent.index();
            }
            let mut parent = there[here];
            while let Some(inner) = open.pop() {
                let node = &other.nodes[inner];
                parent = self.child(parent, node.function, node.returns_to);
                there[inner] = parent;
            }
            let node = &other.nodes[index];
            let sum = &mut self.nodes[there[index].index()];
            sum.calls = sum.calls.saturating_add(node.calls);
            sum.instructions = sum.instructions.saturating_add(node.instructions);
            sum.cycles = sum.cycles.saturating_add(node.cycles);
        }
        for (line, count) in other.lines() {
            let node = there[line.node.index()];
            self.add_line(LineKey { node, ..*line }, count);
        }
        self.full |= other.full;
    }

    /// Makes one root the caller of another one.
    pub(super) fn adopt(&mut self, caller: NodeId, root: NodeId) {
        if root != NodeId::ROOT && caller != NodeId::ROOT && root != caller {
            self.nodes[root.index()].parent = caller;
        }
    }

    /// Removes all nodes.
    pub(super) fn clear(&mut self) {
        self.nodes.truncate(1);
        self.nodes[0] = Node::default();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.found.fill(NOT_FOUND);
            self.epoch = 1;
        }
        self.depths.truncate(1);
        self.children.clear();
        self.lines.clear();
        self.full = false;
    }

    /// Adds a new root, even if there is one of the same function.
    pub(super) fn root(&mut self, function: FunctionId) -> NodeId {
        self.push(NodeId::ROOT, function, None)
            .unwrap_or(NodeId::ROOT)
    }
}
