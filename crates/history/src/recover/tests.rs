//! Small executions, written by hand.

mod faults;
mod floats;
mod inferred;
mod interrupted;
mod lifetimes;
mod pieces;

use super::execution::steps::{Step, Steps, Taken};
use super::facts::final_state::{FinalMemory, FinalState, Others};
use super::memory::regions::Class;
use super::queries::writes::Wanted;
use super::status::{Known, Status};
use super::window::Window;
use crate::timeline::Direction;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::{Location, a64};
use armsnap_snapshot::program::go::GoCode;
use armsnap_snapshot::program::landing_pads::LandingPads;
use armsnap_snapshot::stop::Cancel;
use std::collections::HashMap;
use std::sync::Arc;

const STR_X1_X2: u32 = 0xf900_0041;
const STR_X3_X4: u32 = 0xf900_0083;
const LDR_X5_X2: u32 = 0xf940_0045;
const ADD_X2_X2_8: u32 = 0x9100_2042;
const MOV_X6_9: u32 = 0xd280_0126;
const SVC_0: u32 = 0xd400_0001;

/// Words of memory from 0x1000 on.
struct Words(Vec<u64>);

impl FinalMemory for Words {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let from = usize::try_from(address.wrapping_sub(0x1000)).unwrap_or(usize::MAX);
        let known = bytes.get(from..).unwrap_or(&[]);
        let count = known.len().min(out.len());
        out[..count].copy_from_slice(&known[..count]);
        count
    }

    fn is_constant(&self, _: u64) -> bool {
        false
    }
}

fn facts(memory: &[u64], registers: &[(u8, u64)]) -> FinalState {
    let mut all = [None; Location::KEPT];
    for &(number, value) in registers {
        all[usize::from(number)] = Some(value);
    }
    FinalState {
        architecture: Architecture::AArch64,
        microcontroller: None,
        status: None,
        registers: all,
        memory: Arc::new(Words(memory.into())),
        others: Others::None,
        without_kernel: true,
        addresses: None,
        replay: None,
        landing_pads: LandingPads::default(),
        go: GoCode::default(),
    }
}

/// Solves the execution of these instructions, in order.
fn solved(code: &[u32], facts: &FinalState) -> Window {
    solved_with(code, facts, |_| ())
}

/// As [`solved`], with steps that are changed first.
fn solved_with(code: &[u32], facts: &FinalState, change: impl FnOnce(&mut Steps)) -> Window {
    let mut window = Window::at_end(0x400 + 4 * code.len() as u64);
    let numbers: Vec<u32> = (0x400..)
        .step_by(4)
        .zip(code)
        .map(|(pc, &word)| window.templates.add(pc, Isa::A64, &a64::decode(word, pc)))
        .collect();
    window.steps.push(Step::Halted);
    for number in numbers.into_iter().rev() {
        window.steps.push(Step::Instruction(number));
    }
    change(&mut window.steps);
    window.work(facts, &Cancel::default()).unwrap();
    window
}

/// A register before the instruction with an index.
fn before(
    window: &mut Window,
    facts: &FinalState,
    code: &[u32],
    index: usize,
    x: u8,
) -> Option<Known<u64>> {
    let step = (code.len() - index) as u32;
    window
        .solved(facts)
        .unwrap()
        .registers(step)
        .get(Location::general(x))
}

const fn proved(value: u64) -> Option<Known<u64>> {
    Some(Known {
        value,
        status: Status::Proved,
    })
}

#[test]
fn a_store_that_may_have_hit_bars_what_was_stored_before() {
    let code = [STR_X1_X2, STR_X3_X4, LDR_X5_X2, MOV_X6_9];
    // It is unknown where x4 points: the 7 that was loaded may be x3.
    let open = facts(&[7, 1], &[(2, 0x1000), (5, 7)]);
    let mut window = solved(&code, &open);
    assert_eq!(before(&mut window, &open, &code, 0, 1), None);
    assert_eq!(before(&mut window, &open, &code, 2, 2), proved(0x1000));
    // x4 points elsewhere, and the 7 was in x1.
    let apart = facts(&[7, 1], &[(2, 0x1000), (4, 0x1008), (5, 7)]);
    let mut window = solved(&code, &apart);
    assert_eq!(before(&mut window, &apart, &code, 0, 1), proved(7));
    assert_eq!(before(&mut window, &apart, &code, 0, 3), proved(1));
    // Both point to the same address: x3 was loaded, and nothing is left of x1.
    let same = facts(&[7, 1], &[(2, 0x1000), (4, 0x1000)]);
    let mut window = solved(&code, &same);
    assert_eq!(before(&mut window, &same, &code, 0, 1), None);
    assert_eq!(before(&mut window, &same, &code, 0, 3), proved(7));
    // The value of a register before it is overwritten is unknown.
    assert_eq!(before(&mut window, &same, &code, 3, 6), None);
}

