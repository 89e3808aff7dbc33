//! Sums made in pieces equal those of following block by block.

use super::super::super::parts::Watched;
use super::super::super::pieces::{Facts, Recorder, Wanted, What};
use super::super::{Counted, Course, Replayed};
use super::{Case, Random, symbols};
use crate::profile::{CallKind, FunctionId, Functions, Listener, NodeId, Window};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{AtomPacket, AtomSink, Atoms, Element, ElementSink};
use armsnap_trace::flow::{Flow, FlowConfig, FlowDriver, FlowSink, Pieces};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

/// Listens to nothing, without declaring so.
pub(in super::super::super) struct Silent<const CALLS: bool>;

impl<const CALLS: bool> Listener for Silent<CALLS> {
    const CALLS: bool = CALLS;
}

/// A flow from which a recorder makes pieces.
type Driver<'a> = FlowDriver<Watched<'a, Pieces>, Recorder<'a, true>>;

fn driver<'a>(
    case: &Case,
    symbols: Option<&'a Symbols>,
    (calls, each_call): (bool, bool),
) -> Driver<'a> {
    let watched = Watched {
        image: case.code(),
        symbols,
        calls,
    };
    let wanted = Wanted {
        lines: false,
        calls,
        each_call,
    };
    FlowDriver {
        flow: Flow::new(case.flow, watched),
        sink: Recorder::new(Image::default(), symbols, wanted),
    }
}

/// Consecutive atoms are passed together, as the packet decoders do.
fn feed(driver: &mut Driver<'_>, elements: &[(u64, Element)]) {
    let mut rest = elements;
    while let Some(((at, element), after)) = rest.split_first() {
        let atoms: Vec<Atoms> = rest
            .iter()
            .map_while(|(_, element)| match element {
                Element::WaypointAtoms(atoms) => Some(*atoms),
                _ => None,
            })
            .take(200)
            .collect();
        if atoms.is_empty() {
            driver.element(BufferOffset(*at), *element);
            rest = after;
            continue;
        }
        let bytes: Vec<u8> = (0..atoms.len() as u8).collect();
        let packet = |byte: u8| Some(AtomPacket::Waypoints(atoms[usize::from(byte)]));
        let done = driver.atoms(&bytes, packet, |index| BufferOffset(at + index as u64));
        assert_eq!(done, atoms.len());
        rest = &rest[done..];
    }
}

/// Statistics of the pieces of a case.
#[derive(Debug, Default)]
struct Seen {
    pieces: u64,
    refused: u64,
    blocks: u64,
    calls: u64,
    entered: u64,
    jumps: u64,
    returned: u64,
}

