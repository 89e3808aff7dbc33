//! A core's memory as the code image for the flow.

use armsnap_arch::arch::Space;
use armsnap_arch::quantity::{Address, Security};
use armsnap_snapshot::snapshot::memory::translated::Process;
use armsnap_snapshot::snapshot::memory::{CoreMemory, Moment};
use armsnap_trace::flow::{CodeImage, ContextKey, View};

/// The memory of a core; if `None`, there is no code at any address. A [`View`] encodes an address
/// space, a version of changed code and a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image<'a>(pub Option<&'a CoreMemory>);

impl Image<'_> {
    /// The address space of a view.
    pub fn space(&self, view: View) -> Space {
        Space::ALL[view.0 as usize % Space::ALL.len()]
    }

    /// The version of changed code, and the process, in a view.
    pub fn moment(&self, view: View) -> Moment {
        let rest = view.0 / Space::ALL.len() as u32;
        let versions = self.versions().saturating_add(1);
        Moment {
            version: Some(rest % versions),
            process: Process(rest / versions),
        }
    }

    fn versions(&self) -> u32 {
        self.0.map_or(0, |memory| memory.changed().versions())
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
        let versions = self.versions();
        let moment = self.0.map_or(Moment::default(), |memory| {
            memory.moment(context.el, context.context_id, context.vmid)
        });
        let version = moment.version.unwrap_or(0).min(versions);
        let process = moment.process;
        let rest = process.0.saturating_mul(versions.saturating_add(1));
        let rest = rest.saturating_add(version);
        View(
            (Space::ALL.len() as u32)
                .saturating_mul(rest)
                .saturating_add(index as u32),
        )
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        let (space, moment) = (self.space(view), self.moment(view));
        self.0
            .map_or(&[], |memory| memory.code(moment, address, space))
    }

    fn is_straight(&self, _: View, address: Address) -> bool {
        self.0.is_some_and(|memory| memory.is_straight(address))
    }
}
