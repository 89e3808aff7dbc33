//! The path of execution between two instructions, if the code allows only one.
//!
//! Follows instructions and direct branches. Finds no path through an indirect branch, or if there
//! is more than one.

use armsnap_arch::arch::branch::{self, Instruction, Kind};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::encode::CodeAddress;
use armsnap_trace::flow::{self, CodeImage, View, fetch};
use std::collections::{HashMap, HashSet};

/// The maximum number of instructions examined for one path.
const NEAR: usize = 4096;

/// The maximum number of instructions examined in total.
const ALL: usize = 1 << 26;

/// A straight line of executed instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StraightLine {
    /// The first instruction.
    pub start: CodeAddress,
    /// The address after the last instruction.
    pub end: Address,
}

/// Finds paths in the code of one core.
#[derive(Debug)]
pub struct CodePaths<C> {
    code: C,
    /// Addresses whose execution is always observed.
    watched: HashSet<u64>,
    /// Earlier results: loops repeat the same search.
    known: HashMap<(View, CodeAddress, CodeAddress), Option<Vec<StraightLine>>>,
    left: usize,
}

/// An instruction with its successors, as indices into the list of nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    here: CodeAddress,
    /// The address after it.
    after: Address,
    next: [Option<usize>; 2],
}

/// Stands for the destination in [`Node::next`].
const GOAL: usize = usize::MAX;

impl<C: CodeImage> CodePaths<C> {
    /// Searches `code` for paths that avoid the addresses in `watched`.
    pub fn new(code: C, watched: HashSet<u64>) -> Self {
        Self {
            code,
            watched,
            known: HashMap::new(),
            left: ALL,
        }
    }

    /// Whether the limit of examined instructions has been reached.
    pub fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// The instruction at an address, if its code is present.
    pub fn instruction(&self, view: View, here: CodeAddress) -> Option<Instruction> {
        let mut instruction = flow::instruction(&self.code, view, here.isa, here.address)?;
        instruction.conditional |= self.may_be_in_it_block(view, here);
        Some(instruction)
    }

    /// A T32 instruction is conditional in the IT block of one of the four instructions before it
    /// (DDI 0487, F1.3.1 "Conditional instructions"). An apparent IT may be half of another
    /// instruction: the search then treats the branch as conditional.
    fn may_be_in_it_block(&self, view: View, here: CodeAddress) -> bool {
        let decode = |at: CodeAddress| {
            let (word, _) = fetch(&self.code, view, at.address);
            branch::decode(Isa::T32, at.address, u32::from_le_bytes(word))
        };
        let covers = |halfwords: u64| {
            let mut at = CodeAddress {
                address: Address(here.address.0.wrapping_sub(2 * halfwords)),
                isa: Isa::T32,
            };
            let Some(first) = decode(at) else {
                return false;
            };
            at = next(at, first.bytes);
            (0..first.it_block).any(|_| {
                let found = at == here;
                at = next(at, decode(at).map_or(2, |instruction| instruction.bytes));
                found
            })
        };
        here.isa == Isa::T32 && (1..=8).any(covers)
    }

    /// The lines executed from `from` (included) to `to` (excluded).
    pub fn between(
        &mut self,
        view: View,
        from: CodeAddress,
        to: CodeAddress,
    ) -> Option<Vec<StraightLine>> {
        let key = (view, from, to);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.search(view, from, to);
        self.known.insert(key, found.clone());
        found
    }

