//! The translation regimes of AArch64, from its registers (DDI 0487, D19.2: TCR_ELx, TTBRn_ELx, SCTLR_ELx,
//! HCR_EL2, VTCR_EL2, VTTBR_EL2).

use super::long::{Granule, Layout, Tables};
use super::no_regime::NoRegime;
use super::note::RegimeNote;
use super::regime::{Half, MAX_BITS, Regime, Split, Stage1, Stage2, Stage2Half, Walked};
use super::steps::FaultReason;
use super::{World, bit, field};
use crate::arch::RegisterFile;

/// Bits of SCTLR_ELx that enable pointer authentication: EnIA, EnIB, EnDA, EnDB.
const AUTHENTICATION: u64 = 1 << 31 | 1 << 30 | 1 << 27 | 1 << 13;
/// SCTLR_ELx.EE.
const BIG_ENDIAN: u32 = 25;

/// The registers of a regime.
struct Names {
    regime: &'static str,
    sctlr: &'static str,
    tcr: &'static str,
    low: &'static str,
    high: Option<&'static str>,
    mair: &'static str,
}

const EL1: Names = Names {
    regime: "EL1&0",
    sctlr: "SCTLR_EL1",
    tcr: "TCR_EL1",
    low: "TTBR0_EL1",
    high: Some("TTBR1_EL1"),
    mair: "MAIR_EL1",
};

const HOST: Names = Names {
    regime: "EL2&0",
    sctlr: "SCTLR_EL2",
    tcr: "TCR_EL2",
    low: "TTBR0_EL2",
    high: Some("TTBR1_EL2"),
    mair: "MAIR_EL2",
};

const EL2: Names = Names {
    regime: "EL2",
    high: None,
    ..HOST
};

const EL3: Names = Names {
    regime: "EL3",
    sctlr: "SCTLR_EL3",
    tcr: "TCR_EL3",
    low: "TTBR0_EL3",
    high: None,
    mair: "MAIR_EL3",
};

/// HCR_EL2.
#[derive(Clone, Copy)]
struct Hypervisor(u64);

impl Hypervisor {
    /// Stage 2 is on.
    fn vm(self) -> bool {
        bit(self.0, 0) || self.dc()
    }

    /// Stage 1 of EL1&0 is off, and stage 2 is on.
    fn dc(self) -> bool {
        bit(self.0, 12)
    }

    /// Exceptions at EL0 are taken to EL2.
    fn tge(self) -> bool {
        bit(self.0, 27)
    }

    /// A host kernel runs at EL2 (FEAT_VHE).
    fn e2h(self) -> bool {
        bit(self.0, 34)
    }
}

/// The regime of EL1 and EL0 of Armv8-R, with tables at stage 1 and the MPU of EL2 at stage 2.
pub(super) fn el1_before_mpu(registers: &RegisterFile, world: World) -> Result<Regime, NoRegime> {
    let mut out = regime(registers, &EL1, world, None)?;
    out.notes.push(RegimeNote::Stage2Mpu);
    Ok(out)
}

/// The regime of EL1 and EL0.
pub(super) fn el1(registers: &RegisterFile, world: World) -> Result<Regime, NoRegime> {
    let hypervisor = registers.value("HCR_EL2").map(Hypervisor);
    // Without secure EL2 (SCR_EL3.EEL2, bit 18), HCR_EL2 has no effect on the secure world.
    let secure_el2 = registers.value("SCR_EL3").is_some_and(|scr| bit(scr, 18));
    let hypervisor = hypervisor.filter(|_| world == World::NonSecure || secure_el2);
    if hypervisor.is_some_and(|hcr| hcr.e2h() && hcr.tge()) {
        return Ok(Regime {
            excludes_el1: true,
            ..regime(registers, &HOST, world, None)?
        });
    }
    let off = match hypervisor {
        Some(hcr) if hcr.dc() => Some("DC"),
        Some(hcr) if hcr.tge() => Some("TGE"),
        _ => None,
    };
    let mut out = regime(registers, &EL1, world, off)?;
    out.excludes_el1 = hypervisor.is_some_and(Hypervisor::tge);
    match hypervisor {
        Some(hcr) if hcr.vm() => {
            out.stage2 = Some(stage2(registers, world)?);
            out.notes.push(RegimeNote::Stage2On {
                register: "HCR_EL2",
                field: "VM",
            });
        }
        Some(_) => {}
        None if world == World::Secure => {}
        None => out.notes.push(RegimeNote::NoStage2),
    }
    Ok(out)
}

/// The regime of EL2, or of EL2 and EL0 of a host (FEAT_VHE).
pub(super) fn el2(registers: &RegisterFile, world: World) -> Result<Regime, NoRegime> {
    let hypervisor = registers.value("HCR_EL2").map(Hypervisor);
    let names = match hypervisor {
        Some(hcr) if hcr.e2h() => &HOST,
        _ => &EL2,
    };
    regime(registers, names, world, None)
}

