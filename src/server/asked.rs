//! Questions to the cores of an endpoint, without a client.

use std::cell::OnceCell;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::past_values::PastValues;
use super::positions::Positions;
use armsnap_analysis::questions::diff::{Compared, DiffError, compare};
use armsnap_analysis::questions::{AskError, Core, Outcome, Question, Scope, Sink, ask};
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::call_frames::CallFrames;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::stop::{Cancel, Unwind};

/// What is said where no core has a history.
pub const NO_HISTORY: &str =
    "nothing is known of the past: no core has a trace that can be followed (armsnap info)";

/// A core of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSummary {
    /// Its name.
    pub name: String,
    /// The name of its architecture.
    pub architecture: &'static str,
    /// The first and the last position of its history; `None` without one.
    pub history: Option<(Position, Position)>,
}

/// The histories of the cores of an endpoint, and their past values.
pub struct Histories {
    endpoint: Arc<Endpoint>,
    positions: Positions,
    past_values: PastValues,
    symbols: Arc<Symbols>,
    frames: OnceCell<Arc<CallFrames>>,
}

impl Histories {
    /// Opens the histories. Decodes nothing yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let endpoint = Arc::new(endpoint);
        Self {
            positions: Positions::new(Arc::clone(&endpoint), Unwind::default()),
            past_values: PastValues::default(),
            symbols: Arc::new(endpoint.symbols()),
            frames: OnceCell::new(),
            endpoint,
        }
    }

    /// Returns the cores with a history that a question is for: the one that stopped, if the
    /// question names a position, otherwise all of them.
    #[must_use]
    pub fn cores(&mut self, question: &Question, scope: Scope) -> Vec<Tid> {
        let stopped = self.endpoint.stopped_thread();
        let threads: Vec<Tid> = self.endpoint.threads().collect();
        let has_history = |thread: &Tid| self.positions.history(*thread).is_some();
        let mut found: Vec<Tid> = threads.into_iter().filter(has_history).collect();
        let names_position = match question {
            Question::Where(_)
            | Question::Values(_)
            | Question::Memory(..)
            | Question::Why(..)
            | Question::Uses(..)
            | Question::Variable(_) => true,
            Question::Calls(_) | Question::Accesses(_) => {
                scope.from.is_some() || scope.to.is_some()
            }
        };
        if names_position {
            let chosen = found.iter().find(|thread| **thread == stopped);
            let chosen = chosen.or_else(|| found.first()).copied();
            found = chosen.into_iter().collect();
        }
        found
    }

    /// Returns the name of a core.
    #[must_use]
    pub fn name(&self, thread: Tid) -> Option<String> {
        let core = self.endpoint.cores.get(thread.get() - 1)?;
        Some(core.name.clone())
    }

    /// Returns the core with a name, if it has a history.
    #[must_use]
    pub fn core(&mut self, name: &str) -> Option<Tid> {
        let cores = self.endpoint.cores.iter().zip(self.endpoint.threads());
        let mut named = cores.filter(|(core, _)| core.name == name);
        let (_, thread) = named.next()?;
        self.positions.history(thread).map(|_| thread)
    }

    /// Returns the cores, with the histories that are decoded to their ends before the request to
    /// cancel.
    #[must_use]
    pub fn described(&mut self, cancel: &Cancel) -> Vec<CoreSummary> {
        let endpoint = Arc::clone(&self.endpoint);
        let cores = endpoint.cores.iter().zip(endpoint.threads());
        cores
            .map(|(core, thread)| {
                let is_whole = self.positions.reach_end(thread, cancel);
                let history = self.positions.history(thread).filter(|_| is_whole);
                CoreSummary {
                    name: core.name.clone(),
                    architecture: core.detected.architecture.name(),
                    history: history.map(|history| (history.begin(), history.end())),
                }
            })
            .collect()
    }

    /// Returns the text of `monitor info`.
    #[must_use]
    pub fn info(&self) -> String {
        self.endpoint.info()
    }

    /// Returns functions whose names contain a text in upper or lower case, at most some.
    #[must_use]
    pub fn functions_like(&self, text: &str, most: usize) -> Vec<String> {
        let text = text.to_lowercase();
        let names = self.symbols.functions().map(|(_, shown, _)| shown);
        let similar = names.filter(|name| name.to_lowercase().contains(&text));
        let mut found: Vec<String> = Vec::new();
        for name in similar {
            if found.len() == most {
                break;
            }
            if !found.iter().any(|found| found == name) {
                found.push(name.to_owned());
            }
        }
        found
    }

    /// Answers a question for a core.
    ///
    /// # Errors
    ///
    /// If the question does not fit the core, the answers cannot be written, or it was cancelled.
    pub fn ask(
        &mut self,
        thread: Tid,
        question: &Question,
        scope: Scope,
        cancel: &Cancel,
        sink: &mut Sink<'_>,
    ) -> Result<Outcome, AskError> {
        let asked = self.with_core(thread, cancel, |core| {
            ask(core, question, scope, cancel, sink)
        });
        asked?.unwrap_or_else(|| Ok(Outcome::default()))
    }

    /// Returns the cores with a history, and their names.
    #[must_use]
    pub fn traced(&mut self) -> Vec<(Tid, String)> {
        let threads: Vec<Tid> = self.endpoint.threads().collect();
        let has_history = |thread: &Tid| self.positions.history(*thread).is_some();
        let found: Vec<Tid> = threads.into_iter().filter(has_history).collect();
        let name = |thread: Tid| {
            let core = self.endpoint.cores.get(thread.get() - 1)?;
            Some((thread, core.name.clone()))
        };
        found.into_iter().filter_map(name).collect()
    }

    /// Compares the course of a core with that of a core of another snapshot; `None` if one has no
    /// history.
    ///
    /// # Errors
    ///
    /// If they cannot be compared, or the work was cancelled.
    pub fn differ(
        &mut self,
        thread: Tid,
        (other, counterpart): (&mut Self, Tid),
        cancel: &Cancel,
    ) -> Result<Option<Compared>, DiffError> {
        let compared = self.with_core(thread, cancel, |a| {
            other.with_core(counterpart, cancel, |b| compare(a, b, cancel))
        });
        match compared? {
            Some(compared) => compared?.transpose(),
            None => Ok(None),
        }
    }

    /// Does something with a core; `None` without a history.
    fn with_core<R>(
        &mut self,
        thread: Tid,
        cancel: &Cancel,
        work: impl FnOnce(&mut Core<'_>) -> R,
    ) -> Result<Option<R>, AskError> {
        if !self.positions.reach_end(thread, cancel) {
            return Err(AskError::Interrupted);
        }
        let known = (&mut self.positions, &mut self.past_values);
        let frames = || {
            let read = || Arc::new(self.endpoint.call_frames());
            Arc::clone(self.frames.get_or_init(read))
        };
        let core = core(&self.endpoint, known, (&self.symbols, &frames), thread);
        Ok(core.map(|mut core| work(&mut core)))
    }
}

/// Returns what questions to a core need; `None` without a history, or if no past values are wanted.
pub(super) fn core<'a>(
    endpoint: &'a Endpoint,
    (positions, past_values): (&'a mut Positions, &'a mut PastValues),
    (symbols, frames): (&'a Symbols, &'a dyn Fn() -> Arc<CallFrames>),
    thread: Tid,
) -> Option<Core<'a>> {
    let (recovery, history) = past_values.of(endpoint, positions, thread)?;
    let registers = endpoint.description.registers();
    Some(Core {
        name: &endpoint.cores.get(thread.get() - 1)?.name,
        architecture: endpoint.architecture(),
        big_endian: endpoint.is_big_endian(),
        registers: registers.map(|register| register.name.clone()).collect(),
        history,
        recovery,
        symbols,
        frames,
    })
}
