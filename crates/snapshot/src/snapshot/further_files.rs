//! The files that a snapshot names besides its .ini files, dumps and trace buffers.

use super::model::{FileLine, Snapshot};
use super::recorded::Recorded;
use super::{changed, data_addresses, replay, straight};

/// Returns their paths as written, each with the position that names it: the record of changed
/// code, data addresses, inputs, programs, and lists of instructions without bytes.
pub fn further_files(snapshot: &Snapshot) -> Vec<(&FileLine, String)> {
    let mut out: Vec<(&FileLine, String)> = Vec::new();
    out.extend(changed::file(snapshot).map(|(place, file)| (place, file.clone())));
    let addresses = data_addresses::files(snapshot);
    out.extend(addresses.map(|(place, _, file)| (place, file.clone())));
    let inputs = replay::files(snapshot);
    out.extend(inputs.map(|(place, _, file)| (place, file.clone())));
    out.extend(Recorded::files(snapshot));
    for device in &snapshot.devices {
        let file = straight::file(device);
        out.extend(file.map(|file| (&device.place, file.to_owned())));
    }
    out
}