/// The regime of EL3.
pub(super) fn el3(registers: &RegisterFile) -> Result<Regime, NoRegime> {
    regime(registers, &EL3, World::Secure, None)
}

/// The regime that some registers describe; `off` is the field of HCR_EL2 that switches stage 1
/// off.
fn regime(
    registers: &RegisterFile,
    names: &Names,
    world: World,
    off: Option<&'static str>,
) -> Result<Regime, NoRegime> {
    let mut out = Regime {
        name: names.regime,
        world,
        address_bits: 64,
        stage1: Stage1::Identity,
        stage2: None,
        user: names.high.is_some(),
        excludes_el1: false,
        mair: registers.value(names.mair),
        notes: Vec::new(),
    };
    if let Some(field) = off {
        out.notes.push(RegimeNote::Stage1Replaced {
            register: "HCR_EL2",
            field,
        });
        return Ok(out);
    }
    let sctlr = registers.value(names.sctlr);
    if sctlr.is_some_and(|sctlr| !bit(sctlr, 0)) {
        out.notes.push(RegimeNote::Stage1Off {
            register: names.sctlr,
        });
        return Ok(out);
    }
    let tcr = registers.value(names.tcr);
    let Some(tcr) = tcr else {
        let register = names.tcr;
        return Err(match sctlr {
            Some(_) => NoRegime::RegisterOfStage { register, stage: 1 },
            None => NoRegime::Register(register),
        });
    };
    if registers.value(names.low).is_none()
        && names
            .high
            .is_none_or(|high| registers.value(high).is_none())
    {
        return Err(NoRegime::Register(names.low));
    }
    if sctlr.is_none() {
        out.notes.push(RegimeNote::AssumedOn {
            register: names.sctlr,
        });
    }
    let common = Common {
        registers,
        big_endian: sctlr.is_some_and(|sctlr| bit(sctlr, BIG_ENDIAN)),
        authenticated: sctlr.is_some_and(|sctlr| sctlr & AUTHENTICATION != 0),
    };
    let two = names.high.is_some();
    let (size, ds) = match two {
        true => (field(tcr, 32, 3), bit(tcr, 59)),
        false => (field(tcr, 16, 3), bit(tcr, 32)),
    };
    let low = Range {
        name: names.low,
        granule: Granule::of_tg0(field(tcr, 14, 2)),
        offset: field(tcr, 0, 6),
        disabled: two && bit(tcr, 7),
        top_byte_ignored: bit(tcr, if two { 37 } else { 20 }),
        hierarchical: !bit(tcr, if two { 41 } else { 24 }),
        size,
        ds,
    };
    let high = names.high.map(|name| Range {
        name,
        granule: Granule::of_tg1(field(tcr, 30, 2)),
        offset: field(tcr, 16, 6),
        disabled: bit(tcr, 23),
        top_byte_ignored: bit(tcr, 38),
        hierarchical: !bit(tcr, 42),
        size,
        ds,
    });
    for range in [Some(&low), high.as_ref()].into_iter().flatten() {
        out.notes.push(range.note(registers));
    }
    out.stage1 = Stage1::Tables {
        low: common.half(&low),
        high: high.as_ref().map(|high| common.half(high)),
        split: if two { Split::Bit55 } else { Split::None },
    };
    Ok(out)
}

/// A range of addresses, as TCR_ELx describes it.
struct Range {
    name: &'static str,
    granule: Option<Granule>,
    /// TnSZ.
    offset: u64,
    disabled: bool,
    top_byte_ignored: bool,
    hierarchical: bool,
    size: u64,
    ds: bool,
}

impl Range {
    fn note(&self, registers: &RegisterFile) -> RegimeNote {
        RegimeNote::Range {
            register: self.name,
            value: registers.value(self.name),
            bits: 64 - self.offset,
            page: self.granule.map(|granule| 1 << granule.bits()),
            disabled: self.disabled,
        }
    }
}

struct Common<'a> {
    registers: &'a RegisterFile,
    big_endian: bool,
    authenticated: bool,
}

impl Common<'_> {
    fn half(&self, range: &Range) -> Half {
        let bits = 64 - range.offset as u32;
        Half {
            walked: self.walked(range, bits),
            bits: bits.min(MAX_BITS),
            top_byte_ignored: range.top_byte_ignored,
            authenticated: self.authenticated,
        }
    }

    fn walked(&self, range: &Range, input_bits: u32) -> Walked {
        if range.disabled {
            return Walked::Not(FaultReason::Disabled);
        }
        let tables = || {
            let granule = range.granule?;
            let ds = range.ds && has_ds(self.registers, granule);
            Tables::new(Layout {
                name: range.name,
                base: self.registers.value(range.name)?,
                granule,
                input_bits,
                output_bits: output_bits(self.registers, range.size, granule, ds),
                ds,
                first_level: None,
                big_endian: self.big_endian,
                hierarchical: range.hierarchical,
            })
        };
        tables().map_or(Walked::Not(FaultReason::Unknown), Walked::Long)
    }
}

