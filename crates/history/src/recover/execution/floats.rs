//! The use of floating point on M-profile cores: an instruction that is the first with floating point
//! after an exception or a return may store registers of interrupted code.

use super::template::Floats;
use super::templates::Templates;

/// Whether floating point is known to have been used since the last exception or return, forward in
/// time.
#[derive(Debug, Default)]
pub(super) struct UsesFloats(pub bool);

impl UsesFloats {
    /// Passes instructions, and marks those that may be the first.
    pub fn pass(&mut self, templates: &mut Templates, places: &mut [u32]) {
        for place in places {
            match templates.all[*place as usize].floats {
                Floats::Uses | Floats::MayUse if self.0 => {}
                floats @ (Floats::Uses | Floats::MayUse) => {
                    *place = templates.first_float(*place);
                    self.0 = floats == Floats::Uses;
                }
                Floats::Forgets => self.0 = false,
                Floats::Keeps => {}
            }
        }
    }

    /// Forgets it, at an exception, a return or a gap.
    pub fn lose(&mut self) {
        self.0 = false;
    }
}
