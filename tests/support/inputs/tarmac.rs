//! Tarmac traces of a small program of A64.

use std::fmt::Write as _;

/// Where the program begins, and its data.
pub const BEGIN: u64 = 0x1000;
pub const DATA: u64 = 0x2000;

/// An executed instruction: address, code, a register and its value afterwards, an access (store or
/// load) to [`DATA`] and its value.
pub type Step = (u64, u32, Option<(&'static str, u64)>, Option<(bool, u64)>);

/// What is executed.
pub const STEPS: [Step; 12] = [
    (0x1000, 0xd280_00a0, Some(("X0", 5)), None), // mov x0, #5
    (0x1004, 0xd280_00e1, Some(("X1", 7)), None), // mov x1, #7
    (0x1008, 0x8b01_0002, Some(("X2", 12)), None), // add x2, x0, x1
    (0x100c, 0xf900_0062, None, Some((true, 12))), // str x2, [x3]
    (0x1010, 0xd280_0000, Some(("X0", 0)), None), // mov x0, #0
    (0x1014, 0xf940_0064, Some(("X4", 12)), Some((false, 12))), // ldr x4, [x3]
    (0x1018, 0xb400_0040, None, None),            // cbz x0, 0x1020
    (0x1020, 0xd280_0002, Some(("X2", 0)), None), // mov x2, #0
    (0x1024, 0xf900_0060, None, Some((true, 0))), // str x0, [x3]
    (0x1028, 0x9100_0481, Some(("X1", 13)), None), // add x1, x4, #1
    (0x102c, 0x1400_0000, None, None),            // b .
    (0x102c, 0x1400_0000, None, None),
];

/// The registers at the start.
const START: [(&str, u64); 2] = [("X3", DATA), ("SP_EL1", 0x3000)];

/// The trace of a model.
pub fn of_model() -> String {
    let mut out = String::new();
    for (name, value) in START {
        let _ = writeln!(out, "0 clk cpu0 R {name} {value:016x}");
    }
    out.push_str("0 clk cpu0 R cpsr 600003c5\n0 clk cpu0 E DebugEvent_HaltingDebugState 0\n");
    for (number, (address, code, register, access)) in STEPS.iter().enumerate() {
        let _ = writeln!(
            out,
            "{number} clk cpu0 IT ({number}) {address:08x} {code:08x} O EL1h_n : text"
        );
        if let Some((store, value)) = access {
            let kind = if *store { "MW8" } else { "MR8" };
            let (high, low) = (value >> 32, value & 0xffff_ffff);
            let _ = writeln!(
                out,
                "{number} clk cpu0 {kind} {DATA:08x}:0000{DATA:08x}_NS {high:08x}_{low:08x}"
            );
        }
        if let Some((name, value)) = register {
            let _ = writeln!(out, "{number} clk cpu0 R {name} {value:016X}");
        }
    }
    out
}

/// The trace of an RTL simulation.
pub fn of_rtl() -> String {
    let mut out = "Tarmac Text Rev 3t\n          0 tic ES  EXC Reset\n".to_owned();
    for (name, value) in START {
        let _ = writeln!(out, "                    R {name} {value:016x}");
    }
    out.push_str("                    R CPSR 600003c5\n");
    for (number, (address, code, register, access)) in STEPS.iter().enumerate() {
        let _ = writeln!(
            out,
            "{number:>11} tic ES  ({address:016x}:{code:08x}) O el1h_n:         TEXT     x0"
        );
        if let Some((store, value)) = access {
            let kind = if *store { "ST" } else { "LD" };
            let _ = writeln!(
                out,
                "                    {kind} {DATA:016x} ........ ........ {:08x} {:08x}    NS:{DATA:08x}    NM",
                value >> 32,
                value & 0xffff_ffff
            );
        }
        if let Some((name, value)) = register {
            let _ = writeln!(out, "                    R {name} {value:016x}");
        }
    }
    out
}
