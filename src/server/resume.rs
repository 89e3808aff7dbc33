//! The moves that a client requests.
//!
//! Independent of positions; [`super::execution`] moves cores.

use gdbstub::common::Tid;

use armsnap_history::timeline::Direction;

/// How far a core moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// By one position.
    Step,
    /// Until it leaves the addresses from the first up to the second, exclusive.
    Within(u64, u64),
    /// Until there is a reason to stop.
    Continue,
}

/// A move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The thread (core) that moves.
    pub thread: Tid,
    /// Whether the others keep their positions (`set scheduler-locking on`).
    pub alone: bool,
    /// Where to.
    pub direction: Direction,
    /// How far.
    pub extent: Extent,
}

/// The actions of one `vCont` (GDB manual, E.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Actions {
    one: Option<(Tid, Extent)>,
    alone: bool,
}

impl Actions {
    /// One thread moves. The user moves the thread that steps; without one, the thread that
    /// continues.
    pub fn add(&mut self, thread: Tid, extent: Extent) {
        let steps = extent != Extent::Continue;
        let is_first = |(_, before)| steps && before == Extent::Continue;
        if self.one.is_none_or(is_first) {
            self.one = Some((thread, extent));
        }
    }

    /// The threads without an action of their own do not move.
    pub fn lock(&mut self) {
        self.alone = true;
    }

    /// Returns the move; without an action of one thread, that of the `selected` one. `None` if no
    /// thread moves.
    pub fn resume(self, selected: Tid) -> Option<Resume> {
        let all = (!self.alone).then_some((selected, Extent::Continue));
        let (thread, extent) = self.one.or(all)?;
        Some(Resume {
            thread,
            alone: self.alone,
            direction: Direction::Forward,
            extent,
        })
    }
}

/// Returns the `vCont` for a `c`, `C`, `s` or `S`. `selected` is the thread that the user selected;
/// `alone` is the one selected with `Hc`, or `None` if that selected all threads.
///
/// Signals and addresses are ignored: `C05` is `c`. GDB selects one thread with `Hc` only if the
/// others must not move; if all may, the user moves the selected one.
pub fn in_actions(packet: &[u8], selected: Tid, alone: Option<Tid>) -> String {
    let steps = matches!(packet, [b's' | b'S', ..]);
    match (steps, alone) {
        (false, None) => "vCont;c".to_owned(),
        (false, Some(thread)) => format!("vCont;c:{thread:x}"),
        (true, None) => format!("vCont;s:{selected:x};c"),
        (true, Some(thread)) => format!("vCont;s:{thread:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tid(number: usize) -> Tid {
        Tid::new(number).unwrap()
    }

    #[test]
    fn actions_move_one_thread() {
        use Extent::{Continue, Step, Within};
        let within = Within(0x10, 0x20);
        for (actions, alone, wanted) in [
            (&[][..], false, Some((2, Continue))),
            (&[], true, None),
            (&[(1, Continue)], true, Some((1, Continue))),
            (&[(1, Step)], false, Some((1, Step))),
            (&[(1, Continue), (3, Step)], true, Some((3, Step))),
            (&[(3, Step), (1, Continue)], true, Some((3, Step))),
            (&[(3, Step), (1, within)], true, Some((3, Step))),
            (&[(1, within)], true, Some((1, within))),
        ] {
            let mut all = Actions::default();
            for (thread, extent) in actions {
                all.add(tid(*thread), *extent);
            }
            if alone {
                all.lock();
            }
            let wanted = wanted.map(|(thread, extent)| Resume {
                thread: tid(thread),
                alone,
                direction: Direction::Forward,
                extent,
            });
            assert_eq!(all.resume(tid(2)), wanted, "{actions:?}");
        }
    }

    #[test]
    fn older_packets_are_actions() {
        for (packet, hc, wanted) in [
            ("c", None, "vCont;c"),
            ("C05", Some(1), "vCont;c:1"),
            ("s", None, "vCont;s:1f;c"),
            ("S05;40100000", Some(3), "vCont;s:3"),
        ] {
            let actions = in_actions(packet.as_bytes(), tid(0x1f), hc.map(tid));
            assert_eq!(actions, wanted, "{packet}");
        }
    }
}
