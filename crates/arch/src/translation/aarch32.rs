//! The translation regimes of AArch32, from its registers (DDI 0406, B3.5.4 and B3.6.4; B4.1: TTBCR, TTBR0,
//! TTBR1, SCTLR, HCR, HTCR, HTTBR, VTCR, VTTBR).

use super::aarch64;
use super::long::{Granule, Layout, Tables};
use super::no_regime::NoRegime;
use super::note::RegimeNote;
use super::regime::{Half, Regime, Split, Stage1, Stage2, Stage2Half, Walked};
use super::short::ShortTables;
use super::steps::FaultReason;
use super::{World, bit, field};
use crate::arch::{RegisterFile, Space, state};

/// SCTLR.EE.
const BIG_ENDIAN: u32 = 25;
/// The size of the output addresses of long descriptors, in bits.
const LONG_OUTPUT: u32 = 40;

/// Registers that are banked between the worlds: `S_TTBR0` and `N_TTBR0`, or `TTBR0_S` and `TTBR0_NS`.
/// A name without prefix or suffix is the register of the current world.
struct Banked<'a> {
    registers: &'a RegisterFile,
    world: World,
    is_current: bool,
}

impl<'a> Banked<'a> {
    fn new(registers: &'a RegisterFile, world: World) -> Self {
        let current = World::of(state::current_space(registers).space == Space::S);
        Self {
            registers,
            world,
            is_current: current == world,
        }
    }

    fn value(&self, name: &str) -> Option<u64> {
        let (prefix, suffix) = match self.world {
            World::Secure => ("S_", "_S"),
            World::NonSecure => ("N_", "_NS"),
        };
        let registers = self.registers;
        registers
            .value(&format!("{prefix}{name}"))
            .or_else(|| registers.value(&format!("{name}{suffix}")))
            .or_else(|| registers.value(name).filter(|_| self.is_current))
    }

    /// A register of 64 bits whose lower half has a name of its own.
    fn long(&self, name: &str) -> Option<u64> {
        self.value(&format!("{name}_64"))
            .or_else(|| self.value(name))
    }
}

/// The regime of PL1 and PL0.
pub(super) fn el1(registers: &RegisterFile, world: World) -> Result<Regime, NoRegime> {
    let banked = Banked::new(registers, world);
    let mut out = Regime {
        name: "PL1&0",
        world,
        address_bits: 32,
        stage1: Stage1::Identity,
        stage2: None,
        user: true,
        excludes_el1: false,
        mair: None,
        notes: Vec::new(),
    };
    let hcr = match world {
        World::NonSecure => registers
            .value("HCR")
            .or_else(|| registers.value("HCR_EL2")),
        World::Secure => None,
    };
    // HCR.VM, DC and TGE.
    let hcr_bit = |number| hcr.is_some_and(|hcr| bit(hcr, number));
    let (vm, dc, tge) = (hcr_bit(0), hcr_bit(12), hcr_bit(27));
    out.excludes_el1 = tge;
    if vm || dc {
        out.stage2 = Some(stage2(registers)?);
        out.notes.push(RegimeNote::Stage2On {
            register: "HCR",
            field: if vm { "VM" } else { "DC" },
        });
    }
    if dc || tge {
        out.notes.push(RegimeNote::Stage1Replaced {
            register: "HCR",
            field: if dc { "DC" } else { "TGE" },
        });
        return Ok(out);
    }
    let sctlr = banked.value("SCTLR");
    if sctlr.is_some_and(|sctlr| !bit(sctlr, 0)) {
        out.notes.push(RegimeNote::Stage1Off { register: "SCTLR" });
        return Ok(out);
    }
    let Some(ttbcr) = banked.value("TTBCR") else {
        let on = sctlr.is_some();
        return Err(NoRegime::Ttbcr { world, on });
    };
    if sctlr.is_none() {
        let register = "SCTLR";
        out.notes.push(RegimeNote::AssumedOn { register });
    }
    let big_endian = sctlr.is_some_and(|sctlr| bit(sctlr, BIG_ENDIAN));
    // TTBCR.EAE.
    if bit(ttbcr, 31) {
        let mair = |name| banked.value(name);
        out.mair = mair("MAIR0")
            .zip(mair("MAIR1"))
            .map(|(low, high)| low | high << 32);
        out.stage1 = long(&banked, ttbcr, big_endian)?;
    } else {
        out.stage1 = short(&banked, ttbcr, big_endian)?;
    }
    out.notes.push(RegimeNote::Descriptors {
        ttbcr,
        long: bit(ttbcr, 31),
    });
    for register in ["TTBR0", "TTBR1"] {
        if let Some(value) = banked.long(register) {
            out.notes.push(RegimeNote::Table { register, value });
        }
    }
    Ok(out)
}

fn short(banked: &Banked<'_>, ttbcr: u64, big_endian: bool) -> Result<Stage1, NoRegime> {
    // ID_MMFR0.VMSA: values of 4 and more include PXN.
    let features = ["ID_MMFR0", "ID_MMFR0_EL1"].into_iter();
    let features = features
        .filter_map(|name| banked.registers.value(name))
        .next();
    let half = |name, bits: u32, disabled| {
        let walked = match banked.value(name) {
            _ if disabled => Walked::Not(FaultReason::Disabled),
            None => Walked::Not(FaultReason::Unknown),
            Some(base) => {
                let tables = ShortTables {
                    name,
                    base: 0,
                    input_bits: bits,
                    big_endian,
                    pxn: features.is_none_or(|features| field(features, 0, 4) >= 4),
                };
                Walked::Short(tables.with_base(base))
            }
        };
        plain(walked, bits)
    };
    if banked.value("TTBR0").is_none() && banked.value("TTBR1").is_none() {
        return Err(NoRegime::Register("TTBR0"));
    }
    // TTBCR.N, PD0, PD1.
    let n = field(ttbcr, 0, 3) as u32;
    let low = half("TTBR0", 32 - n, bit(ttbcr, 4));
    Ok(match n {
        0 => Stage1::Tables {
            low,
            high: None,
            split: Split::None,
        },
        n => Stage1::Tables {
            low,
            high: Some(half("TTBR1", 32, bit(ttbcr, 5))),
            split: Split::From(1 << (32 - n)),
        },
    })
}

