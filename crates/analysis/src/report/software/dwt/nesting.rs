//! Executions of exception handlers, one within another.

use super::super::Time;
use super::Action;

/// The most handlers that are open at a time: more than there are exceptions.
const DEEPEST: usize = 512;

/// One execution of an exception handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The number of the exception.
    pub number: u16,
    /// Whether its entry was traced, and its time.
    pub entered: Option<Option<Time>>,
    /// Whether its end was traced, and its time.
    pub exited: Option<Option<Time>>,
    /// The number of handlers that were open, this one included.
    pub depth: u16,
    /// The handlers that interrupted it.
    pub interrupted: u32,
    /// The ticks from its entry to its end.
    pub ticks: Option<u64>,
    /// These without the handlers that interrupted it.
    pub own: Option<u64>,
}

/// A handler that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: u16,
    entered: Option<Option<Time>>,
    depth: u16,
    interrupted: u32,
    /// The ticks of the handlers that interrupted it.
    within: Option<u64>,
}

impl Open {
    fn activation(self, exited: Option<Option<Time>>) -> Activation {
        let times = self.entered.flatten().zip(exited.flatten());
        let ticks = times.and_then(|(entered, exited)| exited.since(entered));
        Activation {
            number: self.number,
            entered: self.entered,
            exited,
            depth: self.depth,
            interrupted: self.interrupted,
            ticks,
            own: ticks
                .zip(self.within)
                .map(|(all, within)| all.saturating_sub(within)),
        }
    }
}

/// The handlers that are open.
#[derive(Clone, Debug, Default)]
pub struct Nesting {
    open: Vec<Open>,
}

impl Nesting {
    /// Processes an event of an exception; `ended` receives the handlers that ended with it.
    pub fn exception(
        &mut self,
        number: u16,
        action: Action,
        time: Option<Time>,
        mut ended: impl FnMut(Activation),
    ) {
        let open = self.open.iter().rposition(|open| open.number == number);
        match action {
            Action::Entered => {
                // An exception does not interrupt itself: its end was not traced.
                self.end_from(open.unwrap_or(self.open.len()), &mut ended);
                if self.open.len() >= DEEPEST {
                    self.end_from(0, &mut ended);
                }
                if let Some(interrupted) = self.open.last_mut() {
                    interrupted.interrupted += 1;
                }
                self.open(number, Some(time));
            }
            Action::Exited => {
                let Some(index) = open else {
                    self.end_from(0, &mut ended);
                    self.open(number, None);
                    return self.end(time, &mut ended);
                };
                self.end_from(index + 1, &mut ended);
                self.end(time, &mut ended);
            }
            Action::Returned => {
                self.end_from(open.map_or(0, |index| index + 1), &mut ended);
                if open.is_none() && number != 0 {
                    // Its entry was before the trace, or lost.
                    self.open(number, None);
                }
            }
        }
    }

    /// Ends the handlers that are open at the end of the trace.
    pub fn finish(&mut self, mut ended: impl FnMut(Activation)) {
        self.end_from(0, &mut ended);
    }

    fn open(&mut self, number: u16, entered: Option<Option<Time>>) {
        self.open.push(Open {
            number,
            entered,
            depth: self.open.len() as u16 + 1,
            interrupted: 0,
            within: Some(0),
        });
    }

    /// Ends the innermost handler.
    fn end(&mut self, time: Option<Time>, ended: &mut impl FnMut(Activation)) {
        let Some(open) = self.open.pop() else {
            return;
        };
        let activation = open.activation(Some(time));
        if let Some(outer) = self.open.last_mut() {
            let both = outer.within.zip(activation.ticks);
            outer.within = both.map(|(within, ticks)| within + ticks);
        }
        ended(activation);
    }

    /// Ends the handlers from this index on, the innermost first; their ends were not traced.
    fn end_from(&mut self, index: usize, ended: &mut impl FnMut(Activation)) {
        while self.open.len() > index {
            if let Some(open) = self.open.pop() {
                ended(open.activation(None));
            }
            if let Some(outer) = self.open.last_mut() {
                outer.within = None;
            }
        }
    }
}
