//! The code image: missing memory, contexts, and bounds on what is decoded.

use super::*;
use crate::element::Context;
use armsnap_arch::quantity::{ExceptionLevel, Security};

#[test]
fn missing_memory_is_reported_once_after_the_instructions_before_it() {
    let code = a64(&[(0x1000, &[NOP, NOP])]);
    let out = run(
        STACK,
        code,
        &[address(0x1000), atoms("EENE"), address(0x3000), atoms("NN")],
    );
    assert_eq!(out, ["1000-1008 2 other E", "missing 1008", "missing 3000"]);
}

#[test]
fn adjacent_pieces_of_memory_are_joined() {
    let mut code = Pieces::default();
    code.add(Address(0x1000), words(&[NOP])[..3].to_vec());
    code.add(Address(0x1003), words(&[NOP, RET])[3..].to_vec());
    let out = run(STACK, code, &[address(0x1000), atoms("E")]);
    assert_eq!(out, ["1000-1008 2 indirect E"]);
}

fn context(el: u8, isa: Isa) -> Element {
    Element::Mark(Mark::Context(Context {
        isa,
        el: Some(ExceptionLevel(el)),
        security: Some(Security::NonSecure),
        is_64bit: Some(isa == Isa::A64),
        ..Context::default()
    }))
}

#[test]
fn contexts_do_not_share_blocks() {
    let levels = Levels([
        a64(&[(0x1000, &[NOP, bl(0x1004, 0x1000)])]),
        a64(&[(0x1000, &[NOP, NOP, RET])]),
    ]);
    let elements = [
        address(0x1000),
        atoms("EE"),
        // The context comes before the address or after it.
        context(1, Isa::A64),
        atoms("E"),
        address(0x1000),
        context(0, Isa::A64),
        atoms("E"),
        context(1, Isa::A64),
        address(0x1000),
        atoms("E"),
    ];
    let out: Vec<_> = run(STACK, levels, &elements)
        .into_iter()
        .filter(|line| !line.starts_with("Context"))
        .collect();
    let (user, kernel) = ("1000-1008 2 branch E", "1000-100c 3 indirect E");
    assert_eq!(out, [user, user, kernel, user, kernel]);
}

#[test]
fn a_context_after_an_address_determines_its_instruction_set() {
    let mut code = Pieces::default();
    // A32: b . ; A64: not a branch
    code.add(Address(0x1000), words(&[0xeaff_fffe, RET]));
    let out = run(
        STACK,
        &code,
        &[address(0x1000), context(0, Isa::A32), atoms("E")],
    );
    assert_eq!(out[1], "1000-1004 1 branch E");
    let out = run(
        STACK,
        &code,
        &[address(0x1000), context(0, Isa::A64), atoms("E")],
    );
    assert_eq!(out[1], "1000-1008 2 indirect E");
}

#[test]
fn code_without_waypoints_is_bounded() {
    let mut code = Pieces::default();
    code.add(Address(0), vec![0; 8 << 20]);
    let near_end = address(0x7f_fff0);
    let out = run(
        STACK,
        &code,
        &[address(8), atoms("EEE"), near_end, atoms("E")],
    );
    assert_eq!(out.len(), 64 + 1 + 2);
    // At least 1024 instructions, up to an aligned address.
    assert_eq!(out[0], "8-2000 2046 other E");
    assert_eq!(out[1], "2000-3000 1024 other E");
    assert!(out[64].starts_with("NotReached"), "{}", out[64]);
    assert_eq!(out[65..], ["7ffff0-800000 4 other E", "missing 800000"]);
    // Lines to exceptions are bounded too.
    let out = run(STACK, &code, &[address(8), exception(0x40_0000)]);
    assert!(out[0].starts_with("NotReached"), "{}", out[0]);
}

#[test]
fn lines_without_waypoints_share_their_blocks() {
    for isa in [Isa::A64, Isa::A32, Isa::T32] {
        let mut code = Pieces::default();
        // T32: instructions of 32 bits that lie across aligned addresses.
        let filler = if isa == Isa::T32 { 0xea4f_u16 } else { 0 };
        code.add(Address(0), filler.to_le_bytes().repeat(1 << 19));
        let mut flow = Flow::new(STACK, code);
        let mut log = Log::default();
        for start in 0..1000 {
            let element = Element::Address {
                address: Address(start * 4 + 2 * u64::from(isa == Isa::T32)),
                isa,
            };
            for element in [element, atoms("E")] {
                flow.element(BufferOffset(0), element, &mut log);
            }
            log.0.clear();
        }
        let blocks = flow.blocks();
        let most = (0..blocks.len())
            .map(|id| blocks.hot[id].instructions)
            .max();
        assert!(blocks.len() < 1000 + 200, "{isa:?}: {}", blocks.len());
        assert!(most <= Some(4096), "{isa:?}: {most:?}");
    }
}

#[test]
fn instruction_sets_that_are_not_followed_are_gaps() {
    let mut code = Pieces::default();
    code.add(Address(0), vec![0; 8]);
    let jazelle = Element::Address {
        address: Address(0),
        isa: Isa::Jazelle,
    };
    let out = run(STACK, &code, &[jazelle, atoms("EE")]);
    assert_eq!(out, ["NotFollowed { address: Address(0), isa: Jazelle }"]);
}

#[test]
fn an_emptied_cache_changes_nothing() {
    let small = FlowConfig {
        most_blocks: 4,
        ..STACK
    };
    let elements: Vec<_> = [address(0x1000)]
        .into_iter()
        .chain("EEEEE".chars().map(|atom| atoms(&atom.to_string())))
        .collect();
    assert_eq!(
        run(small, calls(), &elements),
        run(STACK, calls(), &elements)
    );
}
