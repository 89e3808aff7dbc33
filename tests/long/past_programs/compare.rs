//! What GDB shows of the past, compared with what it shows in the emulator.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How many values were known and right, and how many not known, by kind.
#[derive(Debug, Default)]
pub struct Score {
    pub kinds: BTreeMap<&'static str, (usize, usize)>,
    pub wrong: Vec<String>,
    /// Places that were chosen, reached in the emulator, and reached in the past.
    pub places: (usize, usize, usize),
}

impl Score {
    fn count(&mut self, kind: &'static str, is_known: bool) {
        let (known, unknown) = self.kinds.entry(kind).or_default();
        *if is_known { known } else { unknown } += 1;
    }

    pub fn known(&self, kind: &str) -> usize {
        self.kinds.get(kind).map_or(0, |counts| counts.0)
    }
}

/// The places that two runs of the emulator both reached, and what they agree on there.
pub fn agreed_places(one: &Value, other: &Value) -> Value {
    let other = other.as_array().unwrap();
    let places = one.as_array().unwrap().iter().filter_map(|place| {
        let same = other
            .iter()
            .find(|other| other["number"] == place["number"])?;
        Some(agreed(place, same))
    });
    places.collect()
}

/// What two runs of the emulator agree on: the rest depends on numbers of processes, time or chance.
pub fn agreed(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let both = one
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), agreed(value, other.get(key)?))));
            Value::Object(both.collect())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.iter().zip(other).map(|(a, b)| agreed(a, b)).collect()
        }
        _ if one == other => one.clone(),
        _ => Value::Null,
    }
}

fn map<'v>(value: &'v Value, key: &str) -> &'v Map<String, Value> {
    value[key].as_object().unwrap()
}

/// Compares what is known of the past with the truth.
fn compare_maps(
    score: &mut Score,
    kind: &'static str,
    at: &str,
    past: &Map<String, Value>,
    truth: &Map<String, Value>,
) {
    for (name, shown) in past {
        if shown.is_null() {
            // What even the emulator does not show is no part of the state.
            if truth.get(name).is_some_and(|value| !value.is_null()) {
                score.count(kind, false);
            }
            continue;
        }
        match truth.get(name) {
            None | Some(Value::Null) => {}
            Some(truth) if truth == shown => score.count(kind, true),
            Some(truth) => score.wrong.push(format!(
                "{at}: {kind} {name} is {truth}, and {shown} is shown"
            )),
        }
    }
}

/// Words and bytes of memory.
fn compare_memory(
    score: &mut Score,
    at: &str,
    past: &Map<String, Value>,
    truth: &Map<String, Value>,
) {
    for (name, shown) in past {
        let (address, size) = name.split_once('/').unwrap();
        let address = u64::from_str_radix(&address[2..], 16).unwrap();
        let word = match size {
            "8" => address,
            // Bytes of a word are at its alignment: words are.
            _ => address & !7,
        };
        let Some(Value::String(truth)) = truth.get(&format!("{word:#x}/8")) else {
            continue;
        };
        let from = (address - word) as usize * 2;
        let truth = &truth[from..from + 2 * size.parse::<usize>().unwrap()];
        match shown.as_str() {
            None => score.count("memory", false),
            Some(shown) if shown == truth => score.count("memory", true),
            Some(shown) => score.wrong.push(format!(
                "{at}: memory at {address:#x} is {truth}, and {shown} is shown"
            )),
        }
    }
}

/// Written in assembly without call frame information: GDB treats it as its own caller.
const NO_WAY_OUT: &str = "__cxa_end_cleanup";

/// Functions of libraries that load all registers of another context.
const CHANGES: [&str; 4] = ["setcontext", "swapcontext", "longjmp", "uw_install_context"];

/// What the emulator shows for a frame of the past.
enum Counterpart<'f> {
    /// This frame.
    Frame(&'f Value),
    /// Nothing: GDB could not unwind in the emulator.
    NotUnwound,
    /// Another frame.
    Other,
}

