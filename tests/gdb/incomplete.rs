//! Snapshots with any part of the registers of a core: no set of them makes GDB fail.

use std::fmt::Write as _;

use crate::support::gdb::{session, testdata, write_snapshot};

/// Numbers that look random; the same in every run.
struct Random(u64);

impl Random {
    /// xorshift64 (G. Marsaglia, "Xorshift RNGs").
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

type Registers = Vec<(String, u32)>;

fn row(letter: char, count: u32, bits: u32) -> impl Iterator<Item = (String, u32)> {
    (0..count).map(move |number| (format!("{letter}{number}"), bits))
}

fn named(names: &[&str], bits: u32) -> Registers {
    names
        .iter()
        .map(|name| ((*name).to_owned(), bits))
        .collect()
}

/// The types of the cores of an architecture, and their registers in sets that tools save together.
fn kinds() -> [(&'static [&'static str], Vec<Registers>); 3] {
    let words = |letter, count| row(letter, count, 32).collect::<Registers>();
    let aarch64 = vec![
        row('X', 31, 64).collect(),
        named(&["SP", "PC"], 64),
        named(&["CPSR"], 32),
        row('V', 32, 128).collect(),
        row('D', 32, 64).collect(),
        words('S', 32),
        words('W', 31),
        named(&["FPSR", "FPCR"], 32),
        named(
            &["SCTLR_EL1", "TTBR0_EL1", "TCR_EL1", "SP_EL0", "SP_EL1"],
            64,
        ),
        named(
            &[
                "vg",
                "tpidr",
                "ra_sign_state",
                "svcr",
                "tag_ctl",
                "position",
            ],
            64,
        ),
        named(&["pauth_dmask", "pauth_cmask"], 64),
        row('z', 32, 256).chain(row('p', 16, 32)).collect(),
    ];
    let aarch32 = vec![
        words('R', 13),
        named(&["SP", "LR", "PC"], 32),
        named(&["CPSR"], 32),
        row('D', 32, 64).collect(),
        row('Q', 16, 128).collect(),
        words('S', 32),
        named(&["FPSCR", "fps"], 32),
        named(
            &["SCTLR", "SP_SVC", "R8_FIQ", "SPSR_IRQ", "tpidruro", "isa"],
            32,
        ),
        row('f', 8, 96).collect(),
    ];
    let m_profile = vec![
        words('R', 13),
        named(&["SP", "LR", "PC"], 32),
        named(&["xPSR"], 32),
        named(&["MSP", "PSP"], 32),
        named(&["MSP_NS", "PSP_NS", "MSP_S", "PSP_S"], 32),
        row('D', 16, 64).collect(),
        words('S', 32),
        named(&["FPSCR", "VPR"], 32),
        named(
            &["CONTROL", "PRIMASK", "BASEPRI", "APSR", "IPSR", "EPSR"],
            32,
        ),
    ];
    [
        (&["Cortex-A53", "Cortex-R82", "ARMv8-A", "core"], aarch64),
        (&["Cortex-A9", "Cortex-R5", "ARM7TDMI", "ARMv7-A"], aarch32),
        (
            &["Cortex-M0", "Cortex-M4", "Cortex-M33", "Cortex-M55"],
            m_profile,
        ),
    ]
}

/// A core with a part of the registers, and the memory at 0x20000000.
fn core(random: &mut Random, types: &[&str], sets: &[Registers]) -> String {
    let mut text = format!("class=core\ntype={}\n[regs]\n", random.one_of(types));
    for set in sets {
        let chance = random.one_of(&[0, 0, 1, 9, 10, 10]);
        for (name, bits) in set {
            if random.below(10) >= chance {
                continue;
            }
            let any = random.next() as u32;
            let stack = 0x2000_0000 + 4 * random.below(64) as u32;
            // Addresses, codes of exception returns, states of processors.
            let value =
                random.one_of(&[0, stack, 0x20, 0xffff_fff9, 0xffff_ffbc, 0x0100_0003, any]);
            writeln!(text, "{name}(size:{bits})={value:#x}").unwrap();
        }
    }
    text + "[dump]\nfile=ram.bin\naddress=0x20000000\n"
}

