//! The plugin's stream: the blocks that the emulator translated, and their executions.
//!
//! All numbers are little endian. The stream consists of chunks, each with a head of four `u32`:
//! kind, core, length of the data, extra. Cores are numbered from 0 in order of their start; a
//! number is never reused.
//!
//! | kind | data |
//! | --- | --- |
//! | 1 blocks | translated blocks, each: `u32` id, `u32` count of instructions, `u32` bytes of text, `u32` instruction set (0 not known, 1 A64, 2 A32, 3 T32), `u64` address, the size of each instruction (`u8`), the bytes of all instructions, text: lines of the emulator's disassembly of the first instructions, if A32 and T32 cannot be distinguished by size |
//! | 2 events | `u32` events of the core; extra: host thread ID |
//! | 3 begin | the core starts; extra: the emulator's index of the core |
//! | 4 stopped | reply to a command; core is 0 if a core was still running. A row for each core: `u32` core, `u32` thread ID, `u32` state (0 running, 1 in a system call, 2 frozen, 3 cut), `u32` the emulator's index, `u64` address at which it is frozen or cut |
//! | 5 end | the core ends; core `0xffff_ffff`: the program ends |
//! | 6 handler | the program sets a signal's handler; extra: the signal's number; `u64` address, 0 default, 1 ignored; `u64` flags (sigaction(2)) |
//! | 7 log | text of the emulator's log, written between the adjacent chunks |
//! | 8 mask | a thread changes its signal mask, or returns from a handler; extra: host thread ID |
//! | 9 limit | the requested number of instructions was started; a core of a system waits for command 3, a thread of a program receives SIGINT |
//! | 10 store | an instruction stored to memory; extra: number of bytes; `u64` address |
//! | 11 exit | the core, a thread of a Linux program, is about to make the system call that exits the program; it waits for command 5; extra: host thread ID; `u64` address of the call, `u32` its size in bytes, `u32` the status. Other threads are cut: what they execute afterwards is not reported |
//! | 12 child | the program has forked; the child is not recorded |
//! | 13 place | the code named by the plugin's argument `place` is executed for the first time; `u64` its address; the core waits for command 3 |
//! | 14 failed | the plugin cannot continue; text: the reason |
//! | 15 memory | what the kernel wrote in the call reported next, only with `inputs=`; extra: 0, `u64` address and bytes, or 1, `u64` address and `u64` count of bytes that are 0 |
//! | 16 call | a system call returned, or ends its thread, in the turn of this thread: `u64` address of its instruction, `u64` number, `u64` result, six `u64` arguments, `u64` number of the turn, 0 before the second thread starts |
//! | 17 checkpoint | the only thread receives SIGINT, so that it stops after the block that it enters next, which ends in a branch; only with `checkpoints=` |
//!
//! An event is one of:
//!
//! - below `0x8000_0000`: the block with this ID was entered. The block is defined earlier in the
//!   stream. Unless another event follows, all its instructions were started in order.
//! - `0x8000_0000 | n`: only `n` instructions of the previous block were started.
//! - `0xa000_0000 | store << 28 | n << 16 | bytes` and two more words (low, high): instruction `n` of
//!   the previous block loaded or stored (1) adjacent bytes at this address; only with
//!   `accesses=on`.
//! - `0xc000_0000` and three more words: an exception was taken. The words are the number from the
//!   note command, and the address at which execution would have continued (low, high).
//! - `0xd000_0000` and two more words (low, high): the core executes the next block in the turn with this
//!   number. Turns are numbered from 1 in their order; only one thread executes at a time.
//! - `0xe000_0000` and two more words (low, high): the time at which the previous block was entered.
//!   Threads of a Linux program report it after system calls and at intervals. The time is the
//!   number of instructions that all threads executed since the second one started, as far as they
//!   were counted at that moment.
//! - `0xf000_0000` and one more word: the core has this context ID from here on.
//!
//! Commands are sent in the other direction as `u32` kind, `u32` thread ID, `u32` number, `u32`
//! milliseconds to wait, `u64` value:
//!
//! | command | effect |
//! | --- | --- |
//! | 1 note | adds an exception event (number, value) after what the thread, which must be stopped, executed |
//! | 2 freeze | stops all threads but this one, which is already stopped, and flushes; the reply is chunk 4 |
//! | 3 resume | resumes frozen threads |
//! | 4 flush | sends all buffered events; no core may run; the reply is chunk 4 |
//! | 5 leave | lets the exiting thread continue; SIGSEGV or a trap at the call stops it there again |
//! | 6 trap | a trap at an address (value) replaces code (in the field of the thread ID) of `number` bytes; 0 bytes: the trap was removed. The code is restored in forked children |
//! | 7 checkpoint | asks for a checkpoint after this many events (value), 0: as soon as possible, in place of what was asked for before |
//!
//! Cores that one host thread executes in turn are reported in the order of execution. The order of
//! events on different host threads is not known.

