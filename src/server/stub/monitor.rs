//! `monitor` commands (`qRcmd`).

use std::borrow::Cow;

use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd};

use super::NoSuchCore;
use crate::remote_protocol::hex;
use crate::server::monitor;
use crate::server::target::SnapshotTarget;
use armsnap_snapshot::stop::{self, Stopped};

/// `qRcmd` with whole bytes.
pub(in crate::server) fn well_formed<'a>(
    _: &mut SnapshotTarget,
    packet: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    let digits = packet.strip_prefix(b"qRcmd,")?;
    hex::decode(std::str::from_utf8(digits).ok()?)?;
    Some(Cow::Borrowed(packet))
}

impl MonitorCmd for SnapshotTarget {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), NoSuchCore> {
        let command = String::from_utf8_lossy(command);
        let (places, cancel) = (self.positions.places(), self.cancel.clone());
        let done = stop::catch(|| monitor::run(self, &command, &cancel));
        let text = done.unwrap_or_else(|Stopped| {
            self.come_back(places);
            monitor::STOPPED.to_owned()
        });
        let text = self.cut_file().unwrap_or(text);
        for line in text.lines() {
            out.write_raw(line.as_bytes());
            out.write_raw(b"\n");
            out.flush();
        }
        Ok(())
    }
}
