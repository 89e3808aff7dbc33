//! `PERF_RECORD_AUXTRACE_INFO` of CoreSight: the trace unit of each CPU.
//!
//! The layout is that of perf's `cs_etm` (versions 0 to 2). Except in version 0, the block of a CPU
//! contains the number of its parameters, so that parameters added by later versions can be
//! skipped.

use crate::import::fields::Fields;

/// `PERF_AUXTRACE_CS_ETM`.
const CS_ETM: u32 = 3;

/// Set in TRCTRACEIDR of a block if its ID is not used, because records contain it
/// (CORESIGHT_TRACE_ID_UNUSED).
const UNUSED_ID: u64 = 1 << 31;

/// The kind of a trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// ETMv3 or PTM, distinguished by ETMIDR.
    Etmv3,
    /// ETMv4.
    Etmv4,
    /// ETE.
    Ete,
}

impl UnitKind {
    const fn of_magic(magic: u64) -> Option<Self> {
        match magic {
            0x3030_3030_3030_3030 => Some(Self::Etmv3),
            0x4040_4040_4040_4040 => Some(Self::Etmv4),
            0x5050_5050_5050_5050 => Some(Self::Ete),
            _ => None,
        }
    }

    /// The registers in a block, in the order of the block.
    const fn registers(self) -> &'static [&'static str] {
        match self {
            Self::Etmv3 => &["ETMCR", "ETMTRACEIDR", "ETMCCER", "ETMIDR"],
            Self::Etmv4 => &[
                "TRCCONFIGR",
                "TRCTRACEIDR",
                "TRCIDR0",
                "TRCIDR1",
                "TRCIDR2",
                "TRCIDR8",
                "TRCAUTHSTATUS",
            ],
            Self::Ete => &[
                "TRCCONFIGR",
                "TRCTRACEIDR",
                "TRCIDR0",
                "TRCIDR1",
                "TRCIDR2",
                "TRCIDR8",
                "TRCAUTHSTATUS",
                "TRCDEVARCH",
            ],
        }
    }

    /// The register with the trace ID.
    pub const fn trace_id_register(self) -> &'static str {
        match self {
            Self::Etmv3 => "ETMTRACEIDR",
            _ => "TRCTRACEIDR",
        }
    }
}

/// The trace unit of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The CPU.
    pub cpu: u32,
    /// Its kind.
    pub kind: UnitKind,
    /// Its registers, by name.
    pub registers: Vec<(&'static str, u64)>,
    /// The clock of its timestamps, if it is known: TRFCR_EL1.TS (DDI 0487, D19.3).
    pub clock: Option<u64>,
}

impl Unit {
    /// The value of a register.
    pub fn register(&self, name: &str) -> Option<u64> {
        let mut registers = self.registers.iter();
        registers
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    /// The trace ID in the block; `None` if it is not used.
    pub fn trace_id(&self) -> Option<u8> {
        let value = self.register(self.kind.trace_id_register())?;
        (value & UNUSED_ID == 0).then_some((value & 0x7F) as u8)
    }

    /// The `type` of its device in a snapshot. ETMIDR bits 11:8 are 3 for PFTv1 (ARM IHI 0035B,
    /// 3.16.28).
    pub fn device_type(&self) -> &'static str {
        match self.kind {
            UnitKind::Ete => "ETE",
            UnitKind::Etmv4 => "ETM4",
            UnitKind::Etmv3 if self.register("ETMIDR").unwrap_or(0) >> 8 & 0xF == 3 => "PTM1.1",
            UnitKind::Etmv3 => "ETM3.5",
        }
    }
}

/// The contents of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtmInfo {
    /// The trace units.
    pub units: Vec<Unit>,
}

/// Why the record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// The trace is not CoreSight trace.
    #[error("AUX trace of type {0}{name}: expected 3 (CoreSight)", name = kind_of_trace(*.0))]
    OtherTrace(u32),
    /// The version of the layout is not known.
    #[error("AUXTRACE_INFO of version {0}: versions 0, 1 and 2 are known")]
    Version(u64),
    /// A block has an unknown magic number.
    #[error(
        "AUXTRACE_INFO: block {block} begins with {found:#x}: expected a trace unit (ETMv3/PTM \
         0x3030303030303030, ETMv4 0x4040404040404040, ETE 0x5050505050505050)"
    )]
    Magic {
        /// Its index.
        block: u64,
        /// The magic number.
        found: u64,
    },
    /// The record ends within a block.
    #[error("AUXTRACE_INFO ends within the block of trace unit {block}")]
    Short {
        /// Its index.
        block: u64,
    },
}

/// The name of a type of AUX trace that is not CoreSight's, in parentheses.
const fn kind_of_trace(kind: u32) -> &'static str {
    match kind {
        1 => " (Intel PT)",
        2 => " (Intel BTS)",
        4 => " (Arm SPE)",
        5 => " (S/390)",
        6 => " (HiSilicon PTT)",
        _ => "",
    }
}

