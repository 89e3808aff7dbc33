//! The properties of a traced core that its decoders depend on.

use crate::snapshot::model::Device;
use armsnap_arch::arch::CoreType;
use armsnap_trace::protocol::Core;

/// Returns the profile and version of a core device, from its `type` or, if that is unknown, its
/// registers.
pub fn traced_core(device: &Device) -> Core {
    let CoreType {
        profile, version, ..
    } = CoreType::of(device);
    Core { profile, version }
}
