//! Random translation tables, walked by QEMU and by armsnap.
//!
//! All tables come from one pool, whose entries point into it at random, so that walks run in
//! circles, end anywhere, or find blocks where none may be. A bare-metal program of ours switches
//! translation on; QEMU's monitor then gives the physical address of a virtual one (`gva2gpa`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use armsnap::arch::Space;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::translation::{FaultReason, Step};

use super::skip;

/// Where the tables are.
const POOL: u64 = 0x4800_0000;
/// The size of the pool in bytes.
const POOL_SIZE: u64 = 0x20_0000;
/// Where the program finds its registers.
const REGISTERS: u64 = 0x4700_0000;
/// The program's page, which is mapped to itself.
const CODE: u64 = 0x4008_0000;
/// A page that is mapped to another one, so that it shows when translation is on.
const PROBE: u64 = 0x4010_0000;
const PROBED: u64 = 0x4020_0000;
const PAGES: [(u64, u64); 2] = [(CODE, CODE), (PROBE, PROBED)];
/// The tables that lead to these pages, before the others.
const FORCED: u64 = 0x4_0000;
const FORCED2: u64 = 0x8_0000;

/// A form of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Stage 1 of AArch64: bits of a page, bits of low and of high addresses.
    A64 { granule: u32, low: u32, high: u32 },
    /// The same with stage 2: 4 KiB pages, and 40 bits from level 1, of which there are two tables.
    TwoStages,
    /// AArch32's 32-bit descriptors, with TTBCR.N.
    Short(u32),
    /// AArch32's 64-bit descriptors, with T0SZ and T1SZ.
    Long(u32, u32),
}

impl Form {
    fn cpu(self) -> &'static str {
        match self {
            Self::Short(_) | Self::Long(..) => "cortex-a15",
            // A Cortex-A57 has neither 16 KiB pages nor more than 48 bits.
            Self::A64 { granule: 14, .. } | Self::A64 { low: 49.., .. } => "max",
            _ => "cortex-a57",
        }
    }
}

/// Numbers that are the same in each run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Tables, and the registers that use them.
struct Tables {
    form: Form,
    bytes: Vec<u8>,
    /// The registers of the snapshot.
    registers: Vec<(&'static str, u64)>,
    /// The registers that the program sets.
    program: Vec<u64>,
}

impl Tables {
    fn random(form: Form, numbers: &mut Numbers) -> Self {
        let mut out = Self {
            form,
            bytes: Vec::new(),
            registers: Vec::new(),
            program: Vec::new(),
        };
        while out.bytes.len() < POOL_SIZE as usize {
            match form {
                Form::Short(_) => out.bytes.extend(short_entry(numbers).to_le_bytes()),
                Form::A64 { granule, low, .. } => {
                    let mut entry = long_entry(numbers, granule, 44);
                    // Bits 9 and 8 are those of an address: tables are in the pool.
                    if low > 48 && granule != 16 && entry & 3 == 3 {
                        entry &= !0x300;
                    }
                    out.bytes.extend(entry.to_le_bytes());
                }
                _ => out.bytes.extend(long_entry(numbers, 12, 38).to_le_bytes()),
            }
        }
        match form {
            Form::A64 { granule, low, high } => out.a64(granule, low, high),
            Form::TwoStages => out.two_stages(),
            Form::Short(n) => out.short(n),
            Form::Long(low, high) => out.long(low, high),
        }
        out
    }

