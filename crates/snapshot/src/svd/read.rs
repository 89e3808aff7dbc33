//! Expands a description into registers.

use super::elements::{Chain, Elements, number, shown};
use super::{Fault, Field, Meaning, Note, Peripheral, Register, Svd, SvdError};
use crate::mapped;
use armsnap_arch::xml;
use roxmltree::{Document, Node, NodeId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The size of the largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 256 << 20;
/// The maximum number of registers, clusters and fields together.
pub(super) const MOST: usize = 1 << 20;
/// The maximum nesting of clusters.
pub(super) const DEEPEST: usize = 16;
/// The size of a register in bits, if nothing says it.
const USUAL_BITS: u64 = 32;
/// The maximum length of a name in bytes.
const LONGEST_NAME: usize = 256;
/// The maximum number of values of a field with a meaning.
const MOST_MEANINGS: usize = 1 << 12;

impl Svd {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, is no description, or exceeds a limit.
    pub fn open(path: &Path) -> Result<Self, SvdError> {
        let read = || {
            let bytes = mapped::head(path, LARGEST + 1)?;
            if bytes.len() as u64 > LARGEST {
                return Err(Fault::Large);
            }
            Self::read(&String::from_utf8_lossy(&bytes))
        };
        read().map_err(|fault| SvdError {
            path: path.to_owned(),
            fault,
        })
    }

    /// Reads the text of a description.
    ///
    /// # Errors
    ///
    /// Returns an error if it is no description, or exceeds a limit.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let document = xml::read_large(text.trim_start_matches('\u{feff}').trim_start())?;
        Reader::new(&document).device(document.root_element())
    }
}

/// Where an element is: in a peripheral, or in one of its clusters.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The names of the clusters, each followed by a dot.
    prefix: &'p str,
    address: u64,
    /// The size of a register that does not say its own.
    bits: u64,
    depth: usize,
}

struct Reader<'d> {
    elements: Elements<'d>,
    /// What was made of an element that others share.
    fields: HashMap<NodeId, Arc<[Field]>>,
    meanings: HashMap<NodeId, Arc<[Meaning]>>,
    descriptions: HashMap<NodeId, Arc<str>>,
    none: Arc<str>,
    /// How many registers, clusters and fields there may still be.
    left: usize,
}

impl<'d> Reader<'d> {
    fn new(document: &'d Document<'d>) -> Self {
        Self {
            elements: Elements::new(document),
            fields: HashMap::new(),
            meanings: HashMap::new(),
            descriptions: HashMap::new(),
            none: Arc::from(""),
            left: MOST,
        }
    }

    fn device(mut self, device: Node<'d, 'd>) -> Result<Svd, Fault> {
        if !device.has_tag_name("device") {
            return Err(Fault::NoDevice(shown(device.tag_name().name())));
        }
        let endian = self.elements.child(&[device], "cpu");
        let endian = endian.and_then(|cpu| self.elements.text(&[cpu], "endian"));
        let mut svd = Svd {
            name: shown(self.elements.text(&[device], "name").unwrap_or_default()),
            big_endian: endian == Some("big"),
            ..Svd::default()
        };
        let bits = self.elements.number(&[device], "size");
        let all = self.elements.child(&[device], "peripherals");
        let all = all.into_iter().flat_map(|all| all.children());
        for peripheral in all.filter(|node| node.has_tag_name("peripheral")) {
            let found = self.peripheral(peripheral, bits.unwrap_or(USUAL_BITS))?;
            svd.peripherals.extend(found);
        }
        svd.notes = self.elements.take_notes();
        svd.index();
        Ok(svd)
    }

