//! The thread selected by the user.
//!
//! The remote protocol does not carry it: GDB sends the thread that it reads (`Hg`), and reads all
//! threads for `info threads`. `thread N` checks whether the thread is alive (`T`).

use gdbstub::common::Tid;

/// The threads of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// The thread that is read.
    read: Tid,
    user: Tid,
    /// The client has requested the thread list, and reads all threads.
    reads_all: bool,
}

impl Selection {
    /// A client has connected, and this thread is reported to it as stopped.
    pub fn new(thread: Tid) -> Self {
        Self {
            read: thread,
            user: thread,
            reads_all: false,
        }
    }

    /// Returns the thread whose registers and memory are read.
    pub fn read(&self) -> Tid {
        self.read
    }

    /// Returns the thread selected by the user.
    pub fn user(&self) -> Tid {
        self.user
    }

    /// `Hg`.
    pub fn reads(&mut self, thread: Tid) {
        self.read = thread;
        if !self.reads_all {
            self.user = thread;
        }
    }

    /// Memory is read. If GDB meant another thread, it would have sent `Hg` before: the thread is
    /// the selected one.
    pub fn reads_memory(&mut self) {
        self.reads(self.read);
    }

    /// `T`.
    pub fn asks_for(&mut self, thread: Tid) {
        self.user = thread;
        self.reads_all = false;
    }

    /// The thread list is requested.
    pub fn lists(&mut self) {
        self.reads_all = true;
    }

    /// A thread has stopped: clients select it.
    pub fn stopped(&mut self, thread: Tid) {
        self.read = thread;
        self.user = thread;
        self.reads_all = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_all_threads_selects_none() {
        let tid = |number| Tid::new(number).unwrap();
        let mut selection = Selection::new(Tid::MIN);
        selection.reads(tid(2));
        assert_eq!((selection.read(), selection.user()), (tid(2), tid(2)));
        // `info threads`.
        selection.lists();
        selection.reads(tid(3));
        assert_eq!((selection.read(), selection.user()), (tid(3), tid(2)));
        selection.reads_memory();
        assert_eq!(selection.user(), tid(2));
        // `thread 3`: registers are cached and not read again.
        selection.asks_for(tid(3));
        assert_eq!(selection.user(), tid(3));
        // `thread apply 2 print $pc`, cached; then the code where the selected thread steps.
        selection.asks_for(tid(2));
        selection.reads_memory();
        assert_eq!(selection.user(), tid(3));
        selection.lists();
        selection.stopped(tid(1));
        assert_eq!((selection.read(), selection.user()), (tid(1), tid(1)));
    }
}