    fn put(&mut self, address: u64, value: u64, size: usize) {
        let at = (address - POOL) as usize;
        self.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// Maps pages by tables of their own, the first of which is at `table`: bits of a page, of an
    /// address, and of what an entry of the first table leaves.
    fn force(
        &mut self,
        pages: [(u64, u64); 2],
        table: u64,
        (granule, bits, first_shift): (u32, u32, u32),
        page: u64,
    ) {
        let stride = granule - 3;
        for (from, to) in pages {
            let (mut at, mut shift, mut level) = (table, first_shift, 1);
            let mut index_bits = bits - first_shift;
            loop {
                let index = from >> shift & ((1 << index_bits) - 1);
                if shift == granule {
                    self.put(at + 8 * index, to | page, 8);
                    break;
                }
                let next = table + (level << granule);
                self.put(at + 8 * index, next | 3, 8);
                (at, shift, index_bits) = (next, shift - stride, stride);
                level += 1;
            }
        }
    }

    fn a64(&mut self, granule: u32, low: u32, high: u32) {
        let first = |bits: u32| {
            let stride = granule - 3;
            granule + ((bits - granule).div_ceil(stride) - 1) * stride
        };
        let (tg0, tg1) = match granule {
            12 => (0, 2),
            14 => (2, 1),
            _ => (1, 3),
        };
        let sizes = u64::from(64 - low) | u64::from(64 - high) << 16;
        // With more than 48 bits: 52-bit output, and DS if pages are small (FEAT_LVA, FEAT_LPA2).
        let ips = match (low > 48, granule) {
            (false, _) => 5 << 32,
            (true, 16) => 6 << 32,
            (true, _) => 6 << 32 | 1 << 59,
        };
        let tcr = ips | tg1 << 30 | tg0 << 14 | sizes;
        let (ttbr0, ttbr1) = (POOL + FORCED, POOL + 3 * FORCED);
        // With DS, bits 9 and 8 are those of an address.
        let page = if tcr >> 59 != 0 { 0x403 } else { 0x703 };
        self.force(PAGES, ttbr0, (granule, low, first(low)), page);
        self.program = vec![tcr, ttbr0, ttbr1, 1];
        self.registers = vec![
            ("TCR_EL1", tcr),
            ("TTBR0_EL1", ttbr0),
            ("TTBR1_EL1", ttbr1),
            ("SCTLR_EL1", 0x00c5_0839),
        ];
        if self.form.cpu() == "cortex-a57" {
            self.registers.push(("ID_AA64MMFR0_EL1", 0x1124));
        }
    }

    fn two_stages(&mut self) {
        // Intermediate addresses are those of the pool itself for a part of the tables.
        self.a64(12, 48, 48);
        let vtcr = 4 << 16 | 1 << 6 | 24 | 1 << 31;
        let vttbr = POOL + FORCED2;
        self.force([(CODE, CODE), (PROBED, PROBED)], vttbr, (12, 40, 30), 0x7ff);
        // The pool is mapped to itself, so that tables of stage 1 are found: 2 MiB, one block.
        let (first, second) = (vttbr, vttbr + (1 << 12));
        self.put(first + 8 * (POOL >> 30), second | 3, 8);
        self.put(second + 8 * (POOL >> 21 & 0x1ff), POOL | 0x7fd, 8);
        let hcr = 1 << 31 | 1;
        self.program.extend([vtcr, vttbr, hcr]);
        self.registers
            .extend([("VTCR_EL2", vtcr), ("VTTBR_EL2", vttbr), ("HCR_EL2", hcr)]);
    }

    fn short(&mut self, n: u32) {
        let (ttbr0, ttbr1) = (POOL, POOL + 0x8000);
        for (from, to) in PAGES {
            let section = to & 0xfff0_0000 | 0xc02;
            self.put(ttbr0 + 4 * (from >> 20), section, 4);
        }
        self.program = vec![n.into(), ttbr0, ttbr1, 1];
        self.registers = vec![
            ("TTBCR", n.into()),
            ("TTBR0", ttbr0),
            ("TTBR1", ttbr1),
            ("SCTLR", 0x00c5_0079),
            ("ID_MMFR0", 0x1020_1105),
        ];
    }

    fn long(&mut self, low: u32, high: u32) {
        let ttbcr = 1 << 31 | u64::from(low) | u64::from(high) << 16;
        let (ttbr0, ttbr1) = (POOL + FORCED, POOL + 3 * FORCED);
        let bits = 32 - low;
        let first = 12 + ((bits - 12).div_ceil(9) - 1) * 9;
        self.force(PAGES, ttbr0, (12, bits, first), 0x703);
        self.program = vec![ttbcr, ttbr0, ttbr1, 1];
        self.registers = vec![
            ("TTBCR", ttbcr),
            ("TTBR0_64", ttbr0),
            ("TTBR1_64", ttbr1),
            ("SCTLR", 0x00c5_0079),
        ];
    }

    /// The core as a snapshot has it.
    fn memory(&self) -> CoreMemory {
        let mut device = String::from("[device]\nname=cpu\nclass=core\ntype=");
        let (kind, cpsr) = match self.form {
            Form::Short(_) | Form::Long(..) => ("Cortex-A15", 0x1d3),
            _ => ("Cortex-A57", 0x3c5),
        };
        device += &format!("{kind}\n[regs]\nCPSR={cpsr:#x}\n");
        for (name, value) in &self.registers {
            device += &format!("{name}(size:64)={value:#x}\n");
        }
        device += &format!("[dump1]\nfile=tables\naddress={POOL:#x}\nspace=P\n");
        let mut files = InMemory::default();
        for (name, bytes) in [
            (
                "snapshot.ini",
                b"[snapshot]\nversion=1.0\n[device_list]\na=a.ini\n".to_vec(),
            ),
            ("a.ini", device.into_bytes()),
            ("tables", self.bytes.clone()),
        ] {
            files.0.insert(name.into(), bytes.into());
        }
        let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
        let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        memory.translate(&loaded, 0);
        memory
    }

    /// An address, most of which have the upper bits of a range.
    fn address(&self, numbers: &mut Numbers) -> u64 {
        let number = numbers.next();
        match self.form {
            Form::A64 { low, high, .. } => {
                let bits = if number & 1 << 63 != 0 { high } else { low };
                let within = number >> 1 & ((1 << bits) - 1);
                match numbers.below(40) {
                    0 => number,
                    _ if number >> 63 != 0 => within | !0 << bits,
                    _ => within,
                }
            }
            Form::TwoStages if number >> 63 != 0 => number | 0xffff << 48,
            Form::TwoStages => number & ((1 << 48) - 1),
            Form::Short(_) | Form::Long(..) => number & 0xffff_ffff,
        }
    }
}

/// A place that tables do not have: in RAM without contents, or where nothing is.
fn elsewhere(numbers: &mut Numbers) -> u64 {
    0x4a00_0000 + numbers.below(0x30_0000_0000)
}

fn long_entry(numbers: &mut Numbers, granule: u32, most_bits: u32) -> u64 {
    // All that a page may have but its type and address; it is accessed.
    // EL0, or stage 2, may read it.
    let attributes = numbers.next() & 0xfff0_0000_0000_0b9c | 1 << 10 | 1 << 6;
    let page = !0 << granule;
    let in_pool = (POOL + numbers.below(POOL_SIZE)) & page;
    match numbers.below(40) {
        0..20 => in_pool | attributes | 3,
        20..24 => elsewhere(numbers) & page | attributes | 3,
        // With 64 KiB pages bits 15 to 12 may be those of an address.
        24..33 => {
            let high = numbers.next() & !page & 0xf000;
            elsewhere(numbers) & page | high | attributes | 1
        }
        33 => numbers.next() & ((1 << most_bits) - 1) & page | attributes | 1,
        34 if most_bits > 40 => 1 << 45 | in_pool | attributes | 3,
        35 => in_pool | attributes | 2,
        _ => attributes & !3,
    }
}

fn short_entry(numbers: &mut Numbers) -> u32 {
    let number = numbers.next() as u32;
    let in_pool = (POOL + numbers.below(POOL_SIZE)) as u32;
    match numbers.below(20) {
        0..9 => in_pool & !0x3ff | number & 0x3fc | 1,
        9..14 => number & !3 | 2,
        14..16 => number | 1 << 18 & !1 | 2,
        16..18 => number | 3,
        _ => number & !3,
    }
}

/// QEMU with a monitor.
pub struct Emulator {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    pub fn start(command: &mut Command) -> Self {
        let command = command.args([
            "-nic", "none", "-display", "none", "-serial", "none", "-monitor", "none",
        ]);
        let command = command.args(["-qmp", "stdio"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut out = Self { child, to, from };
        out.line();
        out.execute("qmp_capabilities", &serde_json::json!({}));
        out
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        let read = self.from.read_line(&mut line).unwrap();
        assert!(read > 0, "QEMU ended");
        serde_json::from_str(&line).unwrap()
    }

    /// The reply to a command; events are passed over.
    fn reply(&mut self) -> serde_json::Value {
        loop {
            let line = self.line();
            assert!(line.get("error").is_none(), "{line}");
            if let Some(reply) = line.get("return") {
                return reply.clone();
            }
        }
    }

    pub fn execute(&mut self, name: &str, arguments: &serde_json::Value) -> serde_json::Value {
        let command = serde_json::json!({"execute": name, "arguments": arguments});
        writeln!(self.to, "{command}").unwrap();
        self.reply()
    }

    /// Where addresses are, if they are mapped.
    pub fn physical(&mut self, addresses: &[u64]) -> Vec<Option<u64>> {
        let mut out = Vec::with_capacity(addresses.len());
        // Few at a time, so that neither side waits for the other to read.
        for some in addresses.chunks(32) {
            let mut text = String::new();
            for address in some {
                let line = format!("gva2gpa {address:#x}");
                let arguments = serde_json::json!({"command-line": line});
                let command =
                    serde_json::json!({"execute": "human-monitor-command", "arguments": arguments});
                text += &format!("{command}\n");
            }
            self.to.write_all(text.as_bytes()).unwrap();
            for _ in some {
                let reply = self.reply();
                let reply = reply.as_str().unwrap().trim();
                let found = reply.strip_prefix("gpa: ").map(|number| {
                    let digits = number.strip_prefix("0x").unwrap_or(number);
                    u64::from_str_radix(digits, 16).unwrap()
                });
                assert!(found.is_some() || reply == "Unmapped", "{reply:?}");
                out.push(found);
            }
        }
        out
    }
}

/// Assembles one of the programs.
fn program(name: &str, directory: &Path) -> Option<PathBuf> {
    let compiler = match name {
        "mmu-a64" => "aarch64-linux-gnu-gcc",
        _ => "arm-none-eabi-gcc",
    };
    let top = env!("CARGO_MANIFEST_DIR");
    let output = directory.join("program.elf");
    let run = Command::new(compiler)
        .args([
            "-nostdlib",
            "-static",
            "-Wl,--build-id=none",
            "-Wl,-Ttext=0x40080000",
            "-o",
        ])
        .arg(&output)
        .arg(format!("{top}/testdata/translation/{name}.S"))
        .args((name == "mmu-a15").then_some("-mcpu=cortex-a15"))
        .output();
    match run {
        Ok(run) => assert!(run.status.success(), "{run:?}"),
        Err(_) => {
            skip::missing(compiler);
            return None;
        }
    }
    Some(output)
}

/// Compares the translation of `count` random addresses by random tables of a form.
pub fn compare(form: Form, count: usize, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (emulator, name) = match form {
        Form::Short(_) | Form::Long(..) => ("qemu-system-arm", "mmu-a15"),
        _ => ("qemu-system-aarch64", "mmu-a64"),
    };
    let Some(program) = program(name, directory.path()) else {
        return;
    };
    if Command::new(emulator).arg("--version").output().is_err() {
        return skip::missing(emulator);
    }
    let mut numbers = Numbers::new(seed);
    let tables = Tables::random(form, &mut numbers);
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let registers: Vec<u8> = tables
        .program
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let machine = match form {
        Form::TwoStages => "virt,virtualization=on",
        _ => "virt",
    };
    let loader = |name: &str, bytes: &[u8], at: u64| {
        format!(
            "loader,file={},addr={at:#x},force-raw=on",
            file(name, bytes)
        )
    };
    let mut qemu = Emulator::start(
        Command::new(emulator)
            .args(["-M", machine, "-cpu", form.cpu(), "-m", "256", "-kernel"])
            .arg(&program)
            .args(["-device", &loader("tables", &tables.bytes, POOL)])
            .args(["-device", &loader("registers", &registers, REGISTERS)]),
    );
    let started = Instant::now();
    while qemu.physical(&[PROBE]) != [Some(PROBED)] {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{form:?}: the program has not started"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let memory = tables.memory();
    let translated = memory.translated().unwrap();
    let regime = translated.regime(Space::El1N).unwrap();
    let (mut mapped, mut compared, mut reserved) = (0, 0, 0);
    while compared < count {
        let addresses: Vec<u64> = (0..1000).map(|_| tables.address(&mut numbers)).collect();
        let wanted = qemu.physical(&addresses);
        for (&address, wanted) in addresses.iter().zip(wanted) {
            let mut steps = Vec::new();
            let visit = &mut |step: Step| steps.push(step.to_string());
            let found = translated.translate(regime, address, visit);
            if found.is_err_and(|fault| is_reserved_block(fault.reason)) {
                reserved += 1;
                continue;
            }
            let physical = found.map(|found| found.physical);
            assert!(
                physical.ok() == wanted,
                "{form:?} {address:#x}: {found:x?}, QEMU {wanted:x?}\n{}",
                steps.join("\n")
            );
            compared += 1;
            mapped += usize::from(wanted.is_some());
        }
    }
    println!("{form:?}: {compared} compared, {mapped} of them mapped; {reserved} left out");
    assert!(
        mapped > count / 20 && mapped < compared,
        "{form:?}: {mapped} mapped"
    );
}

/// Whether a walk ended at a block of a level at which there are none: such descriptors are reserved
/// (DDI 0487, D8.3.1), but QEMU before version 8 maps them.
fn is_reserved_block(reason: FaultReason) -> bool {
    matches!(reason, FaultReason::Invalid { level: ..3, value, .. } if value & 3 == 1)
}

/// The forms of tables of the comparison.
pub const FORMS: [Form; 11] = [
    Form::A64 {
        granule: 12,
        low: 48,
        high: 48,
    },
    Form::A64 {
        granule: 14,
        low: 48,
        high: 48,
    },
    Form::A64 {
        granule: 16,
        low: 48,
        high: 48,
    },
    Form::A64 {
        granule: 12,
        low: 39,
        high: 42,
    },
    Form::A64 {
        granule: 16,
        low: 52,
        high: 50,
    },
    Form::A64 {
        granule: 12,
        low: 52,
        high: 52,
    },
    Form::TwoStages,
    Form::Short(0),
    Form::Short(1),
    Form::Long(0, 0),
    Form::Long(1, 2),
];
