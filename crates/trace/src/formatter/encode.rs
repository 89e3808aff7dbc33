//! Bytes per trace ID → frames.

use armsnap_arch::quantity::TraceId;

use super::{FRAME_BYTES, FSYNC, ID_NULL};

/// Writes formatter frames.
///
/// A frame is written once it is full; [`finish`](Self::finish) fills the last one with data of the
/// null ID.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    frame: [u8; FRAME_BYTES],
    /// Bytes in `frame`, even.
    filled: usize,
    /// A data byte at an even index. If the ID changes after it, the ID byte takes its place.
    held: Option<u8>,
    id: Option<u8>,
    fsync_every: Option<u32>,
    frames: u32,
}

impl Encoder {
    /// Creates an encoder of frames only, as in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an encoder that writes FSYNC before the first frame and before every `frames`th
    /// one from then on.
    pub fn with_fsync(frames: u32) -> Self {
        Self {
            fsync_every: Some(frames.max(1)),
            ..Self::default()
        }
    }

    /// Writes `bytes` of the source `id`, 0x01 to 0x6f or the trigger.
    pub fn write(&mut self, id: TraceId, bytes: &[u8], out: &mut Vec<u8>) {
        let id = id.0 & 0x7f;
        for &byte in bytes {
            if self.id != Some(id) {
                self.switch(id, byte, out);
            } else if let Some(held) = self.held.take() {
                self.even(held);
                self.odd(byte);
            } else if self.filled == FRAME_BYTES - 2 {
                self.even(byte);
                self.complete(out);
            } else {
                self.held = Some(byte);
            }
        }
    }

    /// Returns how many bytes after the last written frame the next byte of the source `id` will be, if
    /// another one of the source follows it.
    pub fn next_byte(&self, id: TraceId) -> usize {
        let held = usize::from(self.held.is_some());
        match self.id == Some(id.0 & 0x7f) {
            true => self.filled + held,
            false if self.filled == FRAME_BYTES - 2 => FRAME_BYTES,
            // After the ID byte, which moves a byte that is held.
            false => self.filled + 1 + held,
        }
    }

    /// Fills the last frame.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.filled == 0 && self.held.is_none() {
            return;
        }
        if self.id != Some(ID_NULL) {
            self.switch(ID_NULL, 0, out);
        }
        while self.filled > 0 {
            self.write(TraceId(ID_NULL), &[0], out);
        }
        self.held = None;
    }

    /// Writes the ID byte of a new source, and its first byte.
    fn switch(&mut self, id: u8, first: u8, out: &mut Vec<u8>) {
        let late = self.held.take();
        self.id = Some(id);
        self.frame[self.filled] = id << 1 | 1;
        if let Some(old) = late {
            self.frame[FRAME_BYTES - 1] |= 1 << (self.filled / 2);
            self.odd(old);
            self.write(TraceId(id), &[first], out);
        } else if self.filled == FRAME_BYTES - 2 {
            self.complete(out);
            self.write(TraceId(id), &[first], out);
        } else {
            self.odd(first);
        }
    }

    /// Writes a data byte at an even index. [`Self::odd`] counts both bytes of the pair.
    fn even(&mut self, byte: u8) {
        self.frame[self.filled] = byte & 0xfe;
        self.frame[FRAME_BYTES - 1] |= (byte & 1) << (self.filled / 2);
    }

    fn odd(&mut self, byte: u8) {
        self.frame[self.filled + 1] = byte;
        self.filled += 2;
    }

    fn complete(&mut self, out: &mut Vec<u8>) {
        if self
            .fsync_every
            .is_some_and(|every| self.frames.is_multiple_of(every))
        {
            out.extend_from_slice(&FSYNC);
        }
        out.extend_from_slice(&self.frame);
        self.frames = self.frames.wrapping_add(1);
        self.frame = [0; FRAME_BYTES];
        self.filled = 0;
    }
}
