//! Faults of hand-written snapshots: registers by name, and those in the memory of a Cortex-M.

use crate::support::gdb::{armsnap, write_snapshot};

/// What `armsnap fault` says of a core with these registers and dumps.
fn fault(kind: &str, registers: &[(&str, u64)], dumps: &[(u64, &[u32])]) -> String {
    let mut device = format!("class=core\ntype={kind}\n");
    let mut files = Vec::new();
    for (number, (address, words)) in dumps.iter().enumerate() {
        let name = format!("dump{number}.bin");
        device += &format!("[dump{number}]\naddress={address:#x}\nfile={name}\n");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        files.push((name, bytes));
    }
    device += "[regs]\n";
    for (name, value) in registers {
        let bits = if *value >> 32 == 0 { 32 } else { 64 };
        device += &format!("{name}(size:{bits})={value:#x}\n");
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
    let snapshot = write_snapshot(&[("cpu", &device)], &files);
    let run = armsnap()
        .arg("fault")
        .arg(snapshot.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

#[track_caller]
fn says(shown: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(shown.contains(wanted), "{wanted:?} in\n{shown}");
    }
}

/// R0 to R3, R12, LR, the return address and xPSR.
const FRAME: [u32; 8] = [0x2000_0100, 1, 2, 3, 12, 0x201, 0x200, 0x0100_0000];
/// ldr r1, [r0, #4]
const LOAD: [u32; 1] = [0x0000_6841];
const STACK: u64 = 0x2000_1000;

/// The registers of a core in an exception.
fn handler(exception: u64, link: u64) -> [(&'static str, u64); 4] {
    [
        ("R15", 0x300),
        ("R14", link),
        ("MSP", STACK),
        ("xPSR", 0x0100_0000 | exception),
    ]
}

#[test]
fn fault_registers_are_read_by_name_and_from_memory() {
    let by_name = [("CFSR", 0x8200), ("HFSR", 1 << 30), ("BFAR", 0x2000_0104)];
    let named = [&handler(3, 0xFFFF_FFF9)[..], &by_name].concat();
    let dumps: [(u64, &[u32]); 2] = [(0x200, &LOAD), (STACK, &FRAME)];
    let shown = fault("Cortex-M4", &named, &dumps);
    says(
        &shown,
        &[
            "cpu: HardFault, escalated from BusFault: bus error of a data access at 0x20000104\n",
            "\n  instruction  0x200: ldr r1, [r0, #4]\n",
            "\n  address      0x20000104, from r0 (0x20000100): in the SRAM region, ",
            "\n  CFSR         0x00008200: PRECISERR, BFARVALID\n",
            "sp=0x20001020\n",
        ],
    );
    let scs: &[u32] = &[0x8200, 1 << 30, 0, 0, 0x2000_0104, 0];
    let dumps = [dumps[0], dumps[1], (0xE000_ED28, scs)];
    let read = fault("Cortex-M4", &handler(3, 0xFFFF_FFF9), &dumps);
    assert_eq!(
        read,
        shown.replace("  BFAR", "  DFSR         0x00000000\n  BFAR")
    );
    let parts = [
        ("MMFSR", 0),
        ("BFSR", 0x82),
        ("UFSR", 0),
        ("HFSR", 1 << 30),
        ("BFAR", 0x2000_0104),
    ];
    let named = [&handler(3, 0xFFFF_FFF9)[..], &parts].concat();
    assert_eq!(fault("Cortex-M4", &named, &dumps[..2]), shown);
}

#[test]
fn frames_have_the_forms_of_the_architecture() {
    let cause = [("CFSR", 1 << 25)];
    let frame = |link: u64, stack: &[u32]| {
        let registers = [&handler(6, link)[..], &cause].concat();
        fault("Cortex-M33", &registers, &[(0x200, &LOAD), (STACK, stack)])
    };
    // With floating-point registers, and a padding word.
    let mut padded = FRAME;
    padded[7] |= 1 << 9;
    says(
        &frame(0xFFFF_FFE9, &padded),
        &["pc=0x200", "sp=0x2000106c\n"],
    );
    // Additional state of a secure core.
    let signature = [0xFEFA_125B, 0, 4, 5, 6, 7, 8, 9, 10, 11];
    let secure = [&signature[..], &FRAME].concat();
    says(
        &frame(0xFFFF_FFD9, &secure),
        &["r0=0x20000100", "sp=0x20001048\n"],
    );
    // The handler pushed registers and called a function.
    let pushed = [&[4, 5, 6, 0xFFFF_FFF9][..], &FRAME].concat();
    says(
        &frame(0x305, &pushed),
        &[
            "pc=0x200",
            "note: inferred: the handler changed LR; EXC_RETURN 0xfffffff9 was found",
        ],
    );
    // It pushed registers only.
    says(
        &frame(0xFFFF_FFF9, &pushed),
        &["pc=0x200", "sp=0x20001030\n"],
    );
    // A nested handler was interrupted, and the stack goes on with another frame.
    let mut nested = FRAME;
    nested[7] |= 11;
    let nested = [&nested[..], &[1, 0xFFFF_FFF9], &FRAME].concat();
    says(
        &frame(0xFFFF_FFF1, &nested),
        &["xpsr=0x100000b", "Handler mode was interrupted"],
    );
    // What is there cannot be a frame.
    let lost = "the exception frame was not found";
    says(&frame(0xFFFF_FFF1, &FRAME), &[lost]);
    says(&frame(0xFFFF_FFFD, &FRAME), &[lost]);
    says(&frame(0xFFFF_FFF9, &FRAME[..7]), &[lost]);
    assert!(!frame(0xFFFF_FFF9, &FRAME[..7]).contains("r0="));
}

#[test]
fn what_is_not_known_is_not_shown() {
    let state = |cfsr: u64| {
        let registers = [
            &handler(3, 0xFFFF_FFF9)[..],
            &[("CFSR", cfsr), ("HFSR", 1 << 30), ("MMFAR", 4), ("BFAR", 8)],
        ];
        fault(
            "Cortex-M3",
            &registers.concat(),
            &[(0x200, &LOAD), (STACK, &FRAME)],
        )
    };
    let stacking = state(1 << 12);
    says(
        &stacking,
        &[
            "bus error of stacking at an exception entry",
            "stacking failed",
        ],
    );
    assert!(
        !stacking.contains("r0=") && !stacking.contains("BFAR"),
        "{stacking}"
    );
    let late = state(1 << 10);
    says(&late, &["\n  reported at  0x200: ldr r1, [r0, #4]\n"]);
    assert!(!late.contains("address  "), "{late}");
    // Cores without fault registers.
    let shown = fault(
        "Cortex-M0",
        &handler(3, 0xFFFF_FFF9),
        &[(0x200, &LOAD), (STACK, &FRAME)],
    );
    says(
        &shown,
        &[
            "cpu: HardFault\n",
            "interrupted  0x200",
            "the cause is not known",
        ],
    );
    // Registers that software has not cleared.
    let thread = [("R15", 0x300), ("xPSR", 0x0100_0000), ("CFSR", 1 << 24)];
    let shown = fault("Cortex-M3", &thread, &[]);
    says(
        &shown,
        &[
            "not in a fault handler; recorded: UsageFault: unaligned",
            "when it was is not known",
        ],
    );
    let none = [("R15", 0x300), ("xPSR", 0x0100_0000), ("CFSR", 0)];
    says(
        &fault("Cortex-M3", &none, &[]),
        &["neither its registers nor its memory tell of a fault"],
    );
    let lockup = [("R15", 0xEFFF_FFFE), ("xPSR", 0x0100_0003), ("CFSR", 1)];
    says(
        &fault("Cortex-M3", &lockup, &[]),
        &["lockup: a fault in a fault handler"],
    );
    let secure = [
        &handler(7, 0xFFFF_FFF9)[..],
        &[("SFSR", 0x48), ("SFAR", 0x1000_0000)],
    ]
    .concat();
    says(
        &fault("Cortex-M33", &secure, &[]),
        &["SecureFault: non-secure access to secure memory at 0x10000000"],
    );
}

#[test]
fn syndromes_of_aarch64_are_in_words() {
    let state = |esr: u64, more: &[(&str, u64)]| {
        let registers = [
            ("PC", 0xFFFF_0000_0000_0200),
            ("CPSR", 0x3C5),
            ("VBAR_EL1", 0xFFFF_0000_0000_0000),
            ("ESR_EL1", esr),
            ("FAR_EL1", 0x18),
            ("ELR_EL1", 0xFFFF_0000_0010_0000),
            ("SPSR_EL1", 5),
        ];
        // ldr x1, [x0, #8]
        let code: (u64, &[u32]) = (0xFFFF_0000_0010_0000, &[0xF940_0401]);
        fault("Cortex-A53", &[&registers[..], more].concat(), &[code])
    };
    let shown = state(0x9600_0004, &[("X0", 0x10)]);
    says(
        &shown,
        &[
            "last exception taken to EL1: data abort: translation fault, level 0 on read at 0x18\n",
            "instruction  0xffff000000100000: ldr x1, [x0, #8]\n",
            "address      0x18, from x0 (0x10): null plus 0x18, ",
            "ESR_EL1      0x96000004: EC 0x25, ISS 0x4\n",
        ],
    );
    says(
        &state(0x9200_004F, &[]),
        &["data abort from a lower exception level: permission fault, level 3 on write"],
    );
    says(&state(0xF200_0800, &[]), &["BRK #0x800\n"]);
    says(&state(0x5600_0000, &[]), &["SVC #0\n", "reported at"]);
    says(
        &state(0x7200_0002, &[]),
        &["pointer authentication failure\n"],
    );
    says(
        &state(0x8600_0006, &[]),
        &[
            "instruction abort: translation fault, level 2 at 0x18\n",
            "not fetched",
        ],
    );
    // FnV: FAR has no address.
    let shown = state(0x9600_0410, &[]);
    assert!(!shown.contains("0x18"), "{shown}");
    // Not at the entry of a vector, or in a handler: x0 may have changed.
    for (pc, over) in [
        (0xFFFF_0000_0000_0204, false),
        (0xFFFF_0000_0020_0000, true),
    ] {
        let registers = [
            ("PC", pc),
            ("CPSR", 0x3C5),
            ("VBAR_EL1", 0xFFFF_0000_0000_0000),
            ("X0", 0x10),
            ("ESR_EL1", 0x9600_0004),
            ("FAR_EL1", 0x18),
            ("ELR_EL1", 0xFFFF_0000_0010_0000),
        ];
        let code: (u64, &[u32]) = (0xFFFF_0000_0010_0000, &[0xF940_0401]);
        let shown = fault("Cortex-A53", &registers, &[code]);
        assert!(!shown.contains("from x0"), "{shown}");
        let note = "whether it is still being handled is not known";
        assert_eq!(shown.contains(note), over, "{shown}");
    }
}

#[test]
fn aborts_of_aarch32_are_in_words() {
    let state = |pc: u64, mode: u64, more: &[(&str, u64)]| {
        let registers = [("R15", pc), ("CPSR", mode), ("R14", 0x8008), ("SPSR", 0x13)];
        // str r1, [r0]
        fault(
            "Cortex-A9",
            &[&registers[..], more].concat(),
            &[(0x8000, &[0xE580_1000])],
        )
    };
    let data = [("DFSR", 0x805), ("DFAR", 0x44)];
    let shown = state(0x10, 0x1D7, &data);
    says(
        &shown,
        &[
            "in Abort mode; data abort: translation fault, level 1 on write at 0x44\n",
            "instruction  0x8000: str r1, [r0]\n",
            "DFSR         0x00000805: translation fault, level 1\n",
        ],
    );
    let shown = state(0x9010, 0x1D7, &data);
    says(&shown, &["which instruction faulted is not known"]);
    assert!(!shown.contains("0x8000"), "{shown}");
    says(
        &state(0x9000, 0x1D3, &data),
        &["not in Abort mode; recorded: data abort"],
    );
    says(
        &state(0xC, 0x1D7, &[("IFSR", 0xD), ("IFAR", 0x8004)]),
        &["prefetch abort: permission fault, level 1 at 0x8004"],
    );
    says(
        &state(0x4, 0x1DB, &[]),
        &[
            "in Undefined mode; undefined instruction",
            "instruction  0x8004",
        ],
    );
    // The long-descriptor format.
    says(
        &state(0x10, 0x1D7, &[("DFSR", 0x207), ("DFAR", 4)]),
        &["translation fault, level 3 on read"],
    );
    let asynchronous = state(0x10, 0x1D7, &[("DFSR", 0x406), ("DFAR", 4)]);
    says(&asynchronous, &["asynchronous external abort"]);
    assert!(!asynchronous.contains("at 0x4"), "{asynchronous}");
}

#[test]
fn bits_of_other_faults_are_not_the_cause() {
    let state = |exception: u64, cfsr: u64, hfsr: u64| {
        let status = [("CFSR", cfsr), ("HFSR", hfsr), ("BFAR", 0x2000_0104)];
        let registers = [&handler(exception, 0xFFFF_FFF9)[..], &status].concat();
        fault("Cortex-M4", &registers, &[(0x200, &LOAD), (STACK, &FRAME)])
    };
    let nmi = state(2, 0x8200, 0);
    says(&nmi, &["cpu: NMI\n", "interrupted  0x200", "PRECISERR"]);
    assert!(!nmi.contains("address  "), "{nmi}");
    let usage = state(6, 1 << 25 | 0x8200, 0);
    says(&usage, &["cpu: UsageFault: integer division by zero\n"]);
    let both = state(3, 1 << 25 | 1 << 10, 1 << 30);
    says(&both, &["BusFault and UsageFault", "interrupted  0x200"]);
    // Zeros on the stack, and numbers that are not EXC_RETURN.
    let zeros = [&handler(5, 0xFFFF_FFF9)[..], &[("CFSR", 0x200)]].concat();
    let shown = fault("Cortex-M4", &zeros, &[(0, &LOAD), (STACK, &[0; 64])]);
    says(&shown, &["the exception frame was not found"]);
    let numbers = [&handler(5, 0x305)[..], &[("CFSR", 0x200)]].concat();
    let stack = [&[0xFFFF_FFEA][..], &FRAME].concat();
    let shown = fault("Cortex-M4", &numbers, &[(0x200, &LOAD), (STACK, &stack)]);
    says(&shown, &["the exception frame was not found"]);
    // An interrupt of AArch64 leaves ESR as it was.
    let interrupted = [
        ("PC", 0xFFFF_0000_0000_0280),
        ("CPSR", 0x3C5),
        ("VBAR_EL1", 0xFFFF_0000_0000_0000),
        ("ESR_EL1", 0x9600_0004),
        ("FAR_EL1", 0x18),
        ("ELR_EL1", 0xFFFF_0000_0010_0000),
        ("X0", 0x10),
    ];
    let code: (u64, &[u32]) = (0xFFFF_0000_0010_0000, &[0xF940_0401]);
    let shown = fault("Cortex-A53", &interrupted, &[code]);
    says(
        &shown,
        &[
            "interrupted  0xffff000000100000",
            "nor whether ELR belongs to it",
        ],
    );
    assert!(!shown.contains("from x0"), "{shown}");
}