const COMMANDS: [&str; 16] = [
    "info threads",
    "bt",
    "info registers",
    "info all-registers",
    "info float",
    "info vector",
    "print $sp",
    "print $q0",
    "x/i $pc",
    "stepi",
    "reverse-stepi",
    "finish",
    "up",
    "thread 1",
    "info frame",
    "bt",
];

/// The words at the start of the memory, as GDB reads them in the end.
const LAST: &str = "output *(unsigned *)0x20000000";

#[test]
fn no_set_of_registers_makes_gdb_fail() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ram: Vec<u8> = (0..4096).map(|_| random.next() as u8).collect();
    let word = u32::from_le_bytes(ram[..4].try_into().unwrap());
    let all = kinds();
    for index in 0..36 {
        let (types, sets) = &all[index % 3];
        let first = core(&mut random, types, sets);
        let second = core(&mut random, types, sets);
        let devices = [("c0", &*first), ("c1", &*second)];
        let count = 1 + index % 2;
        let snapshot = write_snapshot(&devices[..count], &[("ram.bin", &ram)]);
        // Cores without a known type may be of another architecture.
        let commands = [&COMMANDS[..], &["echo \\nlast:", LAST, "echo \\n"]].concat();
        let text = session(snapshot.path(), &["--core", "c0"], &commands);
        let ends = format!("last:{word}\n");
        assert!(text.contains(&ends), "{first}\n{text}");
        for fault in ["internal-error", "Recursive internal problem", "alias"] {
            assert!(!text.contains(fault), "{fault}: {first}\n{text}");
        }
        if count == 2 && types[0] != "Cortex-A53" {
            let text = session(snapshot.path(), &[], &commands);
            assert!(text.contains(&ends), "{first}\n{second}\n{text}");
        }
    }
}

#[test]
fn stack_pointers_of_security_states_alone_are_shown() {
    let registers = "class=core\ntype=Cortex-M33\n[regs]\nPC(size:32)=0x20000010\n\
        SP(size:32)=0x20000040\nLR(size:32)=0xfffffff9\nxPSR(size:32)=0x01000003\n\
        MSP_NS(size:32)=0x20000020\nPSP_NS(size:32)=0x20000030\n\
        MSP_S(size:32)=0x20000040\nPSP_S(size:32)=0x20000050\n\
        [dump]\nfile=ram.bin\naddress=0x20000000\n";
    let snapshot = write_snapshot(&[("c0", registers)], &[("ram.bin", &[0; 256])]);
    let commands = ["print/x $msp", "print/x $psp_ns", "print/x $msp_s"];
    let text = session(snapshot.path(), &[], &commands);
    for wanted in ["= 0x20000040", "= 0x20000030"] {
        assert!(text.contains(wanted), "{text}");
    }
    // Without SP, which decides between them, none of these stack pointers is in use.
    let registers = registers.replace("SP(size:32)=0x20000040\nLR", "LR");
    let snapshot = write_snapshot(&[("c0", &registers)], &[("ram.bin", &[0; 256])]);
    let text = session(snapshot.path(), &[], &commands);
    assert!(
        text.contains("$1 = void") || text.contains("$1 = <unavailable>"),
        "{text}"
    );
    assert!(text.contains("$2 = 0x20000030"), "{text}");
}

#[test]
fn code_of_the_other_security_state_ends_the_back_trace() {
    let registers = "class=core\ntype=Cortex-M33\n[regs]\nPC(size:32)=0x20000010\n\
        SP(size:32)=0x20000040\nLR(size:32)=0xffffffbd\nxPSR(size:32)=0x01000003\n\
        [dump]\nfile=ram.bin\naddress=0x20000000\n";
    let ram = [0x00, 0xbf].repeat(128);
    let snapshot = write_snapshot(&[("c0", registers)], &[("ram.bin", &ram)]);
    let mut gdb = crate::support::gdb::armsnap();
    gdb.arg("gdb").arg(snapshot.path());
    gdb.args(["--", "-batch", "-ex", "bt"]);
    let text = crate::support::gdb::text(&crate::support::gdb::run(&mut gdb));
    assert!(
        text.contains(
            "beyond the exception is not that of this code (it ran in the other security state)"
        ),
        "{text}"
    );
    assert!(text.contains("#1  0xffffffb"), "{text}");
    assert!(!text.contains("\n#2"), "{text}");
}