impl EtmInfo {
    /// Reads the fields of the record.
    pub fn read(mut fields: Fields<'_>) -> Result<Self, InfoError> {
        let short = |block| InfoError::Short { block };
        let kind = fields.u32().ok_or(short(0))?;
        if kind != CS_ETM {
            return Err(InfoError::OtherTrace(kind));
        }
        fields.u32();
        let version = fields.u64().ok_or(short(0))?;
        if version > 2 {
            return Err(InfoError::Version(version));
        }
        // The type of the PMU is in the upper half.
        let count = fields.u64().ok_or(short(0))? & 0xFFFF_FFFF;
        // Whether only the newest trace was kept, which a flag in each AUX record shows too.
        fields.u64().ok_or(short(0))?;
        let mut units: Vec<Unit> = Vec::new();
        for block in 0..count {
            let unit = unit(&mut fields, version, block)?;
            units.push(unit);
        }
        Ok(Self { units })
    }
}

fn unit(fields: &mut Fields<'_>, version: u64, block: u64) -> Result<Unit, InfoError> {
    let short = InfoError::Short { block };
    let magic = fields.u64().ok_or(short.clone())?;
    let cpu = fields.u64().ok_or(short.clone())?;
    let kind = UnitKind::of_magic(magic).ok_or(InfoError::Magic {
        block,
        found: magic,
    })?;
    let names = kind.registers();
    let count = match version {
        0 => names.len(),
        _ => usize::try_from(fields.u64().ok_or(short.clone())?).unwrap_or(usize::MAX),
    };
    let bytes = count.checked_mul(8).and_then(|bytes| fields.bytes(bytes));
    let bytes = bytes.ok_or(short)?;
    // `fields` has already skipped these bytes; read them again in the same byte order.
    let mut values = fields.again(bytes);
    let registers = names.iter().map_while(|name| Some((*name, values.u64()?)));
    let registers = registers.collect();
    // ETMv3 has no such parameter; -1 means that the kernel does not know the clock.
    let clock = values
        .u64()
        .filter(|clock| kind != UnitKind::Etmv3 && *clock != u64::MAX);
    Ok(Unit {
        cpu: cpu as u32,
        kind,
        registers,
        clock,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: u64, blocks: &[&[u64]]) -> Vec<u8> {
        let head = [3, version, 8 << 32 | blocks.len() as u64, 0];
        let words = head
            .iter()
            .chain(blocks.iter().flat_map(|block| block.iter()));
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    const ETM4: u64 = 0x4040_4040_4040_4040;

    #[test]
    fn the_block_gives_the_stride() {
        let later: [u64; 13] = [ETM4, 5, 10, 0x40, 0x1E, 1, 2, 3, 4, 5, 0, 77, 78];
        let ete = [
            0x5050_5050_5050_5050,
            6,
            9,
            8,
            0x20,
            1,
            2,
            3,
            4,
            5,
            0x5A13,
            1,
        ];
        let ptm = [0x3030_3030_3030_3030, 7, 4, 0x1000, 0x12, 9, 0x411C_F301];
        let bytes = record(1, &[&later, &ete, &ptm]);
        let info = EtmInfo::read(Fields::new(&bytes, false)).unwrap();
        assert_eq!(info.units.len(), 3);
        assert_eq!(info.units[0].trace_id(), Some(0x1E));
        assert_eq!(info.units[0].register("TRCAUTHSTATUS"), Some(5));
        assert_eq!(info.units[1].register("TRCDEVARCH"), Some(0x5A13));
        assert_eq!((info.units[1].cpu, info.units[1].device_type()), (6, "ETE"));
        assert_eq!(
            (info.units[2].cpu, info.units[2].device_type()),
            (7, "PTM1.1")
        );
    }

    #[test]
    fn version_0_has_no_count() {
        let bytes = record(0, &[&[ETM4, 1, 0x40, 0x12, 1, 2, 3, 4, 5]]);
        let info = EtmInfo::read(Fields::new(&bytes, false)).unwrap();
        assert_eq!(info.units[0].register("TRCIDR0"), Some(1));
        assert_eq!(info.units[0].trace_id(), Some(0x12));
    }

    #[test]
    fn an_unused_id_is_none() {
        let block = [ETM4, 0, 7, 0, 1 << 31 | 0x10, 0, 0, 0, 0, 0];
        let info = EtmInfo::read(Fields::new(&record(1, &[&block]), false)).unwrap();
        assert_eq!(info.units[0].trace_id(), None);
    }

    #[test]
    fn faults_are_named() {
        let read = |bytes: &[u8]| EtmInfo::read(Fields::new(bytes, false)).unwrap_err();
        assert_eq!(read(&1_u32.to_le_bytes()), InfoError::OtherTrace(1));
        assert_eq!(read(&record(3, &[])), InfoError::Version(3));
        let wrong: &[u64] = &[0x4141, 0, 0];
        let found = InfoError::Magic {
            block: 0,
            found: 0x4141,
        };
        assert_eq!(read(&record(1, &[wrong])), found);
        let huge: &[u64] = &[ETM4, 0, u64::MAX / 4];
        assert_eq!(read(&record(1, &[huge])), InfoError::Short { block: 0 });
        let mut many = record(1, &[]);
        many[16] = 200;
        assert_eq!(read(&many), InfoError::Short { block: 0 });
    }
}