use armsnap_arch::quantity::Isa;
use armsnap_trace::data_addresses::Access;
use std::io::{self, Read};

/// The maximum size of a chunk's data in bytes.
const MOST: u32 = 1 << 20;

/// A command for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds an exception after what the stopped thread executed.
    Note {
        /// The host thread ID.
        thread: u32,
        /// The exception's number, passed through to [`Event::Exception`].
        number: u32,
        /// The address at which execution would have continued.
        address: u64,
    },
    /// Stops all threads but this one, and flushes.
    Freeze {
        /// The thread that is already stopped.
        thread: u32,
        /// How many milliseconds to wait for the others.
        wait_ms: u32,
    },
    /// Resumes frozen threads.
    Resume,
    /// Sends all buffered events. No core may run.
    Flush,
    /// Lets the thread that exits the program continue.
    Leave,
    /// A trap was inserted or removed.
    Trap {
        /// The trap's address.
        address: u64,
        /// The replaced code, at most four bytes.
        code: u32,
        /// The size of the code in bytes; 0 if the trap was removed.
        bytes: u32,
    },
    /// Asks for a checkpoint.
    Checkpoint {
        /// After this many events; 0: as soon as possible.
        after: u64,
    },
}

impl Command {
    /// Encodes the command.
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
            Self::Checkpoint { after } => ([7, 0, 0, 0], after),
        };
        let mut out = [0; 24];
        for (place, word) in out.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[16..].copy_from_slice(&value.to_le_bytes());
        out
    }
}

/// The definition of a translated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    /// The block's ID in events.
    pub id: u32,
    /// The address of its first instruction.
    pub address: u64,
    /// The size of each instruction in bytes.
    pub sizes: &'a [u8],
    /// The bytes of its instructions.
    pub bytes: &'a [u8],
    /// Lines of the emulator's disassembly; may be empty.
    pub text: &'a [u8],
    /// The instruction set, if the stream reports it.
    pub isa: Option<Isa>,
}

/// An event of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The block with this ID was entered.
    Block(u32),
    /// Only this many instructions of the previous block were started.
    Left(u32),
    /// An exception was taken.
    Exception {
        /// The exception's number.
        number: u32,
        /// The address at which execution would have continued.
        address: u64,
    },
    /// An instruction of the previous block accessed memory.
    Access {
        /// The index of the instruction in the block.
        instruction: u16,
        /// The access.
        access: Access,
    },
    /// The turn with this number begins before the next block.
    Turn(u64),
    /// The previous block was entered at this time.
    Time(u64),
    /// The core has this context ID from the next block on.
    Context(u32),
}

/// The state of a core while the program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreState {
    /// The core stopped the program, or could not be frozen.
    Running,
    /// The core is in a system call.
    SystemCall,
    /// The core is frozen before the instruction at this address.
    Frozen(u64),
    /// The core continued from this address while the program exited, without being recorded.
    Cut(u64),
}

/// A core while the program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedCore {
    /// Its number in the stream.
    pub core: u32,
    /// The host thread ID; 0 if the core has not executed anything.
    pub thread: u32,
    /// The emulator's index of the core.
    pub index: u32,
    /// The core's state.
    pub state: CoreState,
}

/// The program is stopped, and everything executed was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Whether no core is running.
    pub still: bool,
    /// The cores that have not ended.
    pub cores: Vec<StoppedCore>,
}

/// A system call that returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The address of its instruction.
    pub pc: u64,
    /// Its number.
    pub number: u64,
    /// Its result.
    pub result: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The number of the turn in which it returned; 0 if there was only one thread.
    pub turn: u64,
}

/// Memory that the kernel wrote in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many bytes that are 0.
    Zeros(u64),
}

/// A Linux program is about to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The host ID of the thread that makes the call.
    pub thread: u32,
    /// The address of the call.
    pub address: u64,
    /// The size of the call's instruction in bytes.
    pub bytes: u32,
    /// The program's exit status.
    pub status: u32,
}