#[test]
fn a_return_code_with_an_ordinary_link_register_does_not_end_gdb() {
    let registers = "class=core\ntype=Cortex-M4\n[regs]\nPC(size:32)=0xfffffff9\n\
        SP(size:32)=0x20000040\nLR(size:32)=0x20000088\nR7(size:32)=0x20000010\n\
        [dump]\nfile=ram.bin\naddress=0x20000000\n";
    let snapshot = write_snapshot(&[("c0", registers)], &[("ram.bin", &[0; 256])]);
    let text = session(snapshot.path(), &[], &["bt", "print/x $link_register"]);
    assert!(text.contains("lr is shown as link_register"), "{text}");
    assert!(text.contains("$1 = 0x20000088"), "{text}");
}

#[test]
fn the_core_with_a_pc_comes_first() {
    let without = "class=core\ntype=Cortex-A53\n";
    let with = "class=core\ntype=Cortex-A53\n[regs]\nPC(size:64)=0x20000000\n\
        SP(size:64)=0x20000040\n[dump]\nfile=ram.bin\naddress=0x20000000\n";
    let ram = [0x1f, 0x20, 0x03, 0xd5].repeat(64);
    let snapshot = write_snapshot(&[("c0", without), ("c1", with)], &[("ram.bin", &ram)]);
    let text = session(
        snapshot.path(),
        &[],
        &["info threads", "x/i $pc", "thread 1", "bt"],
    );
    assert!(text.contains("* 2    Thread 2 \"c1\""), "{text}");
    assert!(text.contains("0x20000000:\tnop"), "{text}");
    assert!(text.contains("note: c0: its pc is not known"), "{text}");
    assert!(!text.contains("note: c1: its pc"), "{text}");
}

#[test]
fn memory_without_a_pc_is_read_and_initial_values_are_not() {
    let snapshot = testdata("mps2-m4");
    let place = tempfile::tempdir().unwrap();
    let import = |core: &str, to: &str, more: &[&str]| {
        let ram = format!("{}@0x20000000", snapshot.join("ram.bin").display());
        let to = place.path().join(to);
        let mut command = crate::support::gdb::armsnap();
        command
            .args(["import", "--memory", &ram, "--core", core])
            .args(more)
            .arg(&to);
        let output = crate::support::gdb::run(&mut command);
        assert!(
            output.status.success(),
            "{}",
            crate::support::gdb::text(&output)
        );
        to
    };
    let program = snapshot.join("program.elf");
    let program = ["--elf", program.to_str().unwrap()];
    let with = import("Cortex-M4", "with", &program);
    let text = session(
        &with,
        &[],
        &["print boiler.state", "print boiler.last.time"],
    );
    assert!(text.contains("$1 = HEATING"), "{text}");
    assert!(text.contains("$2 = 100"), "{text}");
    assert!(!text.contains("Python Exception"), "{text}");
    for core in ["Cortex-M33", "Cortex-A9", "Cortex-A53"] {
        let to = import(core, core, &[]);
        let text = session(&to, &[], &["x/2xb 0x20000000", "stepi", "x/1xb 0x20000000"]);
        let bytes = std::fs::read(snapshot.join("ram.bin")).unwrap();
        let line = format!("0x20000000:\t{:#04x}\t{:#04x}", bytes[0], bytes[1]);
        assert!(text.contains(&line), "{core}: {text}");
        assert_eq!(text.matches("0x20000000:").count(), 2, "{core}: {text}");
    }
}
