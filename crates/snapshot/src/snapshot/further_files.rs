//! The files that a snapshot names besides its .ini files, dumps and trace buffers.

use super::model::{FileLine, Snapshot};
use super::recorded::Recorded;
use super::replay::Inputs;
use super::{changed, core_files, straight};
use crate::mapped::Mapped;
use armsnap_trace::data_addresses::Addresses;

/// Returns their paths as written, each with the position that names it: the record of changed
/// code, data addresses, inputs, programs, and lists of instructions without bytes.
pub fn further_files(snapshot: &Snapshot) -> Vec<(&FileLine, String)> {
    let mut out: Vec<(&FileLine, String)> = Vec::new();
    out.extend(changed::file(snapshot).map(|(place, file)| (place, file.clone())));
    let addresses = core_files::files::<Addresses<Mapped>>(snapshot);
    out.extend(addresses.map(|(place, _, file)| (place, file.clone())));
    let inputs = core_files::files::<Inputs>(snapshot);
    out.extend(inputs.map(|(place, _, file)| (place, file.clone())));
    out.extend(Recorded::files(snapshot));
    for device in &snapshot.devices {
        let file = straight::file(device);
        out.extend(file.map(|file| (&device.place, file.to_owned())));
    }
    out
}