    /// Reads a peripheral, or an array of them.
    fn peripheral(&mut self, node: Node<'d, 'd>, bits: u64) -> Result<Vec<Peripheral>, Fault> {
        let chain = self.elements.chain(node);
        let mut out = Vec::new();
        let Some(base) = self.elements.needed(&chain, "baseAddress", "peripheral") else {
            return Ok(out);
        };
        let description = self.description(&chain);
        let place = Place {
            prefix: "",
            address: base,
            bits: self.elements.number(&chain, "size").unwrap_or(bits),
            depth: 0,
        };
        let mut chain_of_blocks = chain.iter();
        let blocks = chain_of_blocks.find_map(|node| {
            let blocks = self.elements.children(*node);
            let blocks = blocks.filter(|child| child.has_tag_name("addressBlock"));
            let block = |block| {
                let offset = self.elements.number(&[block], "offset")?;
                Some((offset, self.elements.number(&[block], "size")?))
            };
            let blocks: Vec<_> = blocks.filter_map(block).collect();
            (!blocks.is_empty()).then_some(blocks)
        });
        let blocks = blocks.unwrap_or_default();
        let items = self.elements.child(&chain, "registers");
        let items: Vec<_> = items.into_iter().flat_map(|all| self.items(all)).collect();
        for (name, offset) in self.instances(&chain)? {
            let place = Place {
                address: base.wrapping_add(offset),
                ..place
            };
            let mut all = Vec::new();
            for item in &items {
                self.item(*item, place, &mut all)?;
            }
            all.sort_by_key(|register: &Register| register.address);
            let placed = |(offset, size): &(u64, u64)| (place.address.wrapping_add(*offset), *size);
            out.push(Peripheral {
                name,
                description: Arc::clone(&description),
                base: place.address,
                registers: all,
                blocks: blocks.iter().map(placed).collect(),
            });
        }
        Ok(out)
    }

    /// Returns the registers and clusters in an element.
    fn items(&self, list: Node<'d, 'd>) -> Vec<Node<'d, 'd>> {
        let is_item =
            |node: &Node<'_, '_>| matches!(node.tag_name().name(), "register" | "cluster");
        self.elements.children(list).filter(is_item).collect()
    }

    /// Reads a register or a cluster, or an array of them.
    fn item(
        &mut self,
        node: Node<'d, 'd>,
        place: Place<'_>,
        out: &mut Vec<Register>,
    ) -> Result<(), Fault> {
        self.elements.step()?;
        match node.has_tag_name("register") {
            true => self.register(node, place, out),
            false => self.cluster(node, place, out),
        }
    }

    fn cluster(
        &mut self,
        node: Node<'d, 'd>,
        place: Place<'_>,
        out: &mut Vec<Register>,
    ) -> Result<(), Fault> {
        if place.depth == DEEPEST {
            return Err(Fault::Deep);
        }
        let chain = self.elements.chain(node);
        let Some(start) = self.elements.needed(&chain, "addressOffset", "cluster") else {
            return Ok(());
        };
        let mut lists = chain.iter().map(|node| self.items(*node));
        let items = lists.find(|items| !items.is_empty()).unwrap_or_default();
        drop(lists);
        let bits = self.elements.number(&chain, "size").unwrap_or(place.bits);
        for (name, offset) in self.instances(&chain)? {
            let prefix = format!("{}{name}.", place.prefix);
            let place = Place {
                prefix: &prefix,
                address: place.address.wrapping_add(start).wrapping_add(offset),
                bits,
                depth: place.depth + 1,
            };
            for item in &items {
                self.item(*item, place, out)?;
            }
        }
        Ok(())
    }

    fn register(
        &mut self,
        node: Node<'d, 'd>,
        place: Place<'_>,
        out: &mut Vec<Register>,
    ) -> Result<(), Fault> {
        let chain = self.elements.chain(node);
        let Some(start) = self.elements.needed(&chain, "addressOffset", "register") else {
            return Ok(());
        };
        let bits = self.elements.number(&chain, "size").unwrap_or(place.bits);
        let Some(bits) = u32::try_from(bits)
            .ok()
            .filter(|bits| (1..=64).contains(bits))
        else {
            self.elements.note(node, |line| Note::Size { line, bits });
            return Ok(());
        };
        let description = self.description(&chain);
        let fields = self.fields(&chain)?;
        for (name, offset) in self.instances(&chain)? {
            let mut name = format!("{}{name}", place.prefix);
            shorten(&mut name);
            out.push(Register {
                name,
                description: Arc::clone(&description),
                address: place.address.wrapping_add(start).wrapping_add(offset),
                bits,
                fields: Arc::clone(&fields),
            });
        }
        Ok(())
    }