    fn search(
        &mut self,
        view: View,
        from: CodeAddress,
        to: CodeAddress,
    ) -> Option<Vec<StraightLine>> {
        let mut nodes = vec![Node {
            here: from,
            ..Node::default()
        }];
        let mut places = HashMap::from([(from, 0)]);
        let mut at = 0;
        while at < nodes.len() {
            if at >= NEAR {
                return None;
            }
            self.left = self.left.checked_sub(1)?;
            let here = nodes[at].here;
            // Missing code or an indirect branch could lead anywhere.
            let instruction = self.instruction(view, here)?;
            let after = next(here, instruction.bytes);
            let outcomes = match instruction.kind {
                Kind::Indirect => return None,
                Kind::Branch { target, isa } => {
                    let target = CodeAddress {
                        address: target,
                        isa,
                    };
                    let falls = instruction.conditional && target != after;
                    [Some(target), falls.then_some(after)]
                }
                _ => [Some(after), None],
            };
            let mut successors = [None; 2];
            for (successor, place) in successors.iter_mut().zip(outcomes) {
                let Some(place) = place else { continue };
                if place == to {
                    *successor = Some(GOAL);
                } else if !self.watched.contains(&place.address.0) {
                    let new = nodes.len();
                    let index = *places.entry(place).or_insert(new);
                    if index == new {
                        nodes.push(Node {
                            here: place,
                            ..Node::default()
                        });
                    }
                    *successor = Some(index);
                }
            }
            nodes[at].after = after.address;
            nodes[at].next = successors;
            at += 1;
        }
        only_path(&nodes)
    }
}

/// The address after an instruction.
pub fn next(here: CodeAddress, bytes: u8) -> CodeAddress {
    CodeAddress {
        address: here.address.after(bytes.into(), here.isa),
        isa: here.isa,
    }
}

