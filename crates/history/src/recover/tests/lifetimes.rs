//! Slots of the stack, while they belong to a frame and when they are free.

use super::*;

const SUB_SP_16: u32 = 0xd100_43ff;
const ADD_SP_16: u32 = 0x9100_43ff;
const SUB_SP_32: u32 = 0xd100_83ff;
const ADD_SP_32: u32 = 0x9100_83ff;
const STR_X3_SP: u32 = 0xf900_03e3;
const LDR_X4_SP: u32 = 0xf940_03e4;
const STR_X3_SP_16: u32 = 0xf900_0be3;
const LDR_X4_SP_16: u32 = 0xf940_0be4;
const LDR_X7_SP: u32 = 0xf940_03e7;
const MOV_X7_9: u32 = 0xd280_0127;
const MOV_SP_X9: u32 = 0x9100_013f;
const LDR_X5_X7: u32 = 0xf940_00e5;

/// Memory from 0x1000 on, with the stack pointer at its end, 0x1020.
fn stack(memory: &[u64], registers: &[(u8, u64)]) -> FinalState {
    let mut all = facts(memory, registers);
    all.registers[Location::SP.index()] = Some(0x1020);
    all
}

#[test]
fn stores_miss_the_slot_of_a_frame() {
    // It is unknown where x2 points.
    let code = [SUB_SP_16, STR_X3_SP, STR_X1_X2, LDR_X4_SP, ADD_SP_16];
    let all = stack(&[0, 0, 0, 0], &[(4, 7)]);
    let mut window = solved(&code, &all);
    let found = before(&mut window, &all, &code, 1, 3).unwrap();
    assert_eq!((found.value, found.status), (7, Status::Inferred));
}

#[test]
fn stores_may_hit_what_was_a_slot_of_an_earlier_frame() {
    let code = [
        SUB_SP_16, STR_X3_SP, ADD_SP_16, // a function that stores to 0x1010
        SUB_SP_32, STR_X1_X2, ADD_SP_32, // another one, which may store to an array there
        MOV_X6_9,
    ];
    let all = stack(&[0, 0, 7, 0], &[(6, 9)]);
    let mut window = solved(&code, &all);
    assert_eq!(before(&mut window, &all, &code, 1, 3), None);
    // Between two frames nothing writes there.
    let code = [SUB_SP_16, STR_X3_SP, ADD_SP_16, STR_X1_X2, MOV_X6_9];
    let mut window = solved(&code, &all);
    let found = before(&mut window, &all, &code, 1, 3).unwrap();
    assert_eq!((found.value, found.status), (7, Status::Inferred));
    // But if the stack pointer came from elsewhere, there may be several stacks.
    let code = [
        MOV_SP_X9, SUB_SP_16, STR_X3_SP, ADD_SP_16, STR_X1_X2, MOV_X6_9,
    ];
    let mut window = solved(&code, &all);
    assert_eq!(before(&mut window, &all, &code, 2, 3), None);
    // Without that store, the final contents are what was stored.
    let code = [SUB_SP_16, STR_X3_SP, ADD_SP_16, MOV_X6_9];
    let mut window = solved(&code, &all);
    assert_eq!(before(&mut window, &all, &code, 1, 3), proved(7));
}

#[test]
fn stores_may_hit_a_slot_that_a_computed_address_reaches() {
    let code = [
        SUB_SP_32,
        STR_X3_SP_16,
        LDR_X7_SP, // known to be a pointer only once the slot is
        LDR_X5_X7,
        STR_X1_X2,
        LDR_X4_SP_16,
        MOV_X7_9,
        ADD_SP_32,
        MOV_X6_9,
    ];
    let all = stack(&[0x1010, 0, 7, 0], &[(4, 7)]);
    let mut window = solved(&code, &all);
    let found = before(&mut window, &all, &code, 3, 7).unwrap();
    assert_eq!((found.value, found.status), (0x1010, Status::Inferred));
    assert_eq!(before(&mut window, &all, &code, 1, 3), None);
    // It reaches another slot.
    let all = stack(&[0x1018, 0, 7, 0], &[(4, 7)]);
    let mut window = solved(&code, &all);
    let found = before(&mut window, &all, &code, 1, 3).unwrap();
    assert_eq!((found.value, found.status), (7, Status::Inferred));
}

#[test]
fn what_the_kernel_fills_is_no_slot() {
    const ADD_X1_SP_0: u32 = 0x9100_03e1;
    let code = [
        SUB_SP_16,
        STR_X3_SP,
        ADD_X1_SP_0, // read(2) of eight bytes to the slot
        SVC_0,
        LDR_X4_SP,
        MOV_X6_9,
        ADD_SP_16,
    ];
    let read = |number| [(2, 8), (4, 7), (6, 9), (8, number)];
    // The command of an ioctl(2) is the address here, which is not a known command.
    for number in [63, 29] {
        let all = stack(&[0, 0, 7, 0], &read(number));
        let mut window = solved(&code, &all);
        assert_eq!(before(&mut window, &all, &code, 1, 3), None, "{number}");
    }
    // write(2) reads it.
    let all = stack(&[0, 0, 7, 0], &read(64));
    let mut window = solved(&code, &all);
    assert_eq!(before(&mut window, &all, &code, 1, 3), proved(7));
}