    /// Returns the description of an element.
    fn description(&mut self, chain: &Chain<'d>) -> Arc<str> {
        let Some(node) = self.elements.child(chain, "description") else {
            return Arc::clone(&self.none);
        };
        let made = self.descriptions.entry(node.id());
        let text = || Arc::from(shown(node.text().unwrap_or_default()));
        Arc::clone(made.or_insert_with(text))
    }

    /// Returns the fields of a register.
    fn fields(&mut self, chain: &Chain<'d>) -> Result<Arc<[Field]>, Fault> {
        let Some(list) = self.elements.child(chain, "fields") else {
            return Ok(Arc::from([]));
        };
        if let Some(fields) = self.fields.get(&list.id()) {
            return Ok(Arc::clone(fields));
        }
        let mut fields = Vec::new();
        for node in list.children().filter(|node| node.has_tag_name("field")) {
            let chain = self.elements.chain(node);
            let Some((lowest, bits)) = self.range(&chain) else {
                self.elements.note(node, |line| Note::NoNumber {
                    line,
                    tag: "bitRange",
                    found: String::new(),
                    element: "field",
                });
                continue;
            };
            let meanings = self.meanings(&chain);
            for (name, offset) in self.instances(&chain)? {
                let lowest = u64::from(lowest).checked_add(offset);
                let Some(lowest) = lowest.and_then(|lowest| u32::try_from(lowest).ok()) else {
                    break;
                };
                fields.push(Field {
                    name,
                    lowest,
                    bits,
                    meanings: Arc::clone(&meanings),
                });
            }
        }
        fields.retain(|field| field.lowest.saturating_add(field.bits) <= 64);
        fields.sort_by_key(|field| field.lowest);
        let fields: Arc<[Field]> = fields.into();
        self.fields.insert(list.id(), Arc::clone(&fields));
        Ok(fields)
    }

    /// Returns the least significant bit of a field and the number of its bits.
    fn range(&self, chain: &Chain<'d>) -> Option<(u32, u32)> {
        // What is nearest in the chain holds, in whichever of its three forms.
        chain.iter().find_map(|node| {
            let of = [*node];
            let get = |tag| self.elements.number(&of, tag);
            let (lowest, highest) = if let Some(lowest) = get("bitOffset") {
                (
                    lowest,
                    lowest
                        .checked_add(get("bitWidth").unwrap_or(1))?
                        .checked_sub(1)?,
                )
            } else if let Some(lowest) = get("lsb") {
                (lowest, get("msb")?)
            } else {
                let range = self.elements.text(&of, "bitRange")?;
                let range = range.strip_prefix('[')?.strip_suffix(']')?;
                let (highest, lowest) = range.split_once(':')?;
                (number(lowest)?, number(highest)?)
            };
            let bits = highest.checked_sub(lowest)?.checked_add(1)?;
            Some((u32::try_from(lowest).ok()?, u32::try_from(bits).ok()?))
        })
    }

    /// Returns what the values of a field mean when they are read.
    fn meanings(&mut self, chain: &Chain<'d>) -> Arc<[Meaning]> {
        let lists = chain.iter().find_map(|node| {
            let lists = self.elements.children(*node);
            let lists = lists.filter(|list| list.has_tag_name("enumeratedValues"));
            let lists: Vec<_> = lists.map(|list| self.elements.chain(list)).collect();
            (!lists.is_empty()).then_some(lists)
        });
        let lists = lists.unwrap_or_default();
        let usage = |list: &Chain<'d>| self.elements.text(list, "usage");
        let is_read = |list: &&Chain<'d>| usage(list) != Some("write");
        let Some(list) = lists.iter().find(is_read) else {
            return Arc::from([]);
        };
        let is_value = |node: &Node<'_, '_>| node.has_tag_name("enumeratedValue");
        let mut with_values = list.iter();
        let of =
            with_values.find(|list| self.elements.children(**list).any(|node| is_value(&node)));
        let Some(of) = of else {
            return Arc::from([]);
        };
        if let Some(meanings) = self.meanings.get(&of.id()) {
            return Arc::clone(meanings);
        }
        let values = self
            .elements
            .children(*of)
            .filter(is_value)
            .take(MOST_MEANINGS);
        let meanings = values.filter_map(|node| self.meaning(node));
        let meanings: Arc<[Meaning]> = meanings.collect();
        self.meanings.insert(of.id(), Arc::clone(&meanings));
        meanings
    }