/// Finds the frame of the emulator that corresponds to a frame of the past.
fn next<'f>(left: &mut std::slice::Iter<'f, Value>, shown: &Value) -> Counterpart<'f> {
    loop {
        let ahead = left.clone();
        let Some(frame) = left.next() else {
            return Counterpart::NotUnwound;
        };
        if frame["name"] == NO_WAY_OUT && frame["pc"] != shown["pc"] {
            return Counterpart::NotUnwound;
        }
        let pc = frame["pc"].as_u64();
        if pc == shown["pc"].as_u64() {
            // GDB hides an inlined function at its start after a breakpoint, and only then.
            if frame["name"] != shown["name"] && shown["kind"] == "inlined" {
                *left = ahead;
                return Counterpart::Frame(frame);
            }
            if frame["name"] == shown["name"] {
                return Counterpart::Frame(frame);
            }
        } else if frame["name"].is_null() {
            // Code without symbols or call frame information; or a signed address: QEMU's server
            // does not report which bits hold the signature.
            return Counterpart::NotUnwound;
        }
        if frame["kind"] == "normal" {
            return Counterpart::Other;
        }
    }
}

/// Compares all places; frames by their addresses.
pub fn compare(past: &Value, truth: &Value) -> Score {
    let mut score = Score::default();
    let by_number: BTreeMap<u64, &Value> = past
        .as_array()
        .unwrap()
        .iter()
        .map(|place| (place["number"].as_u64().unwrap(), place))
        .collect();
    for truth in truth.as_array().unwrap() {
        let Some(number) = truth["number"].as_u64() else {
            continue;
        };
        let Some(past) = by_number.get(&number) else {
            continue;
        };
        let [shown, frames] = [past, truth].map(|place| place["frames"].as_array().unwrap());
        let name = &frames[0]["name"];
        // In the middle of a change of stacks or contexts, both show frames of another stack.
        let changes = name
            .as_str()
            .is_some_and(|name| CHANGES.iter().any(|change| name.contains(change)));
        let frames = if changes { &frames[..1] } else { frames };
        let at = format!(
            "place {number} at {}, {name} {:#x}",
            past["position"],
            frames[0]["pc"].as_u64().unwrap()
        );
        let mut left = frames.iter();
        let mut saves = true;
        for (level, shown) in shown.iter().enumerate() {
            // For an unknown caller, the unwinder gives this address.
            let Some(pc @ 1..) = shown["pc"].as_u64() else {
                break;
            };
            if changes && level > 0 {
                break;
            }
            let frame = match next(&mut left, shown) {
                Counterpart::Frame(frame) => frame,
                Counterpart::NotUnwound => break,
                Counterpart::Other => {
                    let chain: Vec<String> = frames
                        .iter()
                        .map(|frame| {
                            format!("{:#x} {}", frame["pc"].as_u64().unwrap_or(0), frame["name"])
                        })
                        .collect();
                    score.wrong.push(format!(
                    "{at}: frame {level} is shown at {pc:#x} {}, and the emulator has {chain:?}",
                    shown["name"]
                ));
                    break;
                }
            };
            score.count("frames", true);
            if frame["name"] != shown["name"] {
                continue;
            }
            let at = format!("{at}, frame {level} {}", frame["name"]);
            let [registers, values] = match level {
                0 => ["registers", "values"],
                _ => ["registers of callers", "values of callers"],
            };
            // Functions that do not return save no registers that GDB could find.
            let name = frame["name"].as_str().unwrap_or_default();
            // The code that starts a thread has no name, and its function for the thread saves nothing.
            if saves && (level == 0 || frame["name"].is_string()) {
                compare_maps(
                    &mut score,
                    registers,
                    &at,
                    map(shown, "registers"),
                    map(frame, "registers"),
                );
            }
            saves &= name != "main" && !name.contains("_start");
            compare_maps(
                &mut score,
                values,
                &at,
                map(shown, "values"),
                map(frame, "values"),
            );
        }
        compare_memory(&mut score, &at, map(past, "memory"), map(truth, "memory"));
    }
    score
}