/// Receives the contents of the stream, in order.
pub trait Sink {
    /// A core starts; `index` is the emulator's.
    fn begin(&mut self, core: u32, index: u32) -> io::Result<()>;
    /// A block was translated.
    fn block(&mut self, definition: &Definition<'_>) -> io::Result<()>;
    /// Events of a core.
    fn events(&mut self, core: u32, thread: u32, events: Events<'_>) -> io::Result<()>;
    /// The reply to [`Command::Freeze`] or [`Command::Flush`].
    fn stopped(&mut self, stopped: Stopped);
    /// The program sets a signal's handler: an address, 0 (default), or 1 (ignored), and the flags of
    /// sigaction(2).
    fn handler(&mut self, signal: u32, address: u64, flags: u64);
    /// The thread changes its signal mask, or returns from a handler.
    fn mask(&mut self, thread: u32);
    /// Text of the emulator's log.
    fn log(&mut self, _text: &[u8]) -> io::Result<()> {
        Ok(())
    }
    /// The requested number of instructions was started.
    fn limit(&mut self) {}
    /// The thread stops for a checkpoint after the block that it enters next.
    fn checkpoint(&mut self) {}
    /// An instruction stored this many bytes.
    fn store(&mut self, _address: u64, _bytes: u32) {}
    /// The program is about to exit.
    fn exit(&mut self, _exit: Exit) {}
    /// The program has forked.
    fn child(&mut self) {}
    /// The requested code is at this address, and a core is about to execute it.
    fn place(&mut self, _address: u64) {}
    /// The kernel wrote memory from an address on, in the call reported next.
    fn written(&mut self, _address: u64, _written: Written<'_>) {}
    /// A system call returned.
    fn call(&mut self, _call: SystemCall) {}
    /// A core ends.
    fn end(&mut self, core: u32, time: Option<u64>) -> io::Result<()>;
    /// The program ends.
    fn ended(&mut self) {}
}

/// Iterates over the events of one core.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    words: std::slice::ChunksExact<'a, u8>,
}

impl<'a> Events<'a> {
    /// Creates the iterator from the events' words.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            words: bytes.chunks_exact(4),
        }
    }

    /// Returns the block that the next event enters, and the events after it; `None` if it is another
    /// event.
    #[inline]
    pub fn entered(&self) -> Option<(u32, Self)> {
        let mut rest = self.clone();
        let word = rest.word().filter(|&word| word < 0x8000_0000)?;
        Some((word, rest))
    }

    #[inline]
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
        if word < 0xa000_0000 {
            return Some(Ok(Event::Left(word & 0x1fff_ffff)));
        }
        if word < 0xc000_0000 {
            let address = (|| Some(u64::from(self.word()?) | u64::from(self.word()?) << 32))();
            let event = address.map(|address| Event::Access {
                instruction: (word >> 16 & 0xfff) as u16,
                access: Access {
                    address,
                    bytes: word & 0xffff,
                    store: word & 1 << 28 != 0,
                },
            });
            return Some(event.ok_or_else(|| bad("half of an event")));
        }
        if word == 0xd000_0000 || word == 0xe000_0000 {
            let number = (|| Some(u64::from(self.word()?) | u64::from(self.word()?) << 32))();
            let event = number.map(match word {
                0xd000_0000 => Event::Turn,
                _ => Event::Time,
            });
            return Some(event.ok_or_else(|| bad("half of an event")));
        }
        if word == 0xf000_0000 {
            let event = self.word().map(Event::Context);
            return Some(event.ok_or_else(|| bad("half of an event")));
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

/// Returns an error for an invalid stream.
pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the emulator's plugin: {what}"),
    )
}

