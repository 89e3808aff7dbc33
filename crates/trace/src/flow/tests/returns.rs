//! Indirect branches: the return stack, and waiting for an address.

use super::*;
use crate::element::TraceOnReason;

#[test]
fn returns_come_from_the_stack() {
    let out = run(STACK, calls(), &[address(0x1000), atoms("EEEEE")]);
    let call = [
        "1000-1004 1 branch E",
        "2000-2008 2 indirect E",
        "1004-1008 1 branch E",
    ];
    assert_eq!(out[..3], call);
    assert_eq!(
        out[3..],
        ["2000-2008 2 indirect E", "1008-100c 1 indirect E"]
    );
}

#[test]
fn a_traced_target_leaves_the_stack_alone() {
    let elements = [
        address(0x1000),
        atoms("EE"),
        address(0x1004),
        atoms("EE"),
        // Both return addresses are still stacked.
        atoms("E"),
        address(0x2000),
        atoms("EE"),
    ];
    let out = run(STACK, calls(), &elements);
    let tail = [
        "1008-100c 1 indirect E",
        "2000-2008 2 indirect E",
        "1004-1008 1 branch E",
    ];
    assert_eq!(out[4..], tail);
}

#[test]
fn without_a_return_stack_atoms_wait_for_an_address() {
    let config = FlowConfig::default();
    let out = run(
        config,
        calls(),
        &[address(0x2000), atoms("EEE"), address(0x1000), atoms("E")],
    );
    assert_eq!(
        out,
        [
            "2000-2008 2 indirect E",
            "no target 2008",
            "1000-1004 1 branch E"
        ]
    );
}

#[test]
fn an_empty_return_stack_is_a_gap() {
    let out = run(
        STACK,
        calls(),
        &[address(0x2000), atoms("EEE"), address(0x1000), atoms("E")],
    );
    assert_eq!(
        out,
        [
            "2000-2008 2 indirect E",
            "ReturnStackEmpty",
            "1000-1004 1 branch E"
        ]
    );
}

#[test]
fn trace_on_empties_the_return_stack() {
    let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let out = run(
        STACK,
        calls(),
        &[
            address(0x1000),
            atoms("E"),
            on,
            address(0x2000),
            atoms("EE"),
        ],
    );
    assert_eq!(out[2..], ["2000-2008 2 indirect E", "ReturnStackEmpty"]);
}

#[test]
fn an_indirect_call_pops_before_it_pushes() {
    // bl 0x2000; ret | blr x1; ret
    let code = || {
        a64(&[
            (0x1000, &[bl(0x1000, 0x2000), RET]),
            (0x2000, &[0xd63f_0020, RET]),
        ])
    };
    // The target of blr is the address on top of the stack, so it is left out.
    let out = run(STACK, code(), &[address(0x1000), atoms("EEEE")]);
    let want = [
        "1000-1004 1 branch E",
        "2000-2004 1 indirect E",
        "1004-1008 1 indirect E",
    ];
    assert_eq!(out[..3], want);
    assert_eq!(out[3..], ["2004-2008 1 indirect E"]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), atoms("EE"), address(0x1004), atoms("EE")],
    );
    assert_eq!(out[3..], ["2004-2008 1 indirect E"]);
}
