//! Enumerations, traits, slices, strings and maps.

use std::collections::BTreeMap;

#[no_mangle]
pub static mut shared_total: i64 = 0;
#[no_mangle]
pub static mut shared_counts: [u32; 8] = [0; 8];

enum Tree {
    Leaf,
    Node { left: Box<Tree>, key: i32, right: Box<Tree> },
}
trait Area {
    fn area(&self) -> f64;
}
struct Square(f64);
struct Rectangle {
    width: f64,
    height: f64,
}
impl Area for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Area for Rectangle {
    fn area(&self) -> f64 {
        self.width * self.height
    }
}

#[inline(never)]
fn insert(tree: Tree, key: i32) -> Tree {
    match tree {
        Tree::Leaf => Tree::Node { left: Box::new(Tree::Leaf), key, right: Box::new(Tree::Leaf) },
        Tree::Node { left, key: here, right } if key < here => {
            Tree::Node { left: Box::new(insert(*left, key)), key: here, right }
        }
        Tree::Node { left, key: here, right } => Tree::Node { left, key: here, right: Box::new(insert(*right, key)) },
    }
}

#[inline(never)]
fn sum(tree: &Tree, depth: i64) -> i64 {
    match tree {
        Tree::Leaf => 0,
        Tree::Node { left, key, right } => sum(left, depth + 1) + i64::from(*key) * depth + sum(right, depth + 1),
    }
}

#[inline(never)]
fn areas(shapes: &[Box<dyn Area>]) -> f64 {
    let mut total = 0.0;
    for shape in shapes {
        total += shape.area();
    }
    total
}

#[inline(never)]
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in text.split(' ') {
        *counts.entry(word.to_owned()).or_insert(0) += word.len();
    }
    counts
}

fn main() {
    let mut tree = Tree::Leaf;
    let mut total = 0;
    for i in 0..12 {
        let key = i * 37 % 23;
        tree = insert(tree, key);
        total += sum(&tree, 1);
        unsafe { shared_counts[i as usize & 7] += key as u32 };
    }
    let shapes: Vec<Box<dyn Area>> =
        vec![Box::new(Square(2.5)), Box::new(Rectangle { width: 2.0, height: 4.5 }), Box::new(Square(1.5))];
    let area = areas(&shapes);
    let counts = words("one two three two one two");
    for (word, count) in &counts {
        total += word.len() as i64 * *count as i64;
    }
    unsafe { shared_total = total };
    println!("{total} {area} {}", counts.len());
}
