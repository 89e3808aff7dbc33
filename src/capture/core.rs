//! The core that a trace source follows, as its decoders see it.

use crate::arch::CoreType;
use crate::protocol::Core;
use crate::snapshot::model::Device;

/// Profile and version of a core device, by its `type` or, if that is not known, its registers.
pub fn traced_core(device: &Device) -> Core {
    let CoreType {
        profile, version, ..
    } = CoreType::of(device);
    Core { profile, version }
}