/// Whether TCR_ELx.DS has an effect: it has none with 64 KiB pages, or on a core without FEAT_LPA2
/// (ID_AA64MMFR0_EL1.TGran4 = 1, TGran16 = 2).
fn has_ds(registers: &RegisterFile, granule: Granule) -> bool {
    let features = registers.value("ID_AA64MMFR0_EL1");
    match granule {
        Granule::K4 => features.is_none_or(|features| field(features, 28, 4) == 1),
        Granule::K16 => features.is_none_or(|features| field(features, 20, 4) == 2),
        _ => false,
    }
}

/// The size of output addresses in bits: TCR_ELx.IPS or PS, limited to what the core supports.
fn output_bits(registers: &RegisterFile, size: u64, granule: Granule, ds: bool) -> u32 {
    let bits = |value: u64| match value {
        0 => 32,
        1 => 36,
        2 => 40,
        3 => 42,
        4 => 44,
        5 => 48,
        _ => MAX_BITS,
    };
    let core = registers.value("ID_AA64MMFR0_EL1");
    let core = core.map_or(MAX_BITS, |features| bits(field(features, 0, 4)));
    let wide = ds || granule == Granule::K64;
    bits(size).min(core).min(if wide { MAX_BITS } else { 48 })
}

/// Stage 2 of the regime of EL1 and EL0.
pub(super) fn stage2(registers: &RegisterFile, world: World) -> Result<Stage2, NoRegime> {
    let vtcr = of_stage2(registers, "VTCR_EL2")?;
    let tables = stage2_tables(registers, "VTTBR_EL2", vtcr, vtcr)?;
    let half = |tables, walk, output| Stage2Half {
        tables,
        walk: World::of(walk),
        output: World::of(output),
    };
    if world == World::NonSecure {
        return Ok(Stage2 {
            non_secure: half(tables, false, false),
            secure: None,
        });
    }
    let vstcr = of_stage2(registers, "VSTCR_EL2")?;
    let secure = stage2_tables(registers, "VSTTBR_EL2", vstcr, vtcr)?;
    // VSTCR_EL2.SW and SA, VTCR_EL2.NSW and NSA: each counts as set if an earlier one is set
    // (AArch64.SS2OutputPASpace).
    let walks = !bit(vstcr, 29);
    let outputs = walks && !bit(vstcr, 30);
    let walks_non_secure = !bit(vtcr, 29);
    let outputs_non_secure = outputs && walks_non_secure && !bit(vtcr, 30);
    Ok(Stage2 {
        non_secure: half(tables, walks_non_secure, outputs_non_secure),
        secure: Some(half(secure, walks, outputs)),
    })
}

/// The value of a stage 2 register, while stage 2 is on.
fn of_stage2(registers: &RegisterFile, register: &'static str) -> Result<u64, NoRegime> {
    let missing = NoRegime::RegisterOfStage { register, stage: 2 };
    registers.value(register).ok_or(missing)
}

/// The tables that `control` (VTCR_EL2 or VSTCR_EL2) describes. `common` (VTCR_EL2) contains the
/// address size for both worlds.
fn stage2_tables(
    registers: &RegisterFile,
    name: &'static str,
    control: u64,
    common: u64,
) -> Result<Tables, NoRegime> {
    let base = of_stage2(registers, name)?;
    let wrong = NoRegime::Stage2(name);
    let granule = Granule::of_tg0(field(control, 14, 2)).ok_or(wrong)?;
    let ds = bit(common, 32) && has_ds(registers, granule);
    // SL2 is bit 33 (FEAT_LPA2 with 4 KiB pages).
    let start = field(control, 6, 2);
    let first_level = match (granule, start) {
        (Granule::K4, 0) if ds && bit(control, 33) => -1,
        (Granule::K4, 3) => 3,
        (Granule::K4, start) => 2 - start as i8,
        (_, start) => 3 - start as i8,
    };
    Tables::new(Layout {
        name,
        base,
        granule,
        input_bits: 64 - field(control, 0, 6) as u32,
        output_bits: output_bits(registers, field(common, 16, 3), granule, ds),
        ds,
        first_level: Some(first_level),
        big_endian: registers
            .value("SCTLR_EL2")
            .is_some_and(|sctlr| bit(sctlr, BIG_ENDIAN)),
        hierarchical: false,
    })
    .ok_or(wrong)
}