fn sums<const CALLS: bool>(case: &Case, random: &mut Random, seen: &mut Seen) -> Counted {
    let symbols = symbols();
    let symbols = case.symbols.then_some(&symbols);
    let mut sums = driver(case, symbols, (CALLS, false));
    let mut each = driver(case, symbols, (CALLS, true));
    let window = Window::default();
    let listener = Silent::<CALLS>;
    let mut course = Course::new(Image::default(), symbols, window, true, listener);
    course.start_buffer(0);
    let mut replayed = Replayed::default();
    let mut facts = Facts::default();
    let elements: Vec<(u64, Element)> = (0..).zip(case.elements.iter().copied()).collect();
    let mut rest = &elements[..];
    while !rest.is_empty() {
        let most = [600, 20][random.below(2) as usize];
        let count = 1 + random.below(most) as usize;
        let (here, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        for driver in [&mut sums, &mut each] {
            feed(driver, here);
            if rest.is_empty() {
                driver.sink.forget(driver.flow.blocks());
            }
        }
        let (piece, other) = (sums.sink.take(0), each.sink.take(0));
        seen.pieces += 1;
        match course.grants(&piece) {
            Ok(()) => {
                for step in &piece.steps {
                    match &step.what {
                        What::Block { .. } => seen.blocks += 1,
                        What::Calls(calls) => {
                            seen.calls += calls.nodes.iter().map(|node| node.calls).sum::<u64>();
                        }
                        What::Enter { kind, .. } => {
                            seen.entered += 1;
                            seen.jumps += u64::from(*kind != CallKind::Call);
                        }
                        What::Return => seen.returned += 1,
                        _ => {}
                    }
                }
                course.replay(&mut replayed, &piece);
            }
            Err(found) => {
                seen.refused += 1;
                facts.extend(&found);
                course.replay(&mut replayed, &other);
            }
        }
        sums.sink.learn_facts(&facts);
    }
    course.finish().1
}

fn direct<const CALLS: bool>(case: &Case) -> Counted {
    let symbols = symbols();
    let symbols = case.symbols.then_some(&symbols);
    let mut flow = Flow::new(case.flow, case.code());
    let window = Window::default();
    let listener = Silent::<CALLS>;
    let mut course = Course::new(Image::default(), symbols, window, true, listener);
    course.forgetful = true;
    course.start_buffer(0);
    for (element, at) in case.elements.iter().zip(0..) {
        flow.element(BufferOffset(at), *element, &mut course);
    }
    course.forget(flow.blocks());
    course.finish().1
}

/// Text that does not depend on the numbers of functions, which vary with the order of discovery.
pub(in super::super::super) fn text(counted: &Counted) -> String {
    let Counted {
        functions,
        tree,
        code,
        exceptions,
        ..
    } = counted;
    let name = |id: FunctionId| named(functions, id);
    let mut rows: Vec<String> = functions
        .iter()
        .map(|(id, function)| format!("{} {} {:?}", name(id), function.calls, function.el))
        .collect();
    rows.sort();
    let mut nodes: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (index, node) in tree.nodes().iter().enumerate().skip(1) {
        let mut path = format!("{:?}", node.returns_to);
        let mut here: NodeId = tree.id(index);
        while here != NodeId::ROOT {
            let node = &tree.nodes()[here.index()];
            path = format!("{};{path}", name(node.function));
            here = node.parent;
        }
        let sums = nodes.entry(path).or_default();
        sums[0] += node.calls;
        sums[1] += node.instructions;
        sums[2] += node.cycles;
    }
    let blocks: Vec<_> = code
        .blocks()
        .iter()
        .map(|block| {
            (
                name(block.function),
                block.range(),
                block.taken,
                block.not_taken,
            )
        })
        .collect();
    let parts: Vec<_> = code
        .parts()
        .iter()
        .map(|part| (name(part.function), part.range, part.count))
        .collect();
    let mut text = String::new();
    for all in [
        &rows as &dyn Debug,
        &nodes,
        &blocks,
        &parts,
        &code.edges(),
        &exceptions.statistics(),
        &counted.gaps,
        &(counted.ranges, counted.instructions, counted.elements),
        &(counted.cycles, counted.last_time, counted.events),
        &(counted.unknown_path, counted.kernel_and_user),
    ] {
        let _ = writeln!(text, "{all:#?}");
    }
    text
}

fn named(functions: &Functions, id: FunctionId) -> String {
    let function = functions.get(id);
    format!("{}@{:?}", function.name, function.start)
}

#[track_caller]
fn compare<const CALLS: bool>(case: &Case, seed: u64, seen: &mut Seen) {
    let summed = text(&sums::<CALLS>(case, &mut Random(seed), seen));
    let followed = text(&direct::<CALLS>(case));
    let mut lines = summed.lines().zip(followed.lines()).enumerate();
    let differs = lines.find(|(_, (one, other))| one != other);
    assert_eq!(differs, None, "seed {seed}, calls {CALLS}");
    assert_eq!(summed.len(), followed.len(), "seed {seed}");
}

#[test]
fn pieces_of_sums_add_up_to_the_same() {
    let mut seen = Seen::default();
    for seed in 0..300 {
        let mut random = Random(seed);
        let case = Case {
            program: random.program(),
            elements: {
                let rare = [20, 200, 100_000][random.below(3) as usize];
                random.elements(rare)
            },
            window: Window::default(),
            flow: FlowConfig {
                return_stack: random.below(3) > 0,
                most_blocks: [1 << 21, 24][random.below(2) as usize],
                ..FlowConfig::default()
            },
            symbols: random.below(4) > 0,
        };
        compare::<true>(&case, seed, &mut seen);
        compare::<false>(&case, seed, &mut seen);
    }
    let some = [seen.calls, seen.entered, seen.jumps, seen.returned];
    assert!(some.iter().all(|count| *count > 1000), "{seen:?}");
    assert!((5..seen.pieces / 2).contains(&seen.refused), "{seen:?}");
}
