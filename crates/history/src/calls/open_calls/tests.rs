//! How transitions open and close calls.

use super::*;
use crate::timeline::Gap;
use armsnap_trace::element::TraceOnReason;
use proptest::prelude::*;

/// Does the same as [`Stretch::apply`], with a separate walk for each return.
fn walked(stretch: &Stretch, at: &mut At, pending: &mut VecDeque<Address>) {
    while let Some(to) = pending.front() {
        let calls = || {
            let node = |at| match at {
                At::Call(number) => Some(stretch.nodes[number as usize]),
                At::Before(_) => None,
            };
            std::iter::successors(node(*at), move |last| node(last.outer))
        };
        let returns = |to| calls().find(|node| node.leads_to().any(|end| end == to));
        match returns(Some(*to)).or_else(|| returns(None)) {
            Some(node) => *at = node.outer,
            None => {
                *at = calls().last().map_or(*at, |node| node.outer);
                return;
            }
        }
        pending.pop_front();
    }
}

/// A function that calls itself is interrupted at the return address of such a call.
#[test]
fn an_untraced_exception_at_a_return_address_ends_no_call() {
    let returns_to = Address(0x2010);
    let take = |builder: &mut Builder, index, to, how| {
        let position = Position {
            session: 0,
            segment: 0,
            index,
        };
        builder.take(Transition { position, to, how });
    };
    let mut builder = Builder::default();
    take(&mut builder, 1, Address(0x2000), How::Called { returns_to });
    let open = builder.innermost();
    let resumed = |to| How::Resumed {
        gap: Gap::TraceOff(TraceOnReason::BeginOrFilter),
        taken: Some(("IRQ", Some(to))),
    };
    take(&mut builder, 2, returns_to, resumed(returns_to));
    assert_eq!(builder.innermost(), open);
    // Taken elsewhere: the call ended unseen.
    take(&mut builder, 3, returns_to, resumed(Address(0x2004)));
    assert_eq!(builder.innermost(), At::Before(0));
}

/// Calls from the first function land in it, wherever they were made.
#[derive(Debug)]
struct FirstFunction;

impl LandingPads for FirstFunction {
    fn of_call(&self, returns_to: Address) -> Option<Address> {
        (returns_to.0 < 0x2000).then_some(Address(0x1800))
    }

    fn contains(&self, address: Address) -> bool {
        address == Address(0x1800)
    }
}

/// An exception ends the calls in the function that catches it, however the unwinder gets
/// there.
#[test]
fn an_exception_ends_the_calls_in_the_function_of_its_landing_pad() {
    let jumped = How::Jumped {
        from: Address(0x4000),
        indirect: true,
    };
    for lands in [How::Returned, jumped] {
        let mut builder = Builder {
            landing_pads: Some(&FirstFunction),
            ..Builder::default()
        };
        let mut take = |index, to, how| {
            let position = Position {
                session: 0,
                segment: 0,
                index,
            };
            let to = Address(to);
            builder.take(Transition { position, to, how });
            builder.innermost()
        };
        let call = |site| How::Called {
            returns_to: Address(site),
        };
        let first = take(1, 0x1000, call(0x5004));
        take(2, 0x2000, call(0x1004));
        take(3, 0x3000, call(0x2004));
        assert_eq!(take(4, 0x1800, lands), first);
        // In another call, from before.
        assert_eq!(take(5, 0x5004, How::Returned), At::Before(0));
        take(6, 0x3000, call(0x2004));
        assert_eq!(take(7, 0x1800, lands), At::Before(1));
    }
}

/// Takes the next transition; returns the innermost call.
fn next(builder: &mut Builder<'_>, to: u64, how: How) -> At {
    let position = Position {
        session: 0,
        segment: 0,
        index: builder.changes.len() as u64,
    };
    let to = Address(to);
    builder.take(Transition { position, to, how });
    builder.innermost()
}

/// Execution continues after an untraced exception with this return address.
fn resumed(returns_to: u64) -> How {
    How::Resumed {
        gap: Gap::TraceOff(TraceOnReason::BeginOrFilter),
        taken: Some(("SVC", Some(Address(returns_to)))),
    }
}

/// One handler of a fault skips the instruction; another continues in another function.
#[test]
fn a_signal_ends_where_its_handler_resumes_the_program() {
    for (to, stays) in [(0x2008, true), (0x7000, false)] {
        let mut builder = Builder::default();
        let mut take = |to, how| next(&mut builder, to, how);
        let returns_to = Address(0x1010);
        let open = take(0x2000, How::Called { returns_to });
        take(0x4000, resumed(0x2004));
        take(0x9000, How::Returned);
        let after = take(to, resumed(0x9008));
        assert_eq!(after, if stays { open } else { At::Before(1) });
    }
}

/// The kernel delivers a pending signal where a handler asks to resume the program.
#[test]
fn signals_one_after_another_leave_no_handler_open() {
    for (second, callers_are_known) in [(0x4000, true), (0x5000, false)] {
        let mut builder = Builder::default();
        let mut take = |to, how| next(&mut builder, to, how);
        let returns_to = Address(0x1010);
        let open = take(0x2000, How::Called { returns_to });
        take(0x4000, resumed(0x2004));
        take(0x9000, How::Returned);
        // A page fault in the code that asks.
        take(0x9004, resumed(0x9004));
        let handles = take(second, resumed(0x9008));
        assert_eq!(matches!(handles, At::Call(_)), callers_are_known);
        take(0x9000, How::Returned);
        let after = take(0x2004, resumed(0x9008));
        match callers_are_known {
            true => assert_eq!(after, open),
            false => assert!(matches!(after, At::Before(_)), "{after:?}"),
        }
    }
}

proptest! {
    #[test]
    fn returns_close_the_innermost_call(
        calls in prop::collection::vec(
            (prop::option::weighted(0.8, 0u64..6), prop::option::weighted(0.3, 4u64..8)),
            0..40,
        ),
        returns in prop::collection::vec(0u64..8, 0..20),
    ) {
        let entry = Position { session: 0, segment: 0, index: 0 };
        let mut at = At::Before(3);
        let mut nodes = Vec::new();
        for (returns_to, lands_at) in calls {
            let call = OpenCall {
                entry,
                function: Address(0),
                returns_to: returns_to.map(Address),
                exception: false,
                signal: false,
            };
            nodes.push(Node { call, lands_at: lands_at.map(Address), outer: at });
            at = At::Call(nodes.len() as u32 - 1);
        }
        let stretch = Stretch {
            nodes,
            changes: Vec::new(),
            end: at,
            returns: Vec::new(),
            begin: entry,
            before: None,
        };
        let mut pending: VecDeque<Address> = returns.into_iter().map(Address).collect();
        let (mut other, mut left) = (at, pending.clone());
        stretch.apply(&mut at, &mut pending);
        walked(&stretch, &mut other, &mut left);
        prop_assert_eq!((at, pending), (other, left));
    }
}