fn long(banked: &Banked<'_>, ttbcr: u64, big_endian: bool) -> Result<Stage1, NoRegime> {
    let (low_size, high_size) = (field(ttbcr, 0, 3) as u32, field(ttbcr, 16, 3) as u32);
    let half = |name, size: u32, disabled| {
        let walked = match banked.long(name) {
            _ if disabled => Walked::Not(FaultReason::Disabled),
            None => Walked::Not(FaultReason::Unknown),
            Some(base) => tables(name, base, 32 - size, None, big_endian)
                .map_or(Walked::Not(FaultReason::Unknown), Walked::Long),
        };
        plain(walked, 32 - size)
    };
    if banked.long("TTBR0").is_none() && banked.long("TTBR1").is_none() {
        return Err(NoRegime::Register("TTBR0"));
    }
    let low = half("TTBR0", low_size, bit(ttbcr, 7));
    if low_size == 0 && high_size == 0 {
        return Ok(Stage1::Tables {
            low,
            high: None,
            split: Split::None,
        });
    }
    // If T1SZ is 0, TTBR1 translates the addresses that T0SZ leaves (B3.6.4).
    let first = match high_size {
        0 => 1 << (32 - low_size),
        size => (1_u64 << 32) - (1 << (32 - size)),
    };
    Ok(Stage1::Tables {
        low,
        high: Some(half("TTBR1", high_size, bit(ttbcr, 23))),
        split: Split::From(first),
    })
}

/// The regime of Hyp mode.
pub(super) fn hyp(registers: &RegisterFile) -> Result<Regime, NoRegime> {
    let value = |name: &str| {
        let aarch64 = name.strip_prefix('H').unwrap_or(name);
        let aarch64 = match aarch64 {
            "TTBR" => "TTBR0_EL2".to_owned(),
            other => format!("{other}_EL2"),
        };
        registers.value(name).or_else(|| registers.value(&aarch64))
    };
    let mut out = Regime {
        name: "PL2",
        world: World::NonSecure,
        address_bits: 32,
        stage1: Stage1::Identity,
        stage2: None,
        user: false,
        excludes_el1: false,
        mair: None,
        notes: Vec::new(),
    };
    let sctlr = value("HSCTLR");
    if sctlr.is_some_and(|sctlr| !bit(sctlr, 0)) {
        out.notes.push(RegimeNote::Stage1Off { register: "HSCTLR" });
        return Ok(out);
    }
    let control = value("HTCR").ok_or(NoRegime::Register("HTCR"))?;
    let base = value("HTTBR").ok_or(NoRegime::Register("HTTBR"))?;
    let bits = 32 - field(control, 0, 3) as u32;
    let big_endian = sctlr.is_some_and(|sctlr| bit(sctlr, BIG_ENDIAN));
    let walked = tables("HTTBR", base, bits, None, big_endian)
        .map_or(Walked::Not(FaultReason::Unknown), Walked::Long);
    out.notes.push(RegimeNote::Hyp {
        httbr: base,
        htcr: control,
    });
    out.stage1 = Stage1::Tables {
        low: plain(walked, bits),
        high: None,
        split: Split::None,
    };
    Ok(out)
}

fn stage2(registers: &RegisterFile) -> Result<Stage2, NoRegime> {
    // The hypervisor runs in AArch64, and its tables are those of AArch64.
    if registers.value("VTCR").is_none() && registers.value("VTCR_EL2").is_some() {
        return aarch64::stage2(registers, World::NonSecure);
    }
    let value = |register: &'static str| {
        let found = registers.value(register);
        let found = found.or_else(|| registers.value(&format!("{register}_EL2")));
        found.ok_or(NoRegime::RegisterOfStage { register, stage: 2 })
    };
    let (base, control) = (value("VTTBR")?, value("VTCR")?);
    // T0SZ is a signed number of four bits; SL0 is 0 for level 2, 1 for level 1 (B3.6.4).
    let size = (field(control, 0, 4) as i32) << 28 >> 28;
    let bits = (32 - size) as u32;
    let first = match field(control, 6, 2) {
        0 => Some(2),
        1 => Some(1),
        _ => None,
    };
    let big_endian = registers
        .value("HSCTLR")
        .is_some_and(|sctlr| bit(sctlr, BIG_ENDIAN));
    let tables = first.and_then(|first| tables("VTTBR", base, bits, Some(first), big_endian));
    let tables = tables.ok_or(NoRegime::Vtcr)?;
    Ok(Stage2 {
        non_secure: Stage2Half {
            tables,
            walk: World::NonSecure,
            output: World::NonSecure,
        },
        secure: None,
    })
}

fn tables(
    name: &'static str,
    base: u64,
    input_bits: u32,
    first_level: Option<i8>,
    big_endian: bool,
) -> Option<Tables> {
    Tables::new(Layout {
        name,
        base,
        granule: Granule::K4,
        input_bits,
        output_bits: LONG_OUTPUT,
        ds: false,
        first_level,
        big_endian,
        hierarchical: true,
    })
}

fn plain(walked: Walked, bits: u32) -> Half {
    Half {
        walked,
        bits,
        top_byte_ignored: false,
        authenticated: false,
    }
}
