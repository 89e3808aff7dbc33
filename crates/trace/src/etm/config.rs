//! The registers of a trace macrocell. ETMv3 and PTM share their numbers and most of their fields;
//! [`crate::etmv3::Config`] and [`crate::ptm::Config`] interpret them.
//!
//! ARM IHI 0014Q and ARM IHI 0035B, both chapter 3 "Programmer's Model".

use armsnap_arch::quantity::TraceId;

/// How the address bytes of a branch end (ARM IHI 0014Q 7.3.5); PTM has only the alternative
/// encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEncoding {
    /// Seven bits in the last of two to four bytes; exception information follows only a fifth
    /// byte.
    Original,
    /// Bit 6 of the last byte, if there are two or more, is set if exception information follows.
    Alternative,
}

/// How the timestamps of a source are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TimestampEncoding {
    /// 64 bits instead of 48.
    pub wide: bool,
    /// Gray code instead of natural binary.
    pub gray: bool,
}

impl TimestampEncoding {
    /// The maximum length of a value in bytes.
    pub const fn max_bytes(self) -> usize {
        if self.wide { 9 } else { 7 }
    }

    /// The traced bits of a timestamp.
    pub const fn mask(self) -> u64 {
        if self.wide { u64::MAX } else { (1 << 48) - 1 }
    }
}

/// The values of the registers that the decoders need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// ETMCR, 0x000: Main Control Register.
    pub etmcr: u32,
    /// ETMCCER, 0x07A: Configuration Code Extension Register.
    pub etmccer: u32,
    /// ETMIDR, 0x079: ID Register.
    pub etmidr: u32,
    /// ETMTRACEIDR, 0x080: CoreSight Trace ID Register.
    pub etmtraceidr: u32,
}

impl Registers {
    const fn control(self, bit: u32) -> bool {
        self.etmcr >> bit & 1 == 1
    }

    pub(crate) const fn extension(self, bit: u32) -> bool {
        self.etmccer >> bit & 1 == 1
    }

    /// ETMCCER \[29:28\], since ETMv3.5 and PFTv1.1; earlier timestamps are binary and have 48
    /// bits.
    pub(crate) const fn timestamp_encoding(self, from_minor_version: u8) -> TimestampEncoding {
        let present = self.minor_version() >= from_minor_version;
        TimestampEncoding {
            wide: present && self.extension(29),
            gray: present && self.etmccer != 0 && !self.extension(28),
        }
    }

    /// ETMIDR \[7:4\]: X of ETMv3.X or PFTv1.X.
    pub const fn minor_version(self) -> u8 {
        (self.etmidr >> 4 & 0xf) as u8
    }

    /// ETMIDR \[20\]: the alternative encoding of branch addresses (ETMv3.4 and later).
    pub const fn alternative_branches(self) -> bool {
        self.etmidr >> 20 & 1 == 1
    }

    /// ETMTRACEIDR \[6:0\].
    pub const fn trace_id(self) -> TraceId {
        TraceId((self.etmtraceidr & 0x7f) as u8)
    }

    /// ETMCR \[15:14\]: bytes of the context ID that are traced: 0, 1, 2 or 4.
    pub const fn context_id_bytes(self) -> u8 {
        [0, 1, 2, 4][(self.etmcr >> 14 & 3) as usize]
    }

    /// ETMCR \[1\]: coprocessor register transfers are traced.
    pub const fn coprocessor_transfers(self) -> bool {
        self.control(1)
    }

    /// ETMCR \[2\]: data values are traced.
    pub const fn data_values(self) -> bool {
        self.control(2)
    }

    /// ETMCR \[3\]: data addresses are traced.
    pub const fn data_addresses(self) -> bool {
        self.control(3)
    }

    /// ETMCR \[8\]: branch output, branch broadcasting: direct branches have addresses too.
    pub const fn branch_broadcast(self) -> bool {
        self.control(8)
    }

    /// ETMCR \[12\]: cycle-accurate tracing.
    pub const fn cycle_accurate(self) -> bool {
        self.control(12)
    }

    /// ETMCR \[20\]: instructions are not traced.
    pub const fn data_only(self) -> bool {
        self.control(20)
    }

    /// ETMCR \[29\], in a PTM: the return stack is used.
    pub const fn return_stack(self) -> bool {
        self.control(29)
    }
}
