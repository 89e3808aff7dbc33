//! Packets as lines.

use super::text_buffer::TextBuffer;
use super::{Counts, Lines, Listed};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::{SourceSinks, Stage};
use armsnap_trace::element::AtomPacket;
use armsnap_trace::protocol::{Describe, PacketSink};

/// Lists the packets of one source.
#[derive(Clone, Debug)]
pub struct PacketListing<L>(L);

impl<L: Lines> PacketListing<L> {
    /// Lists to `lines`.
    pub fn new(lines: L) -> Self {
        Self(lines)
    }
}

impl<P: Describe, L: Lines> PacketSink<P> for PacketListing<L> {
    const LOCATES: bool = !L::SILENT;

    #[inline]
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]) {
        self.0.packet(at, packet, bytes);
    }

    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        _: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        if !L::SILENT {
            return 0;
        }
        let of_atoms = |byte: &&u8| atoms(**byte).is_some();
        bytes.iter().take_while(of_atoms).count()
    }

    fn lost(&mut self, _: BufferOffset) {}
}

impl<L: Lines> Listed for PacketListing<L> {
    fn text(&mut self) -> &mut TextBuffer {
        self.0.out()
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn reset(&mut self) {}
}

impl<L> Stage for PacketListing<L> {}

impl<'a, L: Lines + 'a> SourceSinks<dyn Listed + 'a> for PacketListing<L> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut (dyn Listed + 'a) {
        self
    }
}