#[test]
fn a_store_of_other_bytes_missed() {
    let code = [STR_X1_X2, STR_X3_X4, LDR_X5_X2, MOV_X6_9];
    let inferred = proved(7).map(|known| Known {
        status: Status::Inferred,
        ..known
    });
    // It is unknown where x4 points. A zero may have been stored at an odd address over the upper
    // bytes of the 7, which compilers do not do; the 7 itself may be x3.
    for (x3, wanted) in [(0x55_0002_1441, proved(7)), (0, inferred), (7, None)] {
        let all = facts(&[7, 1], &[(2, 0x1000), (3, x3), (5, 7)]);
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 0, 1), wanted, "{x3:#x}");
        let mut out = [None];
        window.solved(&all).unwrap().memory(3, 0x1000, &mut out);
        assert_eq!(out[0].is_some(), wanted.is_some(), "{x3:#x}");
    }
}

#[test]
fn frame_records_of_open_calls_are_not_written_by_others() {
    const STR_X5_SP: u32 = 0xf900_03e5;
    let code = [STR_X5_SP, STR_X3_X4];
    let mut all = facts(&[0, 0, 0x1020, 0x500, 0, 0x600, 7], &[(5, 0), (29, 0x1010)]);
    all.registers[Location::SP.index()] = Some(0x1000);
    let mut window = solved(&code, &all);
    // x4 is unknown. There are records at 0x1010 and 0x1020; after them is something else.
    for (address, wanted) in [
        (0x1010, true),
        (0x1018, true),
        (0x1028, true),
        (0x1030, false),
    ] {
        let mut out = [None];
        window.solved(&all).unwrap().memory(2, address, &mut out);
        let found = out[0].map(|known: Known<u8>| known.status);
        assert_eq!(found, wanted.then_some(Status::Inferred), "{address:#x}");
    }
}

#[test]
fn memory_has_what_it_had_then() {
    let code = [STR_X1_X2, ADD_X2_X2_8, STR_X1_X2];
    let all = facts(&[5, 5, 6], &[(1, 5), (2, 0x1008)]);
    let mut window = solved(&code, &all);
    let mut byte = |index: usize, address| {
        let mut out = [None];
        window
            .solved(&all)
            .unwrap()
            .memory((code.len() - index) as u32, address, &mut out);
        out[0].map(|known: Known<u8>| known.value)
    };
    assert_eq!(byte(3, 0x1000), Some(5));
    // It is unknown before it was stored.
    assert_eq!(byte(2, 0x1008), None);
    assert_eq!(byte(1, 0x1000), Some(5));
    assert_eq!(byte(0, 0x1000), None);
    assert_eq!(byte(0, 0x1010), Some(6));
    assert_eq!(byte(0, 0x1018), None);
}

#[test]
fn a_contradiction_takes_the_proof_from_memory() {
    // The load read 7, and nobody wrote since, but memory has 5.
    let code = [LDR_X5_X2, MOV_X6_9];
    let all = facts(&[5], &[(2, 0x1000), (5, 7), (6, 9)]);
    let mut window = solved(&code, &all);
    assert!(window.sharing().contradicts);
    let mut out = [None];
    window.solved(&all).unwrap().memory(2, 0x1000, &mut out);
    assert_eq!(out, [None]);
    assert_eq!(before(&mut window, &all, &code, 0, 2), proved(0x1000));
    // A constant that differs from the final value: the final state belongs to another time.
    let other = facts(&[7], &[(2, 0x1000), (5, 7), (6, 8)]);
    let mut window = solved(&code, &other);
    assert_eq!(before(&mut window, &other, &code, 0, 2), None);
    assert_eq!(before(&mut window, &other, &code, 2, 6), proved(9));
}

