//! What the plugin tells: the blocks that the emulator translated, and their executions.
//!
//! All numbers are little endian. The stream consists of chunks, each with a head of four `u32`:
//! kind, core, bytes that follow, extra. Cores are numbered from 0 as they begin; a number is
//! never used again.
//!
//! | kind | what follows |
//! | --- | --- |
//! | 1 blocks | translated blocks, each: `u32` id, `u32` count of instructions, `u32` bytes of text, `u64` address, the size of each instruction (`u8`), the bytes of all of them, text: lines of the emulator's disassembly of the first instructions, where A32 and T32 could be confused |
//! | 2 events | `u32` events of the core; extra is the host's thread ID |
//! | 3 begin | the core begins; extra is the emulator's index of it |
//! | 4 stopped | answers a command; core is 0 if a core was still running. A row for each core: `u32` core, `u32` thread ID, `u32` state (0 running, 1 in a system call, 2 frozen, 3 cut), `u32` the emulator's index, `u64` where it is frozen or cut |
//! | 5 end | the core ends; with core `0xffff_ffff` the program does |
//! | 6 handler | the program sets what handles a signal; extra is its number; `u64` address, 0 default, 1 ignored; `u64` flags (sigaction(2)) |
//! | 7 log | text of the emulator's log, as it was written between the chunks before and behind it |
//! | 8 mask | the program changes which signals a thread takes, or returns from a handler; extra is the host's thread ID |
//! | 9 limit | as many instructions began as were asked for; a core of a system waits for command 3 |
//! | 10 store | an instruction stored to memory; extra is the number of bytes; `u64` address |
//! | 11 exit | the core, a thread of a Linux program, is about to make the system call with which the program exits; it waits for command 5; extra is the host's thread ID; `u64` address of the call, `u32` its bytes, `u32` the status. Other threads are cut: nothing is told any more of what they execute |
//! | 12 child | the program has forked: the child is not told |
//!
//! An event is
//! - below `0x8000_0000`: the block of this id began to be executed. It is defined earlier in the
//!   stream. If no event says otherwise, all its instructions began, in their order.
//! - `0x8000_0000 | n`: of the block before, only `n` instructions began.
//! - `0xc000_0000`: three more words: an exception was taken: its number (of the one who sent
//!   the command: a signal, or an exception of the core), and where execution would have gone on
//!   (low, high).
//! - `0xe000_0000`: two more words (low, high): the time at which the block before began to be
//!   executed. Threads of a Linux program tell it behind system calls and now and then: the
//!   instructions that all of them executed since there was more than one, as far as they were
//!   told by then.
//!
//! The other way go commands of six `u32`: kind, thread ID, a number, milliseconds to wait,
//! `u64` a value. 1 note: put an exception event (number, value) behind what the thread executed;
//! it must be stopped. 2 freeze: stop all threads but this one, which is stopped already, and
//! flush. 3 resume. 4 flush what all cores executed: nothing may run. 5 leave: the thread that exits
//! goes on; the signal SIGSEGV or a trap at the call stops it there again. 6 trap: code (the thread
//! ID's place) of so many bytes (the number; 0: none any more) was replaced by a trap at an address
//! (the value); forked children get it back. 2 and 4 are answered by a chunk of kind 4.
//!
//! Several cores that one host thread executes in turn are told in the order in which they were
//! executed; the order of events on different threads is not known.
//!
//! Knows no instructions and no protocol of trace.

use std::io::{self, Read};

/// The most bytes of a chunk.
const MOST: u32 = 1 << 20;

/// An order for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Puts an exception behind what the stopped thread executed.
    Note {
        /// The host's thread ID.
        thread: u32,
        /// Its number, as the flow's user will understand it.
        number: u32,
        /// Where execution would have gone on.
        address: u64,
    },
    /// Stops all threads but this one, and flushes.
    Freeze {
        /// The thread that is stopped already.
        thread: u32,
        /// How long to wait for the others.
        wait_ms: u32,
    },
    /// Frozen threads go on.
    Resume,
    /// Sends everything that is held back. Nothing may run.
    Flush,
    /// The thread that ends the program may go on.
    Leave,
    /// A trap was set, or taken away.
    Trap {
        /// Where.
        address: u64,
        /// The code that was there, four bytes at most; nothing if the trap is gone.
        code: u32,
        /// The bytes of this code.
        bytes: u32,
    },
}

