//! Rust: trait objects, vectors, strings and a sort.

trait Shape {
    fn area(&self) -> u64;
    fn name(&self) -> String;
}

struct Square(u64);
struct Circle(u64);

impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
    fn name(&self) -> String {
        format!("square of {}", self.0)
    }
}

impl Shape for Circle {
    fn area(&self) -> u64 {
        self.0 * self.0 * 355 / 113
    }
    fn name(&self) -> String {
        format!("circle of {}", self.0)
    }
}

fn main() {
    let mut shapes: Vec<Box<dyn Shape>> = Vec::new();
    for number in 0..120_u64 {
        let size = number * 37 % 101;
        if size % 3 == 0 {
            shapes.push(Box::new(Circle(size)));
        } else {
            shapes.push(Box::new(Square(size)));
        }
    }
    shapes.sort_by_key(|shape| shape.area());
    let mut sum = 0_u64;
    for shape in &shapes {
        for byte in shape.name().bytes() {
            sum = sum.wrapping_mul(31).wrapping_add(byte.into());
        }
    }
    let nowhere = (sum & 7) as *mut u64;
    unsafe { nowhere.write_volatile(sum) };
}