#[test]
fn an_unknown_system_call_bars_memory_and_its_result() {
    let code = [STR_X1_X2, SVC_0, MOV_X6_9];
    let all = |number| facts(&[5], &[(0, 3), (1, 5), (2, 0x1000), (6, 9), (8, number)]);
    // write(2) does not write memory; ioctl may.
    for (number, reaches) in [(64, true), (29, false)] {
        let all = all(number);
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 1, 0), None);
        assert_eq!(before(&mut window, &all, &code, 2, 0), proved(3));
        let mut out = [None];
        window.solved(&all).unwrap().memory(1, 0x1000, &mut out);
        assert!(out[0].is_some());
        let access = window.solved(&all).unwrap().access_before(2);
        let first = window.solved(&all).unwrap().solver.first_barrier(
            (Class::Anything, 0x200),
            false,
            1..u32::MAX,
        );
        assert_eq!(
            first.is_none_or(|first| first >= access),
            reaches,
            "{number}"
        );
    }
}

#[test]
fn memory_that_a_system_call_takes_away_is_not_followed() {
    const MOV_X0_0: u32 = 0xd280_0000;
    const MOV_X0_9: u32 = 0xd280_0120;
    const MOV_X0_20000: u32 = 0xd2a0_0040;
    // Number, argument, advice, result, and whether the earlier contents of 0x1000 are kept.
    for (number, argument, advice, result, stays) in [
        // munmap(2) of five bytes, by pages.
        (215, MOV_X0_20000, 0x1000, 0, true),
        (215, MOV_X0_0, 0x1000, 0, false),
        // mmap(2).
        (222, MOV_X0_0, 0x1000, 0x2_0000, true),
        (222, MOV_X0_0, 0x1000, 0, false),
        // madvise(2): unknown advice discards the contents.
        (233, MOV_X0_20000, 0x1000, 0, true),
        (233, MOV_X0_0, 0x1000, 0, false),
        // brk(2) that queries, and one that may make the heap shorter.
        (214, MOV_X0_0, 0x1000, 0x2_0000, true),
        (214, MOV_X0_9, 0x1000, 9, false),
    ] {
        let code = [STR_X1_X2, argument, SVC_0, MOV_X6_9];
        let all = facts(
            &[5],
            &[(0, result), (1, 5), (2, advice), (6, 9), (8, number)],
        );
        let mut window = solved(&code, &all);
        let access = window.solved(&all).unwrap().access_before(3);
        // That brk(2) discards nothing is inferred.
        for (class, stays) in [
            (Class::Anything, stays),
            (Class::Other, stays || number == 214),
        ] {
            let first = window.solved(&all).unwrap().solver.first_barrier(
                (class, 0x200),
                false,
                1..u32::MAX,
            );
            let reaches = first.is_none_or(|first| first >= access);
            assert_eq!(reaches, stays, "{number} {argument:x}");
        }
    }
}

#[test]
fn a_block_that_is_cleared_is_no_larger_than_2_kib() {
    const DC_ZVA_X3: u32 = 0xd50b_7423;
    let code = [STR_X1_X2, DC_ZVA_X3, MOV_X6_9];
    let cleared = |at| facts(&[5], &[(2, 0x1000), (3, at), (6, 9)]);
    for at in [0x17ff, 0x1000] {
        let all = cleared(at);
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 0, 1), None, "{at:x}");
    }
    for at in [0x1800, 0xff8, 0xab00_0000_0000_1800] {
        let all = cleared(at);
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 0, 1), proved(5), "{at:x}");
        assert_eq!(byte(&mut window, &all, &code, 1), Some(5), "{at:x}");
    }
    let unknown = facts(&[5], &[(2, 0x1000), (6, 9)]);
    let mut window = solved(&code, &unknown);
    assert_eq!(before(&mut window, &unknown, &code, 0, 1), None);
}

/// The first byte of memory before the instruction with an index.
fn byte(window: &mut Window, facts: &FinalState, code: &[u32], index: usize) -> Option<u8> {
    let mut out = [None];
    window
        .solved(facts)
        .unwrap()
        .memory((code.len() - index) as u32, 0x1000, &mut out);
    out[0].map(|known: Known<u8>| known.value)
}