impl Command {
    /// As it is sent.
    pub fn bytes(&self) -> [u8; 24] {
        let (words, value) = match *self {
            Self::Note {
                thread,
                number,
                address,
            } => ([1, thread, number, 0], address),
            Self::Freeze { thread, wait_ms } => ([2, thread, 0, wait_ms], 0),
            Self::Resume => ([3, 0, 0, 0], 0),
            Self::Flush => ([4, 0, 0, 0], 0),
            Self::Leave => ([5, 0, 0, 0], 0),
            Self::Trap {
                address,
                code,
                bytes,
            } => ([6, code, bytes, 0], address),
        };
        let mut out = [0; 24];
        for (place, word) in out.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[16..].copy_from_slice(&value.to_le_bytes());
        out
    }
}

/// A block that was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    /// What executions name it by.
    pub id: u32,
    /// Its first instruction.
    pub address: u64,
    /// The size of each instruction in bytes.
    pub sizes: &'a [u8],
    /// Its instructions.
    pub bytes: &'a [u8],
    /// Lines of disassembly; may be empty.
    pub text: &'a [u8],
}

/// What happened on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This block began to be executed.
    Block(u32),
    /// Of the block before only so many instructions began.
    Left(u32),
    /// An exception was taken.
    Exception {
        /// Its number.
        number: u32,
        /// Where execution would have gone on.
        address: u64,
    },
    /// The last block began to be executed at this time.
    Time(u64),
}

/// What a core does while the program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreState {
    /// It is the one that stopped, or it could not be frozen.
    Running,
    /// In a system call.
    SystemCall,
    /// Held before the instruction at this address.
    Frozen(u64),
    /// It went on from this address while the program exited, which is not recorded.
    Cut(u64),
}

/// A core while the program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedCore {
    /// Its number in the stream.
    pub core: u32,
    /// The host's thread ID; 0 if it has not executed anything.
    pub thread: u32,
    /// The emulator's index.
    pub index: u32,
    /// What it does.
    pub state: CoreState,
}

/// The program is stopped, and all that was executed was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// No core is running.
    pub still: bool,
    /// The cores that have not ended.
    pub cores: Vec<StoppedCore>,
}

/// A Linux program is about to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The host's ID of the thread that makes the call.
    pub thread: u32,
    /// The address of the call.
    pub address: u64,
    /// Its bytes.
    pub bytes: u32,
    /// The status with which the program exits.
    pub status: u32,
}

/// Takes what the plugin tells, in order.
pub trait Sink {
    /// A core begins; `index` is the emulator's.
    fn begin(&mut self, core: u32, index: u32) -> io::Result<()>;
    /// A block was translated.
    fn block(&mut self, definition: &Definition<'_>) -> io::Result<()>;
    /// What a core did.
    fn events(&mut self, core: u32, thread: u32, events: Events<'_>) -> io::Result<()>;
    /// The answer to [`Command::Freeze`] or [`Command::Flush`].
    fn stopped(&mut self, stopped: Stopped);
    /// What handles a signal from now on: an address, 0 (default), or 1 (ignored), and the flags
    /// of sigaction(2).
    fn handler(&mut self, signal: u32, address: u64, flags: u64);
    /// The thread changes which signals it takes, or returns from a handler.
    fn mask(&mut self, thread: u32);
    /// Text of the emulator's log.
    fn log(&mut self, _text: &[u8]) -> io::Result<()> {
        Ok(())
    }
    /// As many instructions began as were asked for.
    fn limit(&mut self) {}
    /// An instruction stored so many bytes.
    fn store(&mut self, _address: u64, _bytes: u32) {}
    /// The program is about to exit.
    fn exit(&mut self, _exit: Exit) {}
    /// The program has forked.
    fn child(&mut self) {}
    /// A core ends.
    fn end(&mut self, core: u32) -> io::Result<()>;
    /// The program ends.
    fn ended(&mut self) {}
}

/// Events of one core.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    words: std::slice::ChunksExact<'a, u8>,
}

impl<'a> Events<'a> {
    /// From their words.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            words: bytes.chunks_exact(4),
        }
    }

    fn word(&mut self) -> Option<u32> {
        let word = self.words.next()?;
        Some(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    }
}

