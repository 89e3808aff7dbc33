//! How often runs, blocks and steps after indirect branches were executed in a piece.

use armsnap_arch::hash::NumberMap;

/// The number of edges that are found without a search.
const FOUND: usize = 1 << 10;

/// The blocks of an executed run, in the table of steps.
#[derive(Clone, Copy, Debug)]
struct Touched {
    run: usize,
    first: usize,
    end: usize,
}

/// An edge, by the indices of blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    from: u32,
    to: u32,
    count: u64,
}

/// The counts of a piece.
#[derive(Debug)]
pub(super) struct Counts {
    /// By number of the run.
    runs: Vec<u32>,
    touched: Vec<Touched>,
    /// Indices of blocks, and the atoms of their last instructions.
    steps: Vec<(u32, bool)>,
    /// By block: executions with an N and with an E atom, outside runs.
    blocks: Vec<[u32; 2]>,
    /// The blocks with counts.
    counted: Vec<u32>,
    found: Vec<Found>,
    edges: NumberMap<(u32, u32), u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            touched: Vec::new(),
            steps: Vec::new(),
            blocks: Vec::new(),
            counted: Vec::new(),
            found: vec![Found::default(); FOUND],
            edges: NumberMap::default(),
        }
    }
}

impl Counts {
    /// Counts a run; returns false if it is its first execution in the piece, and must be
    /// [touched](Self::touch_run) instead.
    #[inline(always)]
    pub fn run(&mut self, run: usize) -> bool {
        match self.runs.get_mut(run) {
            Some(count) if *count > 0 => {
                *count += 1;
                true
            }
            _ => false,
        }
    }

    /// Counts the first execution of a run in the piece. It has blocks with these indices and
    /// atoms.
    pub fn touch_run(&mut self, run: usize, blocks: impl Iterator<Item = (usize, bool)>) {
        if run >= self.runs.len() {
            self.runs.resize((run + 1).next_power_of_two(), 0);
        }
        self.runs[run] += 1;
        let first = self.steps.len();
        self.steps
            .extend(blocks.map(|(block, taken)| (block as u32, taken)));
        let end = self.steps.len();
        self.touched.push(Touched { run, first, end });
    }

    /// Counts a block with an atom; returns false if it is its first such execution in the piece,
    /// and must be [touched](Self::touch_block) instead.
    #[inline(always)]
    pub fn block(&mut self, block: usize, taken: bool) -> bool {
        match self.blocks.get_mut(block) {
            Some(counts) if counts[usize::from(taken)] > 0 => {
                counts[usize::from(taken)] += 1;
                true
            }
            _ => false,
        }
    }

    /// Counts the first execution of a block with the atom in the piece.
    pub fn touch_block(&mut self, block: usize, taken: bool) {
        if block >= self.blocks.len() {
            self.blocks.resize((block + 1).next_power_of_two(), [0; 2]);
        }
        let counts = &mut self.blocks[block];
        if *counts == [0; 2] {
            self.counted.push(block as u32);
        }
        counts[usize::from(taken)] += 1;
    }

    /// Counts an edge between two blocks.
    #[inline]
    pub fn edge(&mut self, from: usize, to: usize) {
        let (from, to) = (from as u32, to as u32);
        let mixed = (from ^ to.rotate_left(16)).wrapping_mul(0x9e37_79b9);
        let found = &mut self.found[(mixed >> 22) as usize % FOUND];
        if found.from == from && found.to == to {
            found.count += 1;
            return;
        }
        let old = std::mem::replace(found, Found { from, to, count: 1 });
        self.spill(old);
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, edge: Found) {
        if edge.count > 0 {
            *self.edges.entry((edge.from, edge.to)).or_insert(0) += edge.count;
        }
    }

    /// Passes on the counts of blocks and edges, by the indices of blocks, and resets them.
    pub fn settle(
        &mut self,
        mut block: impl FnMut(usize, [u64; 2]),
        mut edge: impl FnMut(usize, usize, u64),
    ) {
        for run in self.touched.drain(..) {
            let count = u64::from(std::mem::take(&mut self.runs[run.run]));
            for &(index, taken) in &self.steps[run.first..run.end] {
                let counts = match taken {
                    false => [count, 0],
                    true => [0, count],
                };
                block(index as usize, counts);
            }
        }
        self.steps.clear();
        for index in self.counted.drain(..) {
            let counts = std::mem::take(&mut self.blocks[index as usize]);
            block(index as usize, counts.map(u64::from));
        }
        for found in &mut self.found {
            let found = std::mem::take(found);
            if found.count > 0 {
                *self.edges.entry((found.from, found.to)).or_insert(0) += found.count;
            }
        }
        for ((from, to), count) in self.edges.drain() {
            edge(from as usize, to as usize, count);
        }
    }
}
