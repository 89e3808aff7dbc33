//! Calls and returns: what a function preserved by convention.

use super::{Builder, PendingReturn, Sink, Through};
use crate::recover::execution::template::Template;
use armsnap_arch::quantity::Isa;
use std::cell::OnceCell;

impl Builder {
    /// After a return: notes what the function preserved.
    pub(super) fn follow_return(&mut self, to: u64, isa: Isa) {
        /// Returns from deeper call nesting than this are not matched.
        const DEEPEST: usize = 1 << 16;
        if self.returns.len() >= DEEPEST {
            return;
        }
        self.returns.push(PendingReturn {
            to,
            preserved: self.preserved(isa),
            lands: OnceCell::new(),
            long: false,
        });
    }

    /// Before a call: if it returned, or threw an exception that its caller, or a cleanup there,
    /// caught, what the function preserved is unchanged.
    pub(super) fn call(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        sink: &mut impl Sink,
    ) {
        /// The most branches through registers that belong to no call: jumps of linkage tables and
        /// others.
        const OTHERS: usize = 64;
        let depth = self.returns.len();
        let recent = depth.saturating_sub(OTHERS);
        // Returns after a long jump do not belong to the frames that it left.
        let long = self.returns[recent..].iter().rposition(|r| r.long);
        let recent = recent + long.unwrap_or(0);
        let find = |to| self.returns[recent..].iter().rposition(|r| r.to == to);
        let pad = || through.landing_pads.of_call(template.end());
        let Some(found) = find(template.end()).or_else(|| find(pad()?)) else {
            // It did not return within the trace, so no later return can go to code from before it,
            // except to the landing pads of the calls around it, and except for a long jump.
            let pads = through.landing_pads;
            let lands = |r: &PendingReturn| *r.lands.get_or_init(|| pads.contains(r.to));
            let thrown = self.returns[recent..].iter().rposition(lands);
            let jumped = || {
                let sites = &through.templates.return_sites;
                let behind_call = |r: &PendingReturn| sites.contains(&r.to);
                let found = self.returns[recent..].iter().rposition(behind_call);
                found.filter(|_| through.without_kernel)
            };
            let left = thrown.or_else(jumped);
            self.returns
                .truncate(left.map_or(0, |left| recent + left + 1));
            if thrown.is_none()
                && let Some(last) = self.returns.last_mut()
            {
                last.long = true;
            }
            return;
        };
        let found = recent + found;
        let nodes = self.returns[found].preserved;
        self.same(&nodes, template.isa, sink);
        // setjmp returns again at the target of longjmp.
        let again = &self.returns[recent];
        let again = (again.long && again.to == self.returns[found].to).then_some(again.preserved);
        self.returns.truncate(found);
        if let Some(nodes) = again {
            self.same(&nodes, template.isa, sink);
            self.returns.truncate(recent);
        }
    }
}
