//! Handlers of M-profile cores that follow one another: after the branch to EXC_RETURN the next
//! exception is taken at once, and some trace units do not report the return (tail-chaining).

use super::template::Template;
use super::templates::Templates;
use armsnap_arch::semantics::{Control, Location, Operand, Operation};

/// EXC_RETURN and other values that are not addresses of code (DDI 0553, B3.22).
const SPECIAL: u64 = 0xfe00_0000;

/// Whether an exception was taken instead of a return from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chained {
    Yes,
    No,
    Unknown,
}

/// The open handlers in the instructions passed, forward in time.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    /// The calls that are open in each.
    calls: Vec<u32>,
    /// What the last instruction did.
    last: Last,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    /// It ended the handler, as far as its calls are known.
    Ends,
    /// It branched to an unknown address.
    Branches,
}

impl Handlers {
    /// Passes a straight line that ends with an instruction.
    pub fn pass(&mut self, template: &Template, templates: &Templates, taken: bool) {
        self.last = Last::Other;
        if template.calls {
            if let Some(calls) = self.calls.last_mut() {
                *calls += 1;
            }
        } else if let Control::Indirect { target, .. } = template.control
            && taken
        {
            self.last = match self.calls.last_mut() {
                Some(0) if is_return(target, template, templates) => Last::Ends,
                None | Some(0) => Last::Branches,
                Some(calls) => {
                    *calls -= 1;
                    Last::Branches
                }
            };
        }
    }

    /// Passes an exception; `to` is where it returns to, according to the trace.
    pub fn exception(&mut self, to: Option<u64>) -> Chained {
        let chained = match (to, std::mem::take(&mut self.last)) {
            (_, Last::Other) => Chained::No,
            (Some(to), _) if to >= SPECIAL => Chained::Yes,
            (Some(_), _) => Chained::No,
            (None, Last::Ends) => Chained::Yes,
            (None, Last::Branches) => Chained::Unknown,
        };
        if chained == Chained::Yes {
            self.calls.pop();
        }
        self.calls.push(0);
        chained
    }

    /// Passes a return that the trace reports.
    pub fn returned(&mut self) {
        self.calls.pop();
        self.last = Last::Other;
    }

    /// Forgets everything, at a gap.
    pub fn lose(&mut self) {
        *self = Self::default();
    }
}

/// Whether a branch goes to LR, or to what it loads from the stack.
fn is_return(target: Operand, template: &Template, templates: &Templates) -> bool {
    let ops = &templates.ops[template.first as usize..][..template.count.into()];
    let pops = ops.iter().any(|op| {
        let loads = matches!(op.operation, Operation::Load { .. });
        loads && op.direct && Operand::Location(op.destination) == target
    });
    pops || target == Operand::Location(Location::general(14))
}
