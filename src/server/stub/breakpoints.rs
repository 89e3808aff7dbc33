//! Breakpoints and watchpoints: `Z` and `z` (GDB manual, E.2).

use std::borrow::Cow;

use gdbstub::target::ext::breakpoints as ext;
use gdbstub::target::ext::breakpoints::WatchKind;
use gdbstub::target::{TargetError, TargetResult};

use crate::server::breakpoints::Kind;
use crate::server::reply::pair;
use crate::server::target::SnapshotTarget;
use crate::server::watchpoints;

/// `EPERM`, as for a malformed packet.
const REFUSED: u8 = 1;
/// `ENOSPC`.
const TOO_MANY: u8 = 28;

/// `Z` and `z` with a kind, an address and a length. After `;` come conditions and commands, which the
/// server does not advertise.
pub(in crate::server) fn well_formed<'a>(
    _: &mut SnapshotTarget,
    packet: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    let [_, b'0'..=b'4', b',', arguments @ ..] = packet else {
        return None;
    };
    pair(arguments.split(|byte| *byte == b';').next()?, b',')?;
    Some(Cow::Borrowed(packet))
}

impl SnapshotTarget {
    fn add_breakpoint(&mut self, address: u64, kind: Kind) -> TargetResult<bool, Self> {
        match self.breakpoints.add(address, kind) {
            true => Ok(true),
            false => Err(TargetError::Errno(TOO_MANY)),
        }
    }

    fn remove_breakpoint(&mut self, address: u64, kind: Kind) -> TargetResult<bool, Self> {
        self.breakpoints.remove(address, kind);
        Ok(true)
    }
}

impl ext::Breakpoints for SnapshotTarget {
    fn support_sw_breakpoint(&mut self) -> Option<ext::SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<ext::HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<ext::HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl ext::SwBreakpoint for SnapshotTarget {
    fn add_sw_breakpoint(&mut self, address: u64, _size: usize) -> TargetResult<bool, Self> {
        self.add_breakpoint(address, Kind::Software)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _size: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(address, Kind::Software)
    }
}

impl ext::HwBreakpoint for SnapshotTarget {
    fn add_hw_breakpoint(&mut self, address: u64, _size: usize) -> TargetResult<bool, Self> {
        self.add_breakpoint(address, Kind::Hardware)
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _size: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(address, Kind::Hardware)
    }
}

impl ext::HwWatchpoint for SnapshotTarget {
    fn add_hw_watchpoint(
        &mut self,
        address: u64,
        length: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        // A core without history has only one position, so no move passes an access.
        if !self.positions.has_history() || self.watchpoints.add(address, length, watched(kind)) {
            return Ok(true);
        }
        Err(TargetError::Errno(REFUSED))
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        length: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        self.watchpoints.remove(address, length, watched(kind));
        Ok(true)
    }
}

fn watched(kind: WatchKind) -> watchpoints::Kind {
    match kind {
        WatchKind::Write => watchpoints::Kind::Write,
        WatchKind::Read => watchpoints::Kind::Read,
        WatchKind::ReadWrite => watchpoints::Kind::Access,
    }
}
