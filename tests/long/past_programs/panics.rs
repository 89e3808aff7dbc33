//! Panics that are caught, with values dropped on their way.

use std::panic::{catch_unwind, AssertUnwindSafe};

#[no_mangle]
pub static mut shared_dropped: i64 = 0;

struct Guard {
    number: i64,
    name: String,
}
impl Drop for Guard {
    fn drop(&mut self) {
        unsafe { shared_dropped += self.number + self.name.len() as i64 };
    }
}

#[inline(never)]
fn deep(depth: i64, fails: i64) -> i64 {
    let guard = Guard { number: depth, name: format!("guard {depth}") };
    if depth == fails {
        std::panic::resume_unwind(Box::new(depth));
    }
    if depth == 0 {
        return guard.number;
    }
    let below = deep(depth - 1, fails);
    below * 3 + guard.number
}

#[inline(never)]
fn tries(count: i64) -> i64 {
    let mut sum = 0;
    for fails in 0..count {
        let mut kept = fails * 2;
        let result = catch_unwind(AssertUnwindSafe(|| {
            kept += 1;
            deep(4, fails)
        }));
        match result {
            Ok(value) => sum += value + kept,
            Err(payload) => sum += payload.downcast_ref::<i64>().copied().unwrap_or(-1),
        }
    }
    sum
}

fn main() {
    let sum = tries(7) + tries(3);
    println!("{sum} {}", unsafe { shared_dropped });
}
