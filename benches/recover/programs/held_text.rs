//! Rust: hash maps and B-trees of strings, iterators, a parser of numbers.

use std::collections::{BTreeMap, HashMap};

fn evaluate(text: &str) -> Result<i64, String> {
    let mut total = 0_i64;
    for (index, word) in text.split_whitespace().enumerate() {
        let number: i64 = word.parse().map_err(|_| format!("{word} at {index}"))?;
        total = total.wrapping_mul(3) + number;
    }
    Ok(total)
}

fn main() {
    let mut by_length: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut values = HashMap::with_hasher(std::hash::BuildHasherDefault::<
        std::collections::hash_map::DefaultHasher,
    >::default());
    for number in 0..60_i64 {
        let text = format!("{} {} {}", number, number * number, if number % 7 == 3 { "x" } else { "9" });
        match evaluate(&text) {
            Ok(value) => *values.entry(value % 16).or_insert(0) += value,
            Err(error) => by_length.entry(error.len()).or_default().push(error),
        }
    }
    let mut sum = values.values().sum::<i64>() as u64;
    for (length, texts) in &by_length {
        for text in texts {
            sum = sum.wrapping_mul(31).wrapping_add((*length + text.len()) as u64);
        }
    }
    let nowhere = (sum & 7) as *mut u64;
    unsafe { nowhere.write_volatile(sum) };
}
