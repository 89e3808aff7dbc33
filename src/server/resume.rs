//! Packets that resume cores: `vCont`, `c`, `s`, `bc`, `bs` (GDB manual, E.2).
//!
//! Independent of positions; [`super::execution`] moves cores.

use gdbstub::common::Tid;

use super::reply::{pair, thread_id};
use crate::remote_protocol::hex::parse_hex;
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

/// A packet that does not resume, or is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another packet.
    NoMove,
    /// A malformed packet.
    Malformed,
}

/// Parses a packet. `selected` is the thread selected with `Hg`; `alone` is the one selected with
/// `Hc`, or `None` if that selected all threads.
///
/// Signals are ignored: `C05` is `c`. GDB selects one thread with `Hc` only if the others must not
/// move; if all may, the user moves the selected one.
pub fn parse(packet: &[u8], selected: Tid, alone: Option<Tid>) -> Result<Resume, Other> {
    let chosen = |direction, extent| Resume {
        thread: alone.unwrap_or(selected),
        alone: alone.is_some(),
        direction,
        extent,
    };
    match packet {
        b"bs" => Ok(chosen(Direction::Backward, Extent::Step)),
        b"bc" => Ok(chosen(Direction::Backward, Extent::Continue)),
        [b'c' | b'C', ..] => Ok(chosen(Direction::Forward, Extent::Continue)),
        [b's' | b'S', ..] => Ok(chosen(Direction::Forward, Extent::Step)),
        _ => {
            let actions = packet.strip_prefix(b"vCont;").ok_or(Other::NoMove)?;
            continue_actions(actions, selected).ok_or(Other::Malformed)
        }
    }
}

/// Parses the actions of `vCont`. The user moves the thread that steps; without one, the thread that
/// continues alone, or the selected one.
fn continue_actions(actions: &[u8], selected: Tid) -> Option<Resume> {
    let mut all = None;
    let mut one: Option<(Tid, Extent)> = None;
    for action in actions.split(|byte| *byte == b';') {
        let (what, thread) = match action.iter().rposition(|byte| *byte == b':') {
            Some(at) => (&action[..at], Some(&action[at + 1..])),
            None => (action, None),
        };
        let extent = extent(what)?;
        match thread {
            None | Some(b"-1") => all = all.or(Some(extent)),
            Some(digits) => {
                let thread = thread_id(digits)?;
                let steps = extent != Extent::Continue;
                if one.is_none_or(|(_, before)| steps && before == Extent::Continue) {
                    one = Some((thread, extent));
                }
            }
        }
    }
    let (thread, extent) = match one {
        Some(one) => one,
        None => (selected, all?),
    };
    Some(Resume {
        thread,
        alone: all.is_none(),
        direction: Direction::Forward,
        extent,
    })
}

fn extent(action: &[u8]) -> Option<Extent> {
    Some(match action {
        b"c" => Extent::Continue,
        b"s" => Extent::Step,
        [b'C', signal @ ..] => parse_hex(signal).map(|_| Extent::Continue)?,
        [b'S', signal @ ..] => parse_hex(signal).map(|_| Extent::Step)?,
        [b'r', range @ ..] => {
            let (first, end) = pair(range, b',')?;
            Extent::Within(first, end)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tid(number: usize) -> Tid {
        Tid::new(number).unwrap()
    }

    fn resume(thread: usize, alone: bool, direction: Direction, extent: Extent) -> Resume {
        Resume {
            thread: tid(thread),
            alone,
            direction,
            extent,
        }
    }

    #[test]
    fn moves_are_parsed() {
        use Direction::{Backward, Forward};
        use Extent::{Continue, Step, Within};
        for (packet, hc, wanted) in [
            ("bs", None, resume(2, false, Backward, Step)),
            ("bs", Some(1), resume(1, true, Backward, Step)),
            ("bc", None, resume(2, false, Backward, Continue)),
            ("c", None, resume(2, false, Forward, Continue)),
            ("S05", Some(3), resume(3, true, Forward, Step)),
            ("vCont;c", Some(1), resume(2, false, Forward, Continue)),
            ("vCont;c:1", None, resume(1, true, Forward, Continue)),
            ("vCont;s:1;c", None, resume(1, false, Forward, Step)),
            ("vCont;s:1;c:-1", None, resume(1, false, Forward, Step)),
            ("vCont;s:3", None, resume(3, true, Forward, Step)),
            ("vCont;c:1;s:3", None, resume(3, true, Forward, Step)),
            ("vCont;C1d:1;c", None, resume(1, false, Forward, Continue)),
            (
                "vCont;r10,20:1",
                None,
                resume(1, true, Forward, Within(0x10, 0x20)),
            ),
        ] {
            let read = parse(packet.as_bytes(), tid(2), hc.map(tid));
            assert_eq!(read, Ok(wanted), "{packet}");
        }
    }

    #[test]
    fn packets_that_do_not_resume_are_errors() {
        for packet in ["g", "bz", "vCont?", "vCont", "qC"] {
            let read = parse(packet.as_bytes(), tid(1), None);
            assert_eq!(read, Err(Other::NoMove), "{packet}");
        }
        for packet in [
            "vCont;",
            "vCont;t",
            "vCont;q",
            "vCont;s:",
            "vCont;s:0",
            "vCont;r1:1",
            "vCont;Cx",
        ] {
            let read = parse(packet.as_bytes(), tid(1), None);
            assert_eq!(read, Err(Other::Malformed), "{packet}");
        }
    }
}