#[test]
fn memory_of_another_address_space_is_not_joined() {
    const STR_X1_SP: u32 = 0xf900_03e1;
    const LDR_X5_SP: u32 = 0xf940_03e5;
    const NOP: u32 = 0xd503_201f;
    const MSR_TPIDR_EL1_X7: u32 = 0xd518_d087;
    let mut all = facts(&[7], &[(5, 7)]);
    all.registers[Location::SP.index()] = Some(0x1000);
    // TTBR0_EL1, TTBR1_EL1, VTTBR_EL2, HCR_EL2, SCTLR_EL1, CONTEXTIDR_EL1, _EL2.
    let changes = [
        0xd518_2007,
        0xd518_2027,
        0xd51c_2107,
        0xd51c_1107,
        0xd518_1007,
        0xd518_d027,
        0xd51c_d027,
    ];
    let others = [NOP, MSR_TPIDR_EL1_X7];
    for (word, same) in changes
        .map(|word| (word, false))
        .into_iter()
        .chain(others.map(|word| (word, true)))
    {
        let code = [STR_X1_SP, word, LDR_X5_SP];
        let mut window = solved(&code, &all);
        let wanted = if same { proved(7) } else { None };
        assert_eq!(before(&mut window, &all, &code, 0, 1), wanted, "{word:#x}");
        assert_eq!(byte(&mut window, &all, &code, 2), Some(7), "{word:#x}");
        assert_eq!(
            byte(&mut window, &all, &code, 1).is_some(),
            same,
            "{word:#x}"
        );
        // Registers are not affected.
        let sp = window.solved(&all).unwrap().registers(3).get(Location::SP);
        assert_eq!(sp, proved(0x1000), "{word:#x}");
    }
}

#[test]
fn the_trace_separates_address_spaces_too() {
    let code = [STR_X1_X2, LDR_X5_X2, MOV_X6_9];
    let all = facts(&[7], &[(2, 0x1000), (5, 7)]);
    let writes = Wanted {
        reads: false,
        writes: true,
    };
    // No change; one between the store and the load; one after the load.
    for (other_space, x1) in [(None, proved(7)), (Some(3), None), (Some(2), None)] {
        let mut window = solved_with(&code, &all, |steps| {
            steps.other_space = other_space;
            steps.number();
        });
        assert_eq!(
            before(&mut window, &all, &code, 0, 1),
            x1,
            "{other_space:?}"
        );
        assert_eq!(before(&mut window, &all, &code, 0, 2), proved(0x1000));
        assert_eq!(byte(&mut window, &all, &code, 2), Some(7));
        let is_known = byte(&mut window, &all, &code, 1).is_some();
        assert_eq!(is_known, other_space != Some(2));
        // The store is found, or may be one.
        let level = crate::recover::Level::Inferred;
        let range = 0x1000..0x1008;
        let found = window.solved(&all).unwrap().accesses(
            (1, Some(3)),
            range,
            Direction::Backward,
            writes,
            level,
        );
        assert_eq!(found.hit.is_some(), other_space.is_none());
        assert_eq!(found.may_have.is_some(), other_space.is_some());
    }
}

#[test]
fn each_word_of_a_watched_range_may_have_been_written() {
    let writes = Wanted {
        reads: false,
        writes: true,
    };
    // read(2) of 8 bytes into 0x1008.
    let code = [MOV_X6_9, SVC_0, MOV_X6_9];
    let all = facts(&[7, 1], &[(1, 0x1008), (2, 8), (6, 9), (8, 63)]);
    for (range, is_known) in [
        (0x1000..0x1008, false),
        (0x1008..0x1010, true),
        (0x1000..0x1010, true),
        (0xff8..0x1010, true),
        (0x1010..0x1020, false),
        (0..u64::MAX, true),
    ] {
        let mut window = solved_with(&code, &all, Steps::number);
        let level = crate::recover::Level::Inferred;
        let steps = (1, Some(3));
        let direction = Direction::Backward;
        let found =
            window
                .solved(&all)
                .unwrap()
                .accesses(steps, range.clone(), direction, writes, level);
        assert_eq!(found.may_have.is_some(), is_known, "{range:x?}");
    }
}

