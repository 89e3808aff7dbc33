//! A core's memory as the code image for the flow.

use crate::arch::Space;
use crate::flow::{CodeImage, ContextKey, View};
use crate::quantity::{Address, Security};
use crate::snapshot::memory::CoreMemory;

/// The memory of a core; if `None`, every address is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image<'a>(pub Option<&'a CoreMemory>);

impl Image<'_> {
    /// The address space of a view.
    pub fn space(&self, view: View) -> Space {
        Space::ALL[view.0 as usize % Space::ALL.len()]
    }

    /// The version of changed code in a view.
    pub fn version(&self, view: View) -> u32 {
        view.0 / Space::ALL.len() as u32
    }
}

impl CodeImage for Image<'_> {
    fn view(&self, context: &ContextKey) -> View {
        let space = match (context.el, context.security) {
            (None, None) => Space::Any,
            (el, security) => Space::of(el, security.unwrap_or(Security::NonSecure)),
        };
        let index = Space::ALL.iter().position(|&s| s == space).unwrap_or(0);
        // Indistinguishable versions are treated as one.
        let versions = self.0.map_or(0, |memory| memory.changed().versions());
        let version = context.context_id.unwrap_or(0).min(versions);
        View(index as u32 + Space::ALL.len() as u32 * version)
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        let (space, version) = (self.space(view), self.version(view));
        self.0
            .map_or(&[], |memory| memory.code(version, address, space))
    }
}
