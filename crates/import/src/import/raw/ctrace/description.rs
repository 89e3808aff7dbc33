//! What the description of a run says about the ITM and DWT of each processor.

use crate::import::{ImportError, imported};
use armsnap_snapshot::snapshot::registers::parse_u64;
use saphyr_parser::{Event, Parser};
use std::path::Path;

/// The largest description that is read.
const LARGEST: usize = 1 << 20;
/// The deepest nesting that is read.
const DEEPEST: usize = 32;
/// The most processors of a description.
const MOST: usize = 64;

/// A comparator of a DWT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparator {
    /// Its number.
    pub number: u8,
    /// The address that it matches.
    pub address: u32,
    /// The symbol there.
    pub symbol: Option<String>,
}

/// A processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Its name.
    pub name: String,
    /// Whether its trace was off.
    pub is_disabled: bool,
    /// The cycles in a tick of local timestamps.
    pub prescaler: Option<u64>,
    /// The bits of ITM_TCR that are set, and those that are known.
    tcr: (u32, u32),
    /// The comparators.
    pub comparators: Vec<Comparator>,
}

impl Processor {
    /// Returns its trace ID, if it is known (ITM_TCR.TraceBusID).
    pub fn trace_id(&self) -> Option<u8> {
        let (value, known) = self.tcr;
        let id = (value >> 16 & 0x7f) as u8;
        (known >> 16 & 0x7f == 0x7f && id != 0).then_some(id)
    }

    /// Returns ITM_TCR: the prescaler (TSPrescale) has an effect if SWOENA is set too.
    pub fn control(&self) -> u32 {
        let scale = match self.prescaler {
            Some(4) => 1,
            Some(16) => 2,
            Some(64) => 3,
            _ => return self.tcr.0,
        };
        self.tcr.0 & !(3 << 8) | scale << 8 | 1 << 4
    }
}

/// Reads a description.
///
/// # Errors
///
/// If it is not one.
pub fn read(path: &Path) -> Result<Vec<Processor>, ImportError> {
    let fault = |text: String| {
        ImportError::input(path, format!("is no description of a traced run: {text}"))
    };
    let bytes = imported::map(path)?;
    if bytes.len() > LARGEST {
        return Err(fault(format!("it has {} bytes", bytes.len())));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| fault(error.to_string()))?;
    let root = node(text).map_err(fault)?;
    Ok(processors(root.get("ctrace-run")))
}

/// A part of a YAML document. Aliases and tags are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

const NOTHING: &Node = &Node::List(Vec::new());

impl Node {
    /// Returns the value of a key; an empty list if there is none.
    fn get(&self, key: &str) -> &Self {
        let Self::Map(entries) = self else {
            return NOTHING;
        };
        let mut found = entries.iter().filter(|(name, _)| name == key);
        found.next().map_or(NOTHING, |(_, value)| value)
    }

    fn has(&self, key: &str) -> bool {
        matches!(self, Self::Map(entries) if entries.iter().any(|(name, _)| name == key))
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar(text) => Some(text),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        parse_u64(self.text()?)
    }
}

/// A part that has not ended.
struct Open {
    node: Node,
    /// The key whose value comes next.
    key: Option<String>,
}

/// Reads the first document.
fn node(text: &str) -> Result<Node, String> {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| error.to_string())?;
        let done = match event {
            Event::MappingStart(..) | Event::SequenceStart(..) if open.len() >= DEEPEST => {
                return Err("it is nested too deeply".to_owned());
            }
            Event::MappingStart(..) => {
                open.push(Open {
                    node: Node::Map(Vec::new()),
                    key: None,
                });
                continue;
            }
            Event::SequenceStart(..) => {
                open.push(Open {
                    node: Node::List(Vec::new()),
                    key: None,
                });
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => open.pop().map(|open| open.node),
            Event::Scalar(text, ..) => Some(Node::Scalar(text.into_owned())),
            Event::Alias(_) => Some(Node::Scalar(String::new())),
            _ => continue,
        };
        let Some(done) = done else {
            continue;
        };
        let Some(Open { node, key }) = open.last_mut() else {
            return Ok(done);
        };
        match (node, key.take(), done) {
            (Node::List(items), _, done) => items.push(done),
            (Node::Map(entries), Some(key), done) => entries.push((key, done)),
            (Node::Map(_), None, Node::Scalar(name)) => *key = Some(name),
            // A key that is no text has no meaning here.
            (Node::Map(_), None, _) => *key = Some(String::new()),
            (Node::Scalar(_), ..) => {}
        }
    }
    Err("it is empty".to_owned())
}

