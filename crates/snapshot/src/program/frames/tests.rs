use super::*;
use gimli::{BaseAddresses, CfaRule, DebugFrame, LittleEndian, Register, RegisterRule};
use gimli::{UnwindContext, UnwindSection};

const START: u64 = 0xffff_8000_0800_0000;

/// The location of the caller's frame before an instruction: the register and number that give the
/// caller's stack pointer, and the location of x30; `None` if the caller is not known.
type Found = Option<(u16, i64, Option<i64>)>;

fn rows(section: &[u8], count: usize) -> Vec<Found> {
    let mut frames = DebugFrame::new(section, LittleEndian);
    frames.set_address_size(8);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let row = |at: usize| {
        let address = START + 4 * at as u64;
        let row = frames
            .unwind_info_for_address(&bases, &mut context, address, DebugFrame::cie_from_offset)
            .unwrap();
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            panic!("{row:?}");
        };
        let place = match row.register(Register(30)) {
            Some(RegisterRule::Undefined) | None => return None,
            Some(RegisterRule::SameValue) => None,
            Some(RegisterRule::Offset(offset)) => Some(offset),
            other => panic!("{other:?}"),
        };
        Some((register.0, offset, place))
    };
    (0..count).map(row).collect()
}

fn bytes(code: &[u32]) -> Vec<u8> {
    code.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn of(code: &[u32]) -> Vec<Found> {
    let bytes = bytes(code);
    let function = Code {
        name: "function",
        start: START,
        bytes: &bytes,
    };
    rows(&debug_frame(&[function], false), code.len())
}

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
// stp x29, x30, [sp, #-32]!; mov x29, sp; ldp x29, x30, [sp], #32
const PUSH: u32 = 0xa9be_7bfd;
const FRAME: u32 = 0x9100_03fd;
const POP: u32 = 0xa8c2_7bfd;
const LEAF: Found = Some((31, 0, None));
const PUSHED: Found = Some((31, 32, Some(-32 + 8)));
const INSIDE: Found = Some((29, 32, Some(-32 + 8)));

fn branch(words: i32) -> u32 {
    0x1400_0000 | words as u32 & 0x03ff_ffff
}

fn call(words: i32) -> u32 {
    0x9400_0000 | words as u32 & 0x03ff_ffff
}

/// cbz x0
fn if_zero(words: i32) -> u32 {
    0xb400_0000 | (words as u32 & 0x7_ffff) << 5
}

#[test]
fn a_frame_record_is_made_and_dropped() {
    // Two NOPs for the tracer come first; GDB's own analysis mistakes them for the function's body.
    let code = [NOP, NOP, PUSH, FRAME, call(100), POP, RET];
    let wanted = [LEAF, LEAF, LEAF, PUSHED, INSIDE, INSIDE, LEAF];
    assert_eq!(of(&code), wanted);
}

#[test]
fn a_frame_record_is_made_on_one_of_two_paths() {
    // Shrink-wrapping: the code before and after has no frame.
    let code = [if_zero(6), PUSH, FRAME, call(100), POP, RET, NOP, RET];
    let wanted = [LEAF, LEAF, PUSHED, INSIDE, INSIDE, LEAF, LEAF, LEAF];
    let found = of(&code);
    assert_eq!(found, wanted);
}

#[test]
fn what_follows_a_call_that_does_not_return_is_another_path() {
    // If x0 is not zero, a frame is made and a function called that does not return; otherwise, the
    // leaf continues.
    let code = [if_zero(4), PUSH, FRAME, call(100), NOP, RET];
    assert_eq!(of(&code), [LEAF, LEAF, PUSHED, INSIDE, LEAF, LEAF]);
    // The call returns; the code before the frame is made is unreached.
    let code = [
        branch(4),
        NOP,
        NOP,
        NOP,
        PUSH,
        FRAME,
        call(100),
        branch(1),
        POP,
        RET,
    ];
    let found = of(&code);
    assert_eq!(found[1..4], [None; 3]);
    assert_eq!(found[4..], [LEAF, PUSHED, INSIDE, INSIDE, INSIDE, LEAF]);
}

#[test]
fn a_caller_that_does_not_follow_from_the_code_is_not_known() {
    // The return address is lost in a call; in the second case the stack pointer is replaced.
    let move_sp = 0x9100_001f;
    assert_eq!(of(&[call(100), RET]), [LEAF, None]);
    assert_eq!(of(&[move_sp, RET]), [LEAF, None]);
    // With a frame record, the switch to another stack does not matter.
    let code = [PUSH, FRAME, move_sp, NOP];
    assert_eq!(of(&code), [LEAF, PUSHED, INSIDE, INSIDE]);
    // The saved return address is overwritten: str xzr, [sp, #8].
    let code = [PUSH, 0xf900_07ff, RET];
    assert_eq!(of(&code), [LEAF, PUSHED, Some((31, 32, None))]);
    // Paths with different stack pointers meet: sub sp, sp, #16.
    let code = [if_zero(2), 0xd100_43ff, NOP, RET];
    assert_eq!(of(&code), [LEAF, LEAF, None, None]);
}

#[test]
fn parts_elsewhere_start_in_the_state_of_their_branch() {
    let main = bytes(&[PUSH, FRAME, if_zero(4), POP, RET, NOP]);
    let part = bytes(&[call(100), branch(-5)]);
    let functions = [
        Code {
            name: "function",
            start: START,
            bytes: &main,
        },
        Code {
            name: "function.cold",
            start: START + main.len() as u64,
            bytes: &part,
        },
    ];
    let found = rows(&debug_frame(&functions, false), 8);
    assert_eq!(found[..6], [LEAF, PUSHED, INSIDE, INSIDE, LEAF, None]);
    assert_eq!(found[6..], [INSIDE, INSIDE]);
    // Code that is both called and branched into with a frame has no known caller.
    let called = [
        functions[0],
        Code {
            name: "other",
            ..functions[1]
        },
    ];
    assert_eq!(rows(&debug_frame(&called, false), 8)[6..], [None, None]);
}

/// stp xA, xB, [sp, #offset]
fn store_pair(a: u32, b: u32, offset: u32) -> u32 {
    0xa900_03e0 | (offset / 8) << 15 | b << 10 | a
}

#[test]
fn the_targets_of_a_switch_have_its_frame() {
    // add x0, x2, w0, sxtb #2; br x0; then two cases.
    let (add, jump) = (0x8b20_8840, 0xd61f_0000);
    let cases = [call(100), branch(3), call(100), branch(1), POP, RET];
    let code = [&[PUSH, FRAME, add, jump], &cases[..]].concat();
    let found = of(&code);
    assert_eq!(found[4..], [INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, LEAF]);
    // An indirect tail call, which replaces a return, has no cases.
    let code = [&[PUSH, POP, NOP, jump], &cases[..]].concat();
    assert_eq!(of(&code)[4..8], [None; 4]);
}

#[test]
fn exceptions_are_passed_by_the_saved_registers() {
    let mut code: Vec<u32> = (0..15)
        .map(|n| store_pair(2 * n, 2 * n + 1, 16 * n))
        .collect();
    // mrs x22, elr_el1; stp x30, x21, [sp, #240]; stp x22, x23, [sp, #256]; stp x29, x22, [sp, #304];
    // add x29, sp, #304; bl
    code.extend([
        0xd538_4036,
        store_pair(30, 21, 240),
        store_pair(22, 23, 256),
    ]);
    code.extend([store_pair(29, 22, 304), 0x9104_c3fd, call(100), branch(100)]);
    // The other order works too.
    let mut other = code.clone();
    other[17..20].rotate_left(1);
    let bytes = bytes(&code);
    let entry = Code {
        name: "el1h_64_irq",
        start: START,
        bytes: &bytes,
    };
    let section = debug_frame(&[entry], false);
    let found = rows(&section, code.len());
    let from = code.len() - 2;
    assert_eq!(of(&other), of(&code));
    assert_eq!(found[..from], vec![None; from]);
    // x30 is at offset 240 of the saved registers, which start 304 bytes below x29.
    assert_eq!(found[from], Some((29, 16, Some(240 - 304 - 16))));
    // Without one of the registers, nothing is known.
    let mut less = code.clone();
    less[4] = NOP;
    assert_eq!(of(&less)[from], None);
    // Nor if the frame record is at an odd place; other functions are not affected.
    let mut odd = code.clone();
    // add x29, sp, #284
    odd[19] = 0x9104_73fd;
    let (odd, leaf) = (self::bytes(&odd), self::bytes(&[RET]));
    let after = START + odd.len() as u64;
    let functions = [("el1h_64_irq", START, &odd), ("leaf", after, &leaf)];
    let functions = functions.map(|(name, start, bytes)| Code { name, start, bytes });
    let found = rows(&debug_frame(&functions, false), code.len() + 1);
    assert_eq!(found[from], None);
    assert_eq!(found[code.len()], LEAF);
}

#[test]
fn labels_inside_of_functions_are_not_called() {
    // After a call at the end, another function may follow, or the rest of the same one after a
    // label.
    for (second, wanted) in [
        // A function: aligned, or starting with BTI.
        (bytes(&[RET]), LEAF),
        (bytes(&[0xd503_245f, RET]), LEAF),
        (bytes(&[NOP, RET]), None),
    ] {
        let first = match second.len() {
            4 => bytes(&[NOP, PUSH, FRAME, call(100)]),
            _ => bytes(&[PUSH, FRAME, call(100)]),
        };
        let functions = [
            Code {
                name: "function",
                start: START,
                bytes: &first,
            },
            Code {
                name: "next",
                start: START + first.len() as u64,
                bytes: &second,
            },
        ];
        let count = first.len() / 4;
        let found = rows(&debug_frame(&functions, false), count + 1);
        assert_eq!(found[count], wanted);
    }
}

#[test]
fn signed_return_addresses_are_stripped() {
    let bytes = bytes(&[0xd503_233f, PUSH, FRAME, NOP, POP, 0xd503_23bf, RET]);
    let function = Code {
        name: "function",
        start: START,
        bytes: &bytes,
    };
    let section = debug_frame(&[function], true);
    let mut frames = DebugFrame::new(&section, LittleEndian);
    frames.set_address_size(8);
    let mut context = UnwindContext::new();
    for at in 0..7 {
        let address = START + 4 * at;
        let bases = BaseAddresses::default();
        let from = DebugFrame::cie_from_offset;
        let row = frames.unwind_info_for_address(&bases, &mut context, address, from);
        let rule = row.unwrap().register(Register(30));
        let is_expression = matches!(rule, Some(RegisterRule::ValExpression(_)));
        assert!(is_expression, "{at}: {rule:?}");
    }
}

#[test]
fn any_code_ends() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Half of the instructions are short branches.
        match random & 3 {
            0 => if_zero((random >> 8) as i32 % 64),
            1 => call((random >> 8) as i32 % 64),
            _ => (random >> 16) as u32,
        }
    });
    let code: Vec<u32> = words.take(20_000).collect();
    for part in code.chunks(200) {
        of(part);
    }
}

/// No instruction after the `switch` is reached by a path or continues to another.
#[test]
fn unreached_code_is_searched_once() {
    // add x0, x1, x2; br x0
    let mut code = vec![0x8b02_0020, 0xd61f_0000];
    code.resize(LONGEST, branch(0));
    let bytes = bytes(&code);
    let function = Code {
        name: "function",
        start: START,
        bytes: &bytes,
    };
    let start = std::time::Instant::now();
    assert!(!debug_frame(&[function], false).is_empty());
    assert!(start.elapsed().as_secs() < 5);
}
