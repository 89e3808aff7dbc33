//! Which thread the user has selected.
//!
//! The remote protocol does not say: GDB names the thread that it reads (`Hg`), and reads all of
//! them for `info threads`. `thread N` asks whether the thread is alive (`T`).

use gdbstub::common::Tid;

/// The threads of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// The thread that is read.
    read: Tid,
    user: Tid,
    /// The client has asked for all threads, and looks through them.
    looks_through: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            read: Tid::MIN,
            user: Tid::MIN,
            looks_through: false,
        }
    }
}

impl Selection {
    /// The thread whose registers and memory are read.
    pub fn read(&self) -> Tid {
        self.read
    }

    /// The thread that the user moves and asks about.
    pub fn user(&self) -> Tid {
        self.user
    }

    /// `Hg`.
    pub fn reads(&mut self, thread: Tid) {
        self.read = thread;
        if !self.looks_through {
            self.user = thread;
        }
    }

    /// Memory is read. GDB says `Hg` before, where that is another thread: it is the selected one.
    pub fn reads_memory(&mut self) {
        self.reads(self.read);
    }

    /// `T`.
    pub fn asks_for(&mut self, thread: Tid) {
        self.user = thread;
        self.looks_through = false;
    }

    /// All threads are asked for.
    pub fn lists(&mut self) {
        self.looks_through = true;
    }

    /// A thread has stopped: clients take it as the one that is read, and the user's.
    pub fn stopped(&mut self, thread: Tid) {
        self.read = thread;
        self.user = thread;
        self.looks_through = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_through_all_threads_selects_none() {
        let tid = |number| Tid::new(number).unwrap();
        let mut selection = Selection::default();
        selection.reads(tid(2));
        assert_eq!((selection.read(), selection.user()), (tid(2), tid(2)));
        // `info threads`.
        selection.lists();
        selection.reads(tid(3));
        assert_eq!((selection.read(), selection.user()), (tid(3), tid(2)));
        selection.reads_memory();
        assert_eq!(selection.user(), tid(2));
        // `thread 3`: what was read is not read again.
        selection.asks_for(tid(3));
        assert_eq!(selection.user(), tid(3));
        // `thread apply 2 print $pc`, known already; then the code where the selected one steps.
        selection.asks_for(tid(2));
        selection.reads_memory();
        assert_eq!(selection.user(), tid(3));
        selection.lists();
        selection.stopped(tid(1));
        assert_eq!((selection.read(), selection.user()), (tid(1), tid(1)));
    }
}
