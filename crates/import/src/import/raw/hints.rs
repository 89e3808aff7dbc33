//! What the user says about the traced cores: which trace units they may have, and the addresses of
//! their code.

use armsnap_arch::quantity::BufferOffset;
use armsnap_snapshot::capture::{Config, Protocol, Visitor};
use armsnap_trace::element::{Element, ElementSink};
use armsnap_trace::formatter::Stream;
use armsnap_trace::protocol::{Core, ElementDecoder, PacketDecoder, Profile};
use std::ops::Range;

/// The known properties of the cores.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Their profile and version, assumed if they are not known.
    pub core: Core,
    /// Whether these are known.
    pub is_known: bool,
    /// The addresses of code; empty if they are not known.
    pub code: Vec<Range<u64>>,
}

/// How well a protocol fits the hints; greater is better.
pub type Fit = (bool, u64);

/// The number of levels to which the proportion of addresses in code is rounded.
const SHARES: u64 = 16;

impl Hints {
    /// Returns how well trace fits: whether the cores may have such a trace unit, and the
    /// proportion of its addresses that are in code.
    pub fn fit(&self, protocol: Protocol, config: &Config, stream: &Stream) -> Fit {
        (self.may_trace(protocol), self.in_code(config, stream))
    }

    /// Whether trace units of this kind trace such cores: a Cortex-M has neither PTM nor ETE, and
    /// other cores of Armv8 have only ETMv4 and ETE. Trace sources that do not trace cores may be
    /// in any system.
    fn may_trace(&self, protocol: Protocol) -> bool {
        let Core { profile, version } = self.core;
        let is_micro = profile == Profile::M;
        match protocol {
            _ if !self.is_known => true,
            Protocol::Ptm => !is_micro && version < 8,
            Protocol::Etmv3 => is_micro || version < 8,
            Protocol::Ete => !is_micro && version >= 8,
            Protocol::Etmv4 | Protocol::Stm | Protocol::Itm => true,
        }
    }

    fn in_code(&self, config: &Config, stream: &Stream) -> u64 {
        if self.code.is_empty() {
            return 0;
        }
        let mut found = Addresses {
            code: &self.code,
            all: 0,
            inside: 0,
        };
        config.visit(Follow(&mut stream.clone(), &mut found));
        (found.inside * SHARES).checked_div(found.all).unwrap_or(0)
    }
}

/// Counts the addresses in trace.
struct Addresses<'a> {
    code: &'a [Range<u64>],
    all: u64,
    inside: u64,
}

impl ElementSink for Addresses<'_> {
    fn element(&mut self, _: BufferOffset, element: Element) {
        if let Element::Address { address, .. } = element {
            self.all += 1;
            let inside = self.code.iter().any(|range| range.contains(&address.0));
            self.inside += u64::from(inside);
        }
    }
}

/// Decodes elements to count their addresses.
struct Follow<'a, 'b>(&'a mut Stream, &'a mut Addresses<'b>);

impl Visitor for Follow<'_, '_> {
    type Output = ();

    fn visit<D, E>(self, mut packets: D, mut elements: E)
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let Self(stream, found) = self;
        stream.packets(&mut packets, false, |at, packet, _| {
            elements.packet(at, packet, found);
        });
    }
}