fn processors(run: &Node) -> Vec<Processor> {
    let mut out: Vec<Processor> = Vec::new();
    let setups = run.get("ctrace-setup").items();
    for setup in setups.iter().take(MOST) {
        let name = setup.get("pname").text().unwrap_or("").to_owned();
        out.push(Processor {
            name,
            is_disabled: setup.has("disable"),
            prescaler: setup.get("timestamps").get("itm-prescaler").number(),
            ..Processor::default()
        });
    }
    for reference in run.get("ctrace-refs").items() {
        let name = reference.get("pname").text().unwrap_or("");
        let Some(at) = out.iter().position(|processor| processor.name == name) else {
            continue;
        };
        let symbol = || {
            let (_, number) = reference.get("ctrace-ref").text()?.split_once("/data#")?;
            let data = setups[at]
                .get("data")
                .items()
                .get(number.parse::<usize>().ok()?)?;
            data.get("symbol").text().map(str::to_owned)
        };
        for register in reference.get("regs").items() {
            let known = register
                .get("name")
                .text()
                .zip(register.get("value").number());
            let Some((name, value)) = known else {
                continue;
            };
            let mask = register.get("mask").number().unwrap_or(u64::MAX) as u32;
            let processor = &mut out[at];
            if name == "ITM_TCR" {
                let (set, known) = processor.tcr;
                processor.tcr = (set & !mask | value as u32 & mask, known | mask);
            }
            let number = name
                .strip_prefix("DWT_COMP")
                .and_then(|number| number.parse().ok());
            if let Some(number) = number.filter(|number: &u8| *number < 16) {
                processor.comparators.retain(|known| known.number != number);
                processor.comparators.push(Comparator {
                    number,
                    address: value as u32,
                    symbol: symbol(),
                });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "# a comment
ctrace-run:
  ctrace-setup:
  - pname: CM7
    data:
    - location: Blinky|tick
      symbol: tick
      address: 0x24000024
    timestamps:
      itm-prescaler: 16
  - pname: CM4
    disable:
  ctrace-refs:
  - ctrace-ref: CM7/data#0
    pname: CM7
    regs:
    - {name: DWT_COMP1, value: 0x24000024}
    - name: ITM_TCR
      value: 0x00020009
      mask: 0x007f0009
  - ctrace-ref: CM7/timestamps
    pname: CM7
    regs:
    - name: ITM_TCR
      value: 0x00000003
      mask: 0x00000003
";

    #[test]
    fn registers_are_those_of_each_processor() {
        let found = processors(node(RUN).unwrap().get("ctrace-run"));
        let comparator = Comparator {
            number: 1,
            address: 0x2400_0024,
            symbol: Some("tick".to_owned()),
        };
        assert_eq!(found[0].comparators, [comparator]);
        assert_eq!(found[0].trace_id(), Some(2));
        assert_eq!(found[0].control(), 0x0002_021b);
        assert!(!found[0].is_disabled && found[1].is_disabled);
        assert_eq!((found[1].trace_id(), found[1].control()), (None, 0));
    }

    #[test]
    fn hostile_descriptions_end() {
        let deep = "[".repeat(100_000);
        assert!(node(&deep).is_err());
        assert!(node("").is_err());
        let aliases = format!("a: &a [x]\n{}", "b: [*a, *a]\n".repeat(1000));
        assert!(node(&aliases).is_ok());
        assert!(processors(node("- 1").unwrap().get("ctrace-run")).is_empty());
        assert!(
            processors(
                node("ctrace-run: {ctrace-refs: [x]}")
                    .unwrap()
                    .get("ctrace-run")
            )
            .is_empty()
        );
    }
}