#[test]
fn memory_that_may_be_at_two_addresses_is_not_proved() {
    const STR_X5_X4: u32 = 0xf900_0085;
    // mmap(2) elsewhere, writable: MAP_PRIVATE, MAP_SHARED; and MAP_SHARED, read-only.
    for (flags, protection, status) in [
        (2, 3, Status::Proved),
        (1, 3, Status::Inferred),
        (1, 1, Status::Proved),
    ] {
        let code = [STR_X5_X4, SVC_0, MOV_X6_9];
        let arguments = [(1, 0x1000), (2, protection), (3, flags), (8, 222)];
        let others = [(0, 0x2_0000), (4, 0x1000), (6, 9)];
        let all = facts(&[7], &[&arguments[..], &others].concat());
        let mut window = solved(&code, &all);
        let stored = proved(7).map(|known| Known { status, ..known });
        assert_eq!(
            before(&mut window, &all, &code, 0, 5),
            stored,
            "{flags} {protection}"
        );
        // A store to what was mapped just before.
        let code = [SVC_0, STR_X5_X4, MOV_X6_9];
        let there = [(0, 0x1000), (4, 0x1000), (6, 9)];
        let all = facts(&[7], &[&arguments[..], &there].concat());
        let mut window = solved(&code, &all);
        let stored = stored.filter(|known| known.status == Status::Proved);
        assert_eq!(before(&mut window, &all, &code, 1, 5), stored);
    }
}

#[test]
fn a_random_number_changes_the_flags() {
    const CMP_X2_0: u32 = 0xf100_005f;
    const CSET_W1_NE: u32 = 0x1a9f_07e1;
    // MRS of TPIDR_EL0, RNDR and RNDRRS, to x0 and to xzr.
    for (word, w1) in [
        (0xd53b_d040, proved(0)),
        (0xd53b_2400, None),
        (0xd53b_2420, None),
        (0xd53b_241f, None),
    ] {
        let code = [CMP_X2_0, word, CSET_W1_NE, MOV_X6_9];
        let all = facts(&[], &[(2, 0), (6, 9)]);
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 3, 1), w1, "{word:#x}");
    }
}

#[test]
fn a_kernel_behind_the_end_of_the_trace_may_have_written() {
    let before_last = |code: &[u32], all: &FinalState, number: Option<u16>| {
        let mut window = solved_with(code, all, |steps| {
            let taken = number.map(|number| Taken {
                step: 0,
                number,
                ..Taken::default()
            });
            steps.taken.extend(taken);
        });
        before(&mut window, all, code, 2, 5)
    };
    let mut all = facts(&[7], &[(0, 3), (2, 0x1000), (5, 7), (6, 9), (8, 64)]);
    let (call, other) = (
        [STR_X1_X2, LDR_X5_X2, SVC_0],
        [STR_X1_X2, LDR_X5_X2, MOV_X6_9],
    );
    // A program recorded without its kernel ends where the kernel took a signal or stopped it.
    assert_eq!(before_last(&call, &all, None), proved(7));
    assert_eq!(before_last(&other, &all, Some(14)), proved(7));
    // A kernel that is not traced may have handled the call or the interrupt, but not the entry to
    // debug state (IHI 0064H, 6.4.8).
    all.without_kernel = false;
    assert_eq!(before_last(&call, &all, None), None);
    assert_eq!(before_last(&other, &all, Some(14)), None);
    assert_eq!(before_last(&other, &all, Some(1)), proved(7));
}

#[test]
fn a_register_is_found_however_long_ago_it_was_written() {
    const MOV_X7_1: u32 = 0xd280_0027;
    // x6 is not read before it is written again.
    let mut code = vec![MOV_X6_9];
    code.extend([ADD_X2_X2_8; 1000]);
    code.extend([MOV_X6_9 + (1 << 5), MOV_X7_1]);
    let last = facts(&[], &[(2, 0x9000)]);
    let mut window = solved(&code, &last);
    for index in [1, 500, 1001] {
        assert_eq!(before(&mut window, &last, &code, index, 6), proved(9));
    }
    assert_eq!(before(&mut window, &last, &code, 1002, 6), proved(10));
    // Nothing wrote x7 before.
    assert_eq!(before(&mut window, &last, &code, 1002, 7), None);
}