/// The lines from the first node to the goal, if there is exactly one path.
fn only_path(nodes: &[Node]) -> Option<Vec<StraightLine>> {
    // Find the nodes that lead to the goal, working backwards from it.
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut leads = vec![false; nodes.len()];
    let mut reached = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for &next in node.next.iter().flatten() {
            match before.get_mut(next) {
                Some(before) => before.push(index),
                None => reached.push(index),
            }
        }
    }
    while let Some(index) = reached.pop() {
        if !std::mem::replace(&mut leads[index], true) {
            reached.append(&mut before[index]);
        }
    }
    let mut lines: Vec<StraightLine> = Vec::new();
    let mut at = 0;
    loop {
        let node = nodes.get(at)?;
        let mut edges = node.next.iter().flatten();
        let mut edges = edges.by_ref().filter(|&&n| n == GOAL || leads[n]);
        let next = *edges.next()?;
        if edges.next().is_some() {
            return None;
        }
        match lines.last_mut() {
            Some(line) if line.end == node.here.address && line.start.isa == node.here.isa => {
                line.end = node.after;
            }
            _ => lines.push(StraightLine {
                start: node.here,
                end: node.after,
            }),
        }
        if next == GOAL {
            return Some(lines);
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_trace::flow::{ContextKey, Pieces};

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    /// `b`, with an offset in instructions.
    fn b(offset: i32) -> u32 {
        0x1400_0000 | offset.cast_unsigned() & 0x03ff_ffff
    }

    /// `cbz x0`, with an offset in instructions.
    fn cbz(offset: i32) -> u32 {
        0xb400_0000 | (offset.cast_unsigned() & 0x7_ffff) << 5
    }

    fn at(index: u64) -> CodeAddress {
        CodeAddress {
            address: Address(0x1000 + 4 * index),
            isa: Isa::A64,
        }
    }

    /// The lines between two instructions, as pairs of indices.
    fn path(code: &[u32], watched: &[u64], from: u64, to: u64) -> Option<Vec<(u64, u64)>> {
        let bytes = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut pieces = Pieces::default();
        pieces.add(Address(0x1000), bytes);
        let watched = watched.iter().map(|&index| at(index).address.0).collect();
        let mut paths = CodePaths::new(pieces, watched);
        let index = |address: Address| (address.0 - 0x1000) / 4;
        let lines = paths.between(View::default(), at(from), at(to))?;
        let lines = lines.iter();
        Some(
            lines
                .map(|l| (index(l.start.address), index(l.end)))
                .collect(),
        )
    }

    #[test]
    fn a_straight_line_and_direct_branches() {
        assert_eq!(path(&[NOP, NOP, NOP], &[], 0, 2), Some(vec![(0, 2)]));
        assert_eq!(
            path(&[NOP, b(2), RET, NOP, NOP], &[], 0, 4),
            Some(vec![(0, 2), (3, 4)])
        );
        // Backwards, once through an endless loop.
        assert_eq!(
            path(&[NOP, NOP, b(-2)], &[], 1, 1),
            Some(vec![(1, 3), (0, 1)])
        );
    }

    #[test]
    fn a_condition_follows_from_its_destination() {
        // 0: cbz 3; 1: nop; 2: b 2 (here); 3: nop; 4: b 4 (here)
        let code = [cbz(3), NOP, b(0), NOP, b(0)];
        assert_eq!(path(&code, &[], 0, 2), Some(vec![(0, 2)]));
        assert_eq!(path(&code, &[], 0, 4), Some(vec![(0, 1), (3, 4)]));
    }

    #[test]
    fn several_possible_paths_give_no_result() {
        // With or without executing a nop.
        assert_eq!(path(&[cbz(2), NOP, NOP, NOP], &[], 0, 3), None);
        // Unless execution of one of them would have been observed.
        assert_eq!(
            path(&[cbz(2), NOP, NOP, NOP], &[1], 0, 3),
            Some(vec![(0, 1), (2, 3)])
        );
        // A loop executed any number of times.
        assert_eq!(path(&[NOP, cbz(-1), NOP], &[], 0, 2), None);
        assert_eq!(path(&[NOP, cbz(-1), NOP], &[0], 0, 2), Some(vec![(0, 2)]));
    }

    #[test]
    fn missing_code_and_indirect_branches_give_no_path() {
        assert_eq!(path(&[NOP, RET, NOP], &[], 0, 2), None);
        assert_eq!(path(&[NOP, NOP], &[], 0, 9), None);
        assert_eq!(path(&[NOP, b(-1), NOP], &[], 0, 2), None);
        // The length of straight code is limited too.
        let long = vec![NOP; 3 * NEAR];
        assert_eq!(path(&long, &[], 0, 2 * NEAR as u64), None);
        assert_eq!(path(&long, &[], 0, 9), Some(vec![(0, 9)]));
    }

    #[test]
    fn results_of_one_view_are_not_used_in_another() {
        struct Two([Pieces; 2]);
        impl CodeImage for Two {
            fn view(&self, _: &ContextKey) -> View {
                View(0)
            }
            fn slice(&self, view: View, address: Address) -> &[u8] {
                self.0[view.0 as usize].slice(View(0), address)
            }
        }
        let code = [[NOP, b(2), RET, NOP], [NOP, RET, RET, NOP]].map(|code| {
            let mut pieces = Pieces::default();
            let bytes = code.iter().flat_map(|word| word.to_le_bytes()).collect();
            pieces.add(Address(0x1000), bytes);
            pieces
        });
        let mut paths = CodePaths::new(Two(code), HashSet::new());
        assert!(paths.between(View(0), at(0), at(3)).is_some());
        assert_eq!(paths.between(View(1), at(0), at(3)), None);
    }

    #[test]
    fn a_branch_in_an_it_block_is_conditional() {
        // 0x1000: it eq; 0x1002: b 0x1008; 0x1004: nop; 0x1006: nop; 0x1008: nop; 0x100a: b 0x100a
        let mut code = Pieces::default();
        let halfwords = [0xbf08_u16, 0xe001, 0xbf00, 0xbf00, 0xbf00, 0xe7fe];
        let bytes = halfwords.iter().flat_map(|h| h.to_le_bytes()).collect();
        code.add(Address(0x1000), bytes);
        let mut paths = CodePaths::new(code, HashSet::new());
        let t32 = |address| CodeAddress {
            address: Address(address),
            isa: Isa::T32,
        };
        let mut path = |to| paths.between(View::default(), t32(0x1002), t32(to));
        assert_eq!(path(0x1006).unwrap().len(), 1);
        assert_eq!(path(0x100a), None);
    }
}
