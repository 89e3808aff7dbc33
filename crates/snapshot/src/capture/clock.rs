//! Converts timestamps of a trace source to perf's clock, using the relation saved with the
//! recording.

use crate::snapshot::model::Device;
use crate::snapshot::registers::parse_u64;

/// The conversion from counter ticks to nanoseconds (Linux, `struct perf_event_mmap_page`,
/// `time_zero`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfClock {
    /// The time at tick 0, in nanoseconds.
    pub zero: u64,
    /// Nanoseconds per tick: `multiplier` over 2 to the `shift`.
    pub multiplier: u64,
    /// See `multiplier`; less than 64.
    pub shift: u32,
    /// A tick near those to be converted, for a counter of fewer than 64 bits.
    pub near: u64,
    /// A mask of the counter's bits.
    pub mask: u64,
}

impl PerfClock {
    const KEY: &str = "perf_clock";

    /// Reads the conversion from the device of a source; `None` if it has none.
    pub fn of(device: &Device) -> Option<Self> {
        let value = device.other.iter().find(|(key, _)| key == Self::KEY);
        let mut words = value?.1.split_whitespace().map(parse_u64);
        let mut word = || words.next()?;
        let clock = Self {
            zero: word()?,
            multiplier: word()?,
            shift: u32::try_from(word()?).ok().filter(|shift| *shift < 64)?,
            near: word()?,
            mask: word()?,
        };
        Some(clock)
    }

    /// Returns its key and value in the device of a source.
    pub fn entry(&self) -> (String, String) {
        let value = format!(
            "{:#x} {:#x} {:#x} {:#x} {:#x}",
            self.zero, self.multiplier, self.shift, self.near, self.mask
        );
        (Self::KEY.to_owned(), value)
    }

    /// Returns the time of a tick, in nanoseconds.
    pub fn nanoseconds(&self, tick: u64) -> u64 {
        let tick = self
            .near
            .wrapping_add(tick.wrapping_sub(self.near) & self.mask);
        let whole = (tick >> self.shift).wrapping_mul(self.multiplier);
        let rest = tick & ((1 << self.shift) - 1);
        let rest = (u128::from(rest) * u128::from(self.multiplier)) >> self.shift;
        self.zero.wrapping_add(whole).wrapping_add(rest as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        // 50 MHz: 20 ns a tick.
        let clock = PerfClock {
            zero: 1000,
            multiplier: 20 << 24,
            shift: 24,
            near: 0,
            mask: u64::MAX,
        };
        assert_eq!(clock.nanoseconds(0), 1000);
        assert_eq!(clock.nanoseconds(7), 1140);
        assert_eq!(
            clock.nanoseconds(50_000_000 * 3600),
            1000 + 3_600_000_000_000
        );
        // A 32-bit counter that has wrapped.
        let short = PerfClock {
            near: 0xFFFF_FFFF,
            mask: 0xFFFF_FFFF,
            ..clock
        };
        assert_eq!(short.nanoseconds(1), clock.nanoseconds(0x1_0000_0001));
        let device = Device {
            other: vec![short.entry()],
            ..Device::default()
        };
        assert_eq!(PerfClock::of(&device), Some(short));
    }
}