impl Iterator for Events<'_> {
    type Item = io::Result<Event>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let word = self.word()?;
        if word < 0x8000_0000 {
            return Some(Ok(Event::Block(word)));
        }
        if word < 0xc000_0000 {
            return Some(Ok(Event::Left(word & 0x3fff_ffff)));
        }
        if word == 0xe000_0000 {
            let time = (|| Some(u64::from(self.word()?) | u64::from(self.word()?) << 32))();
            return Some(time.map(Event::Time).ok_or_else(|| bad("half of an event")));
        }
        let exception = (|| {
            let number = self.word()?;
            let low = self.word()?;
            let high = self.word()?;
            let address = u64::from(high) << 32 | u64::from(low);
            (word == 0xc000_0000).then_some(Event::Exception { number, address })
        })();
        Some(exception.ok_or_else(|| bad("an event of an unknown kind, or half of one")))
    }
}

/// The stream does not say what it should.
pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the emulator's plugin: {what}"),
    )
}

/// Reads bytes from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| bad("a chunk is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn definition(&mut self) -> io::Result<Definition<'a>> {
        let (id, count, text) = (self.u32()?, self.u32()?, self.u32()?);
        let address = self.u64()?;
        let sizes = self.bytes(count as usize)?;
        let bytes = self.bytes(sizes.iter().map(|&size| usize::from(size)).sum())?;
        let text = self.bytes(text as usize)?;
        Ok(Definition {
            id,
            address,
            sizes,
            bytes,
            text,
        })
    }

    fn stopped_core(&mut self) -> io::Result<StoppedCore> {
        let (core, thread, state, index) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let address = self.u64()?;
        Ok(StoppedCore {
            core,
            thread,
            index,
            state: match state {
                0 => CoreState::Running,
                1 => CoreState::SystemCall,
                3 => CoreState::Cut(address),
                _ => CoreState::Frozen(address),
            },
        })
    }
}

