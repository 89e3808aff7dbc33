//! Replies, each alone or with the others of its batch.

use serde_json::Value;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where replies go.
pub(super) struct Replies<W>(Mutex<W>);

/// The replies to a batch that are still expected, and those that are there.
struct Batch {
    left: usize,
    done: Vec<Value>,
}

/// Where the reply to a message goes.
#[derive(Clone)]
pub(super) struct Destination(Option<Arc<Mutex<Batch>>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Destination {
    /// A line of its own.
    pub const ALONE: Self = Self(None);

    /// One of the replies to a batch of some messages.
    pub fn in_batch(left: usize) -> Self {
        let done = Vec::new();
        Self(Some(Arc::new(Mutex::new(Batch { left, done }))))
    }

    pub fn is_in_batch(&self) -> bool {
        self.0.is_some()
    }
}

impl<W: Write> Replies<W> {
    pub fn new(out: W) -> Self {
        Self(Mutex::new(out))
    }

    /// Sends the reply to a message; `None` if it has none, or was cancelled.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn send(&self, to: &Destination, reply: Option<Value>) -> io::Result<()> {
        let Some(batch) = &to.0 else {
            return reply.map_or(Ok(()), |reply| self.write(&reply));
        };
        let mut batch = locked(batch);
        batch.left -= 1;
        batch.done.extend(reply);
        match batch.left == 0 && !batch.done.is_empty() {
            true => self.write(&Value::Array(std::mem::take(&mut batch.done))),
            false => Ok(()),
        }
    }

    fn write(&self, value: &Value) -> io::Result<()> {
        let mut out = locked(&self.0);
        serde_json::to_writer(&mut *out, value)?;
        writeln!(out)?;
        out.flush()
    }
}