/// Reads fields from the front of a chunk.
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
        let isa = match self.u32()? {
            0 => None,
            1 => Some(Isa::A64),
            2 => Some(Isa::A32),
            3 => Some(Isa::T32),
            _ => return Err(bad("an unknown instruction set")),
        };
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
            isa,
        })
    }

    fn call(&mut self) -> io::Result<SystemCall> {
        let (pc, number, result) = (self.u64()?, self.u64()?, self.u64()?);
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = self.u64()?;
        }
        Ok(SystemCall {
            pc,
            number,
            result,
            arguments,
            turn: self.u64()?,
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

/// Fills `into`; returns false if the stream ends first.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
    match input.read_exact(into) {
        Ok(()) => Ok(true),
        // The connection is reset, after all its bytes, if the emulator ended before it read a
        // command.
        Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the stream to its end. An incomplete last chunk, from a killed emulator, is ignored.
///
/// # Errors
///
/// If the stream cannot be read or is malformed, or the sink fails.
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
            5 => {
                let time = if bytes.is_empty() {
                    None
                } else {
                    Some(fields.u64()?)
                };
                sink.end(core, time)?;
            }
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
            13 => sink.place(fields.u64()?),
            14 => return Err(bad(&String::from_utf8_lossy(&bytes))),
            15 => {
                let address = fields.u64()?;
                let written = match extra {
                    0 => Written::Bytes(fields.0),
                    _ => Written::Zeros(fields.u64()?),
                };
                sink.written(address, written);
            }
            16 => sink.call(fields.call()?),
            17 => sink.checkpoint(),
            _ => return Err(bad("a chunk of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// The stream's contents as text.
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
        fn end(&mut self, core: u32, _: Option<u64>) -> io::Result<()> {
            self.0.push(format!("end {core}"));
            Ok(())
        }
    }

    fn chunk(kind: u32, core: u32, extra: u32, words: &[u32]) -> Vec<u8> {
        let head = [kind, core, 4 * words.len() as u32, extra];
        let words = head.iter().chain(words);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    fn contents(bytes: &[u8]) -> io::Result<Vec<String>> {
        let mut log = Log::default();
        read(bytes, &mut log)?;
        Ok(log.0)
    }

    #[test]
    fn an_incomplete_last_chunk_is_ignored() {
        let exception = 0xc000_0000;
        let chunks = [
            (chunk(3, 0, 5, &[]), 1),
            (chunk(2, 0, 77, &[3, 0x8000_0002, exception, 11, 4, 1]), 3),
            (chunk(2, 0, 77, &[0xf000_0000, 9]), 1),
            (chunk(4, 1, 0, &[0, 77, 2, 5, 0x1000, 0]), 1),
            (chunk(6, 0, 11, &[8, 0, 4, 0]), 1),
            (chunk(8, 0, 77, &[]), 1),
            (chunk(11, 0, 77, &[0x1000, 0, 2, 3]), 1),
            (chunk(12, 0, 0, &[]), 1),
            (chunk(5, 0, 0, &[]), 1),
        ];
        let all: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.0.clone()).collect();
        let whole = contents(&all).unwrap();
        assert_eq!(
            whole[1..6],
            [
                "0 77 Block(3)",
                "0 77 Left(2)",
                "0 77 Exception { number: 11, address: 4294967300 }",
                "0 77 Context(9)",
                "Stopped { still: true, cores: [StoppedCore { core: 0, thread: 77, index: 5, \
                 state: Frozen(4096) }] }",
            ]
        );
        let (mut end, mut count) = (0, 0);
        for (bytes, items) in &chunks {
            for length in end..end + bytes.len() {
                assert_eq!(
                    contents(&all[..length]).unwrap(),
                    whole[..count],
                    "{length}"
                );
            }
            end += bytes.len();
            count += items;
        }
        assert_eq!(count, whole.len());
    }

    #[test]
    fn an_emulator_may_end_without_reading_a_command() {
        let (reader, mut plugin) = UnixStream::pair().unwrap();
        plugin.write_all(&chunk(3, 0, 5, &[])).unwrap();
        plugin.write_all(&chunk(12, 0, 0, &[])).unwrap();
        (&reader).write_all(b"a command").unwrap();
        drop(plugin);
        let mut log = Log::default();
        read(reader, &mut log).unwrap();
        assert_eq!(log.0, ["begin 0 5", "child"]);
    }

    #[test]
    fn an_invalid_stream_is_an_error() {
        for bytes in [
            chunk(99, 0, 0, &[]),
            chunk(2, 0, 0, &[0xc000_0000, 1]),
            chunk(1, 0, 0, &[0, 1000, 0, 0, 0, 0]),
            chunk(1, 0, 0, &[0, 1, 0, 4, 0, 0]),
            chunk(2, 0, 0, &[0xf000_0000]),
            chunk(14, 0, 0, &[0x7865_7420]),
            chunk(6, 0, 0, &[1]),
            chunk(11, 0, 77, &[0x1000, 0, 2]),
            [1, 0, u32::MAX, 0].map(u32::to_le_bytes).concat(),
        ] {
            assert!(contents(&bytes).is_err(), "{bytes:?}");
        }
    }
}