/// Fills `into`; false if the stream ends before.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the stream to its end. It breaks off where the emulator was killed: half a chunk is none.
pub fn read(mut input: impl Read, sink: &mut (impl Sink + ?Sized)) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; 16];
        if !fill(&mut input, &mut head)? {
            return Ok(());
        }
        let mut fields = Fields(&head);
        let (kind, core, length, extra) =
            (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        if length > MOST {
            return Err(bad("a chunk is too long"));
        }
        bytes.resize(length as usize, 0);
        if !fill(&mut input, &mut bytes)? {
            return Ok(());
        }
        let mut fields = Fields(&bytes);
        match kind {
            1 => {
                while !fields.0.is_empty() {
                    sink.block(&fields.definition()?)?;
                }
            }
            2 => sink.events(core, extra, Events::new(&bytes))?,
            3 => sink.begin(core, extra)?,
            4 => {
                let mut cores = Vec::new();
                while !fields.0.is_empty() {
                    cores.push(fields.stopped_core()?);
                }
                sink.stopped(Stopped {
                    still: core != 0,
                    cores,
                });
            }
            5 if core == u32::MAX => sink.ended(),
            5 => sink.end(core)?,
            6 => sink.handler(extra, fields.u64()?, fields.u64()?),
            7 => sink.log(&bytes)?,
            8 => sink.mask(extra),
            9 => sink.limit(),
            10 => sink.store(fields.u64()?, extra),
            11 => sink.exit(Exit {
                thread: extra,
                address: fields.u64()?,
                bytes: fields.u32()?,
                status: fields.u32()?,
            }),
            12 => sink.child(),
            _ => return Err(bad("a chunk of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came, in words.
    #[derive(Default)]
    struct Log(Vec<String>);

    impl Sink for Log {
        fn begin(&mut self, core: u32, index: u32) -> io::Result<()> {
            self.0.push(format!("begin {core} {index}"));
            Ok(())
        }
        fn block(&mut self, definition: &Definition<'_>) -> io::Result<()> {
            self.0.push(format!("block {definition:?}"));
            Ok(())
        }
        fn events(&mut self, core: u32, thread: u32, events: Events<'_>) -> io::Result<()> {
            for event in events {
                self.0.push(format!("{core} {thread} {:?}", event?));
            }
            Ok(())
        }
        fn stopped(&mut self, stopped: Stopped) {
            self.0.push(format!("{stopped:?}"));
        }
        fn handler(&mut self, signal: u32, address: u64, flags: u64) {
            self.0.push(format!("handler {signal} {address} {flags}"));
        }
        fn mask(&mut self, thread: u32) {
            self.0.push(format!("mask {thread}"));
        }
        fn exit(&mut self, exit: Exit) {
            self.0.push(format!("{exit:?}"));
        }
        fn child(&mut self) {
            self.0.push("child".to_owned());
        }
        fn end(&mut self, core: u32) -> io::Result<()> {
            self.0.push(format!("end {core}"));
            Ok(())
        }
    }

    fn chunk(kind: u32, core: u32, extra: u32, words: &[u32]) -> Vec<u8> {
        let head = [kind, core, 4 * words.len() as u32, extra];
        let words = head.iter().chain(words);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    fn told(bytes: &[u8]) -> io::Result<Vec<String>> {
        let mut log = Log::default();
        read(bytes, &mut log)?;
        Ok(log.0)
    }

    #[test]
    fn a_stream_may_break_off_anywhere() {
        let exception = 0xc000_0000;
        let chunks = [
            (chunk(3, 0, 5, &[]), 1),
            (chunk(2, 0, 77, &[3, 0x8000_0002, exception, 11, 4, 1]), 3),
            (chunk(4, 1, 0, &[0, 77, 2, 5, 0x1000, 0]), 1),
            (chunk(6, 0, 11, &[8, 0, 4, 0]), 1),
            (chunk(8, 0, 77, &[]), 1),
            (chunk(11, 0, 77, &[0x1000, 0, 2, 3]), 1),
            (chunk(12, 0, 0, &[]), 1),
            (chunk(5, 0, 0, &[]), 1),
        ];
        let all: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.0.clone()).collect();
        let whole = told(&all).unwrap();
        assert_eq!(
            whole[1..5],
            [
                "0 77 Block(3)",
                "0 77 Left(2)",
                "0 77 Exception { number: 11, address: 4294967300 }",
                "Stopped { still: true, cores: [StoppedCore { core: 0, thread: 77, index: 5, \
                 state: Frozen(4096) }] }",
            ]
        );
        let (mut end, mut said) = (0, 0);
        for (bytes, says) in &chunks {
            for length in end..end + bytes.len() {
                assert_eq!(told(&all[..length]).unwrap(), whole[..said], "{length}");
            }
            end += bytes.len();
            said += says;
        }
        assert_eq!(said, whole.len());
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        for bytes in [
            chunk(99, 0, 0, &[]),
            chunk(2, 0, 0, &[0xc000_0000, 1]),
            chunk(1, 0, 0, &[0, 1000, 0, 0, 0]),
            chunk(6, 0, 0, &[1]),
            chunk(11, 0, 77, &[0x1000, 0, 2]),
            [1, 0, u32::MAX, 0].map(u32::to_le_bytes).concat(),
        ] {
            assert!(told(&bytes).is_err(), "{bytes:?}");
        }
    }
}