    fn meaning(&self, node: Node<'d, 'd>) -> Option<Meaning> {
        let name = shown(self.elements.text(&[node], "name")?);
        let Some(text) = self.elements.text(&[node], "value") else {
            let is_default = self.elements.text(&[node], "isDefault");
            let is_default = matches!(is_default, Some("true" | "1"));
            return is_default.then_some(Meaning {
                name,
                value: None,
                mask: 0,
            });
        };
        // In binary, x stands for a bit that does not matter.
        let binary = text.strip_prefix('#');
        let binary = binary
            .or_else(|| text.strip_prefix("0b"))
            .or_else(|| text.strip_prefix("0B"));
        let (value, mask) = match binary {
            Some(binary) if binary.contains(['x', 'X']) => {
                let zeros = binary.replace(['x', 'X'], "0");
                let dont_care = binary.replace('1', "0").replace(['x', 'X'], "1");
                (
                    u64::from_str_radix(&zeros, 2).ok()?,
                    !u64::from_str_radix(&dont_care, 2).ok()?,
                )
            }
            _ => (number(text)?, u64::MAX),
        };
        Some(Meaning {
            name,
            value: Some(value),
            mask,
        })
    }

    /// Returns the names and offsets of the elements of an array, or of the single element.
    fn instances(&mut self, chain: &Chain<'d>) -> Result<Vec<(String, u64)>, Fault> {
        self.elements.step()?;
        let name = self.elements.text(chain, "name").unwrap_or("?");
        // An element that derives from an array is one only if its own name says so.
        let of = if name.contains("%s") {
            chain
        } else {
            &chain[..1]
        };
        let count = self.elements.number(of, "dim");
        let count = count.filter(|_| name.contains("%s"));
        self.left = self
            .left
            .checked_sub(
                usize::try_from(count.unwrap_or(1))
                    .unwrap_or(usize::MAX)
                    .max(1),
            )
            .ok_or(Fault::Many)?;
        let Some(count) = count else {
            let mut name = shown(name);
            shorten(&mut name);
            return Ok(vec![(name, 0)]);
        };
        let step = self.elements.number(of, "dimIncrement").unwrap_or(0);
        let indices = Indices::of(self.elements.text(of, "dimIndex"));
        let instance = |number: u64| {
            let mut index = indices.get(number).to_string();
            shorten(&mut index);
            let mut name = shown(&name.replacen("%s", &index, MOST_PLACES));
            shorten(&mut name);
            (name, number.wrapping_mul(step))
        };
        Ok((0..count).map(instance).collect())
    }
}

/// The most places for the index in a name.
const MOST_PLACES: usize = 4;

/// Cuts a name that is too long.
fn shorten(name: &mut String) {
    if name.len() > LONGEST_NAME {
        let end = (0..=LONGEST_NAME)
            .rev()
            .find(|end| name.is_char_boundary(*end));
        name.truncate(end.unwrap_or(0));
    }
}

/// The indices of an array: `0-7`, `A-D`, or `A,B,C`.
enum Indices<'d> {
    Numbers(u64),
    Letters(u8),
    Names(Vec<&'d str>),
}

impl<'d> Indices<'d> {
    fn of(text: Option<&'d str>) -> Self {
        let Some(text) = text else {
            return Self::Numbers(0);
        };
        if let Some((first, _)) = text.split_once('-').filter(|_| !text.contains(',')) {
            let first = first.trim();
            return match (first.parse(), first.as_bytes()) {
                (Ok(number), _) => Self::Numbers(number),
                (_, [letter]) => Self::Letters(*letter),
                _ => Self::Numbers(0),
            };
        }
        Self::Names(text.split(',').map(str::trim).collect())
    }

    fn get(&self, index: u64) -> String {
        match self {
            Self::Numbers(first) => first.wrapping_add(index).to_string(),
            Self::Letters(first) => match u8::try_from(u64::from(*first) + index) {
                Ok(letter) if letter.is_ascii_alphanumeric() => char::from(letter).to_string(),
                _ => index.to_string(),
            },
            Self::Names(names) => match usize::try_from(index).ok().and_then(|i| names.get(i)) {
                Some(name) => (*name).to_owned(),
                None => index.to_string(),
            },
        }
    }
}
