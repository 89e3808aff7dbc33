//! The known bytes of a core's registers. No value is made up.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Architecture;
use super::note::RegisterNote;
use super::pointer_auth::Masks;
use super::views::{self, View};
use super::{SavedCore, SavedRegister};

/// The maximum number of bytes of a register: the largest Z register of SVE.
const MAX_BYTES: usize = 256;

/// The bytes of a register, least significant first; unknown ones are `None`.
pub type Bytes = Vec<Option<u8>>;

/// The source of the value of a register of a target description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterView {
    /// A register of the core, or a part of one.
    Core(View),
    /// A register outside the core's own set, by its name as written.
    Other(String),
    /// A mask of pointer authentication, by its name.
    PointerMask(&'static str),
}

/// The registers of one core.
#[derive(Clone, Debug)]
pub struct RegisterFile {
    architecture: Architecture,
    core: BTreeMap<String, Bytes>,
    /// Registers outside the core's own set in file order: name as written, bytes.
    others: Vec<(String, Bytes)>,
    /// The index in `others` by name (lower case).
    other_index: BTreeMap<String, usize>,
    notes: Vec<RegisterNote>,
}

impl RegisterFile {
    /// Reads the registers of a core device.
    pub fn read(device: &impl SavedCore, architecture: Architecture) -> Self {
        let mut file = Self {
            architecture,
            core: BTreeMap::new(),
            others: Vec::new(),
            other_index: BTreeMap::new(),
            notes: Vec::new(),
        };
        let mut views: Vec<(View, SavedRegister<'_>, usize)> = Vec::new();
        let mut values: BTreeMap<String, &[u8]> = BTreeMap::new();
        for register in device.saved_registers() {
            let value = significant(register.value);
            let first = values.entry(register.name.to_ascii_lowercase());
            if let Entry::Occupied(first) = &first {
                if *first.get() != value {
                    file.notes.push(RegisterNote::Twice {
                        register: register.name.to_owned(),
                    });
                }
                continue;
            }
            first.or_insert(value);
            if let Some(view) = views::view_of(architecture, register.name) {
                views.push((view, register, 0));
            } else if let Some([low, high]) = views::halves_of_quad(architecture, register.name) {
                views.push((low, register, 0));
                views.push((high, register, 8));
            } else {
                file.add_other(register);
            }
        }
        // The widest view of a register has the most information, so it is written last.
        views.sort_by_key(|(view, _, _)| view.bits);
        for (view, register, from) in views {
            file.write_view(&view, register, from);
        }
        match architecture {
            Architecture::AArch64 => file.complete_aarch64(),
            Architecture::MProfile => file.complete_m_profile(),
            Architecture::AArch32 => {}
        }
        file
    }

    /// Returns the architecture, which determines the meaning of names.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Returns notes on what was combined or left out.
    pub fn notes(&self) -> &[RegisterNote] {
        &self.notes
    }

    /// Returns the registers outside the core's own set: names as written, with their size in bytes.
    pub fn others(&self) -> impl Iterator<Item = (&str, usize)> {
        self.others
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.len()))
    }

    /// Returns the bytes of a register outside the core's own set.
    pub fn other(&self, name: &str) -> Option<&[Option<u8>]> {
        let &index = self.other_index.get(&name.to_ascii_lowercase())?;
        Some(&self.others[index].1)
    }

    /// Returns the bytes of a register of the core, if any of them is known.
    pub fn core(&self, register: &str) -> Option<&[Option<u8>]> {
        self.core.get(register).map(Vec::as_slice)
    }

    /// Returns `size` bytes of a view; unknown bytes are `None`.
    pub fn bytes(&self, view: &RegisterView, size: usize) -> Bytes {
        let known: &[Option<u8>] = match view {
            RegisterView::Core(view) => self
                .core(&view.register)
                .and_then(|bytes| bytes.get(view.offset as usize / 8..))
                .unwrap_or(&[]),
            RegisterView::Other(name) => match self.other_index.get(&name.to_ascii_lowercase()) {
                Some(&index) => &self.others[index].1,
                None => &[],
            },
            RegisterView::PointerMask(name) => {
                let masks = Masks::of(self);
                let mask = masks.map(|masks| masks.named(name).to_le_bytes());
                let mut bytes = mask.into_iter().flatten().map(Some);
                return (0..size).map(|_| bytes.next().flatten()).collect();
            }
        };
        let mut bytes: Bytes = known.iter().copied().take(size).collect();
        // If a register is wider in another core, its missing upper bytes are zero here. For an SVE
        // vector they do not exist.
        let fill = match view {
            RegisterView::Other(name) if !known.is_empty() && !is_scalable(name) => Some(0),
            _ => None,
        };
        bytes.resize(size, fill);
        bytes
    }

    /// Returns the value of a register by any of its names, if it is completely known and fits in 64
    /// bits.
    pub fn value(&self, name: &str) -> Option<u64> {
        let bytes = match views::view_of(self.architecture, name) {
            Some(view) => {
                let size = view.bits as usize / 8;
                self.bytes(&RegisterView::Core(view), size)
            }
            None => {
                let &index = self.other_index.get(&name.to_ascii_lowercase())?;
                self.others[index].1.clone()
            }
        };
        bytes
            .iter()
            .rev()
            .try_fold(0_u64, |value, byte| match byte {
                Some(byte) if value >> 56 == 0 => Some(value << 8 | u64::from(*byte)),
                _ => None,
            })
    }

    /// Returns the program counter.
    pub fn pc(&self) -> Option<u64> {
        self.value("pc")
    }

    /// Marks as unknown the registers for which capture libraries without register access write
    /// placeholders.
    pub fn forget_placeholders(&mut self) {
        for register in ["pc", "sp", "lr", "cpsr", "xpsr"] {
            self.core.remove(register);
        }
    }

    /// GDB aborts on an M-profile core whose pc is an exception return code, or the code of a
    /// return from non-secure code, while its lr is not an exception return code. This moves such
    /// an lr to a register with another name.
    pub fn keep_unwinding_possible(&mut self) {
        let code = |value: u64| value >> 24 == 0xff || value >> 24 == 0xfe;
        // The codes without the Security Extension, with and without a floating-point frame (DDI
        // 0403, B1.5.8).
        let is_return = |value: u64| {
            value >> 8 == 0xff_ffff
                && [0xe1, 0xe9, 0xed, 0xf1, 0xf9, 0xfd].contains(&(value & 0xff))
        };
        if self.architecture != Architecture::MProfile
            || !self.pc().is_some_and(code)
            || self.value("lr").is_none_or(is_return)
        {
            return;
        }
        if let Some(bytes) = self.core.remove("lr") {
            let name = "link_register";
            self.other_index.insert(name.to_owned(), self.others.len());
            self.others.push((name.to_owned(), bytes));
            self.notes.push(RegisterNote::LinkRegister { name });
        }
    }

    /// Whether SP of M-profile equals MSP or PSP, and all three are known.
    pub fn selects_stack(&self) -> bool {
        let [sp, msp, psp] = ["sp", "msp", "psp"].map(|name| self.value(name));
        sp.is_some() && msp.is_some() && psp.is_some() && (sp == msp || sp == psp)
    }

    /// Sets MSP and PSP of M-profile.
    pub fn set_stack_pointers(&mut self, main: u64, process: u64) {
        self.set_core("msp", main);
        self.set_core("psp", process);
    }

    /// Sets a register of the core.
    fn set_core(&mut self, register: &str, value: u64) {
        if let Some(bits) = views::core_register_bits(self.architecture, register) {
            let size = bits as usize / 8;
            let bytes = value.to_le_bytes();
            let bytes = (0..size).map(|i| Some(bytes.get(i).copied().unwrap_or(0)));
            self.core.insert(register.to_owned(), bytes.collect());
        }
    }

    fn add_other(&mut self, register: SavedRegister<'_>) {
        let size = (register.size.unwrap_or(32) as usize).div_ceil(8).max(1);
        let size = size.max(register.value.len());
        if size > MAX_BYTES {
            self.notes.push(RegisterNote::TooLarge {
                register: register.name.to_owned(),
                bytes: size,
            });
            return;
        }
        let size = match size {
            3 => 4,
            5..=7 => 8,
            9..=15 => 16,
            size => size,
        };
        let mut bytes: Bytes = register.value.iter().copied().map(Some).collect();
        bytes.resize(size, Some(0));
        let key = register.name.to_ascii_lowercase();
        self.other_index.insert(key, self.others.len());
        self.others.push((register.name.to_owned(), bytes));
    }

    fn write_view(&mut self, view: &View, register: SavedRegister<'_>, from: usize) {
        let Some(bits) = views::core_register_bits(self.architecture, &view.register) else {
            return;
        };
        // A vector that was written with fewer bits is unknown above them.
        let written = match register.size {
            Some(size) if bits > 32 && view.register.starts_with(['v', 'd']) => {
                (size.div_ceil(8) as usize).max(register.value.len())
            }
            _ => usize::MAX,
        };
        let count = (view.bits as usize / 8).min(written.saturating_sub(from));
        if count == 0 {
            return;
        }
        let bytes = self
            .core
            .entry(view.register.clone())
            .or_insert_with(|| vec![None; bits as usize / 8]);
        let start = view.offset as usize / 8;
        let mut differs = false;
        for (i, byte) in bytes.iter_mut().skip(start).take(count).enumerate() {
            let new = register.value.get(from + i).copied().unwrap_or(0);
            differs |= byte.is_some_and(|old| old != new);
            *byte = Some(new);
        }
        if differs {
            self.notes.push(RegisterNote::Views {
                register: view.register.clone(),
                used: register.name.to_owned(),
            });
        }
    }

    /// AArch64: CPSR from its parts, SP from the copy in use (DDI 0487, C5.2, D1.2.2).
    fn complete_aarch64(&mut self) {
        if self.core("cpsr").is_none() {
            let parts = ["CurrentEL", "DAIF", "NZCV", "SPSel"].map(|name| self.value(name));
            if let [Some(level), Some(daif), Some(nzcv), Some(select)] = parts {
                let level = level & 0xc;
                let handler = if level == 0 { 0 } else { select & 1 };
                let optional = [
                    ("PAN", 22),
                    ("UAO", 23),
                    ("DIT", 24),
                    ("SSBS", 12),
                    ("TCO", 25),
                ]
                .iter()
                .filter_map(|&(name, bit)| Some(self.value(name)? & (1 << bit)))
                .fold(0, |all, bit| all | bit);
                let cpsr = nzcv & 0xf000_0000 | daif & 0x3c0 | level | handler | optional;
                self.set_core("cpsr", cpsr);
                self.notes.push(RegisterNote::Cpsr { value: cpsr });
            }
        }
        if self.core("sp").is_none()
            && let Some(cpsr) = self.value("cpsr")
            && cpsr & 0x10 == 0
        {
            let level = if cpsr & 1 == 0 {
                0
            } else {
                (cpsr >> 2) as u8 & 3
            };
            if let Some(sp) = self.value(&format!("SP_EL{level}")) {
                self.set_core("sp", sp);
                self.notes.push(RegisterNote::StackOfLevel { level });
            }
        }
    }

    /// M-profile: xPSR from its parts, SP from the stack in use (DDI 0403, B1.4.1, B1.4.2).
    fn complete_m_profile(&mut self) {
        if self.core("xpsr").is_none() {
            let parts = ["APSR", "IPSR", "EPSR"].map(|name| self.value(name));
            if let [Some(apsr), Some(ipsr), Some(epsr)] = parts {
                self.set_core(
                    "xpsr",
                    apsr & 0xf80f_0000 | ipsr & 0x1ff | epsr & 0x0700_fc00,
                );
                self.notes.push(RegisterNote::Xpsr);
            }
        }
        if self.core("sp").is_none()
            && let Some(xpsr) = self.value("xpsr")
        {
            // Handler mode always uses the main stack; CONTROL.SPSEL decides in thread mode.
            let name = match (xpsr & 0x1ff, self.value("CONTROL")) {
                (0, Some(control)) if control & 2 != 0 => Some("psp"),
                (0, None) => None,
                _ => Some("msp"),
            };
            if let Some((register, sp)) = name.and_then(|name| Some((name, self.value(name)?))) {
                self.set_core("sp", sp);
                self.notes.push(RegisterNote::StackInUse { register });
            }
        }

        self.complete_stack_pointers();
    }

    /// With the Security Extension, MSP and PSP are those of the current security state (DDI 0553,
    /// B3.8), which is inferred from the stack in use.
    fn complete_stack_pointers(&mut self) {
        let Some(sp) = self.value("sp") else {
            return;
        };
        if self.core("msp").is_some() || self.core("psp").is_some() {
            let handles = self.value("xpsr").is_some_and(|xpsr| xpsr & 0x1ff != 0);
            if handles && self.core("msp").is_none() {
                self.set_core("msp", sp);
                self.notes.push(RegisterNote::MainStack);
            }
            return;
        }
        let states = [
            ("secure", ["msp_s", "psp_s"]),
            ("non-secure", ["msp_ns", "psp_ns"]),
        ];
        let pairs = states.map(|(state, names)| (state, names.map(|name| self.value(name))));
        let mut fitting = pairs.iter().filter(|(_, pair)| pair.contains(&Some(sp)));
        if let (Some((state, [Some(msp), Some(psp)])), None) = (fitting.next(), fitting.next()) {
            self.set_core("msp", *msp);
            self.set_core("psp", *psp);
            self.notes.push(RegisterNote::StacksOfState { state });
        }
    }
}

/// The bytes of a value up to the last non-zero one.
fn significant(value: &[u8]) -> &[u8] {
    let last = value.iter().rposition(|&byte| byte != 0);
    value.get(..last.map_or(0, |last| last + 1)).unwrap_or(&[])
}

/// Returns whether `name` is an SVE register, whose length differs between threads.
fn is_scalable(name: &str) -> bool {
    let number = name.strip_prefix(['Z', 'z', 'P', 'p']);
    let numbered = number.is_some_and(|number| number.parse::<u8>().is_ok());
    numbered || name.eq_ignore_ascii_case("ffr")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register, RegisterValue};

    fn device(registers: &[(&str, Option<u32>, &[u8])]) -> Device {
        Device {
            registers: registers
                .iter()
                .map(|&(name, size, value)| Register {
                    name: name.to_owned(),
                    size,
                    value: RegisterValue(value.to_vec()),
                })
                .collect(),
            ..Device::default()
        }
    }

    #[test]
    fn the_widest_view_wins_and_disagreement_is_noted() {
        let file = RegisterFile::read(
            &device(&[
                ("X0", Some(64), &[1, 2, 3, 4, 5, 6, 7, 8]),
                ("W0", None, &[9, 2, 3, 4]),
                ("W1", None, &[1]),
            ]),
            Architecture::AArch64,
        );
        assert_eq!(file.value("x0"), Some(0x0807_0605_0403_0201));
        assert_eq!(file.value("w0"), Some(0x0403_0201));
        assert_eq!(file.value("X1"), None);
        assert_eq!(file.value("W1"), Some(1));
        assert_eq!(file.value("X2"), None);
        assert_eq!(file.notes().len(), 1, "{:?}", file.notes());
    }

    #[test]
    fn vectors_of_sve_end_at_their_length() {
        let file = RegisterFile::read(
            &device(&[("Z0", Some(128), &[7; 16]), ("TTBCR2", Some(32), &[7; 4])]),
            Architecture::AArch64,
        );
        let ends = |name: &str| {
            *file
                .bytes(&RegisterView::Other(name.to_owned()), 32)
                .last()
                .unwrap()
        };
        assert_eq!(ends("Z0"), None);
        assert_eq!(ends("TTBCR2"), Some(0));
    }

    #[test]
    fn parts_of_vectors_are_known_and_the_rest_is_not() {
        let file = RegisterFile::read(
            &device(&[
                ("D0", Some(64), &[1, 2, 3, 4, 5, 6, 7, 8]),
                ("B1", None, &[7]),
            ]),
            Architecture::AArch64,
        );
        let v0 = file.core("v0").unwrap();
        assert!(v0[..8].iter().all(Option::is_some));
        assert!(v0[8..].iter().all(Option::is_none));
        assert_eq!(file.value("B1"), Some(7));
        assert_eq!(file.value("H1"), None);
        assert_eq!(file.core("v2"), None);
    }

    #[test]
    fn quads_are_two_doubles() {
        let quad: Vec<u8> = (0..16).collect();
        let file = RegisterFile::read(&device(&[("Q1", Some(128), &quad)]), Architecture::AArch32);
        assert_eq!(file.value("d2"), Some(0x0706_0504_0302_0100));
        assert_eq!(file.value("d3"), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(file.value("s7"), Some(0x0f0e_0d0c));
    }

    #[test]
    fn cpsr_is_combined_only_from_all_its_parts() {
        let parts: [(&str, Option<u32>, &[u8]); 5] = [
            ("CurrentEL", None, &[8]),
            ("DAIF", None, &[0xc0, 3]),
            ("NZCV", None, &[0, 0, 0, 0x20]),
            ("SPSel", None, &[1]),
            ("SP_EL2", Some(64), &[0x10]),
        ];
        let file = RegisterFile::read(&device(&parts), Architecture::AArch64);
        assert_eq!(file.value("CPSR"), Some(0x2000_03c9));
        assert_eq!(file.value("SP"), Some(0x10));
        assert_eq!(file.notes().len(), 2);
        let file = RegisterFile::read(&device(&parts[1..]), Architecture::AArch64);
        assert_eq!(file.value("CPSR"), None);
        assert_eq!(file.value("SP"), None);
    }

    #[test]
    fn m_profile_stack_and_status() {
        let file = RegisterFile::read(
            &device(&[
                ("APSR", None, &[0, 0, 0, 0x60]),
                ("IPSR", None, &[]),
                ("EPSR", None, &[0, 0, 0, 1]),
                ("CONTROL", None, &[2]),
                ("MSP", None, &[4]),
                ("PSP", None, &[8]),
            ]),
            Architecture::MProfile,
        );
        assert_eq!(file.value("xPSR"), Some(0x6100_0000));
        assert_eq!(file.value("R13"), Some(8));
    }

    #[test]
    fn absurd_sizes_are_left_out() {
        let file = RegisterFile::read(
            &device(&[("HUGE", Some(u32::MAX), &[1]), ("ODD", Some(20), &[1])]),
            Architecture::AArch64,
        );
        assert_eq!(file.others().collect::<Vec<_>>(), [("ODD", 4)]);
        assert_eq!(file.notes().len(), 1);
    }

    #[test]
    fn the_first_of_registers_with_one_name_is_used() {
        let file = RegisterFile::read(
            &device(&[
                ("PC", Some(64), &[0, 0x10]),
                ("X1", None, &[1]),
                ("pc", Some(64), &[0, 0x20]),
                ("X1", None, &[1, 0]),
            ]),
            Architecture::AArch64,
        );
        assert_eq!(file.value("pc"), Some(0x1000));
        let notes: Vec<String> = file.notes().iter().map(ToString::to_string).collect();
        assert_eq!(
            notes,
            ["pc is given twice with different values: the first is shown"]
        );
    }

    #[test]
    fn bytes_beyond_the_written_size_of_a_vector_are_unknown() {
        let low = [1, 2, 3, 4, 5, 6, 7, 8];
        let known = |architecture, written: (&str, Option<u32>, &[u8]), core: &str| {
            let file = RegisterFile::read(&device(&[written]), architecture);
            let bytes = file.core(core).map(<[_]>::to_vec).unwrap_or_default();
            bytes.iter().filter(|byte| byte.is_some()).count()
        };
        let a64 = Architecture::AArch64;
        assert_eq!(known(a64, ("V0", Some(64), &low), "v0"), 8);
        assert_eq!(known(a64, ("V0", Some(128), &low), "v0"), 16);
        assert_eq!(known(a64, ("V0", None, &low), "v0"), 16);
        assert_eq!(known(a64, ("X0", Some(32), &low[..4]), "x0"), 8);
        let a32 = Architecture::AArch32;
        assert_eq!(known(a32, ("Q0", Some(64), &low), "d0"), 8);
        assert_eq!(known(a32, ("Q0", Some(64), &low), "d1"), 0);
        assert_eq!(known(a32, ("D1", Some(32), &low[..4]), "d1"), 4);
    }
}
