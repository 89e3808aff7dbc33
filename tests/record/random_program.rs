//! Random programs in C.

/// Writes statements.
struct Generator {
    state: u64,
    text: String,
}

impl Generator {
    /// Numbers that look random (xorshift64*, Vigna).
    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    fn pick(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len() as u64) as usize]
    }

    fn value(&mut self) -> String {
        let index = self.below(16);
        match self.below(8) {
            0 => format!("{}", self.below(1000)),
            1 => format!("g[{index}]"),
            2 => format!("l[{}]", index & 3),
            3 => "*p".to_owned(),
            4 => format!("((unsigned char *)g)[(x + {index}) & 63]"),
            5 => format!("(word)((short *)g)[{index}]"),
            6 => "n->word".to_owned(),
            _ => "x".to_owned(),
        }
    }

    fn statement(&mut self, function: u64, depth: u64) {
        let (a, b, index) = (self.value(), self.value(), self.below(16));
        let operation = self.pick(&["+", "-", "*", "^", "&", "|"]);
        let text = match self.below(if depth > 0 { 14 } else { 10 }) {
            0 => format!("g[{index}] = {a} {operation} {b};"),
            1 => format!("x = {a} {operation} {b};"),
            2 => format!("l[{}] = {a};", index & 3),
            3 => format!("p = &g[{a} & 15];"),
            4 => format!("*p = {a} {operation} {b};"),
            5 => format!("((unsigned char *)g)[{a} & 63] = (unsigned char)({b});"),
            6 => "n = n->next;".to_owned(),
            7 => format!("n->word = {a} << ({b} & 7) | {b} >> 3;"),
            8 => format!("wide = wide * 3 + {a}; x += (word)(wide >> 9);"),
            9 => format!("x = ({a} & 15) * {b} >> 2;"),
            10 if function > 0 => {
                format!(
                    "if (--calls > 0) x += f{}({a}, &l[{}], n);",
                    self.below(function),
                    index & 3
                )
            }
            11 => {
                self.text += &format!(
                    "for (int i{depth} = 0; i{depth} < {}; i{depth}++) {{\n",
                    2 + index % 4
                );
                self.statement(function, depth - 1);
                self.statement(function, depth - 1);
                "}".to_owned()
            }
            _ => {
                let comparison = self.pick(&["<", ">", "==", "!="]);
                let kind = self.pick(&["", "(long)"]);
                self.text += &format!("if ({kind}({a}) {comparison} {kind}({b})) {{\n");
                self.statement(function, depth - 1);
                self.text += "} else {\n";
                self.statement(function, depth - 1);
                "}".to_owned()
            }
        };
        self.text += &text;
        self.text.push('\n');
    }
}

/// A program that ends in a fault.
pub fn source(seed: u64) -> String {
    let mut generator = Generator {
        state: seed,
        text: "typedef unsigned long word;\n\
                   struct node { struct node *next; word word; };\n\
                   static word g[16]; static unsigned long long wide; static int calls;\n\
                   static struct node pool[8];\n"
            .to_owned(),
    };
    for function in 0..5 {
        generator.text += &format!(
            "__attribute__((noinline)) static word f{function}(word x, word *p, struct node *n) \
                 {{\nword l[4] = {{x, 1, 2, *p}};\n"
        );
        for _ in 0..8 {
            generator.statement(function, 2);
        }
        generator.text += "return x + l[0] + l[3];\n}\n";
    }
    generator.text
        + "void work(void) {\nstruct node *first = 0; word sum = 0;\n\
           for (word i = 0; i < 5; i++) { struct node *n = &pool[i * 3 & 7];\n\
           n->word = i; n->next = first ? first->next : n;\n\
           if (first) first->next = n; else first = n; }\n\
           for (word i = 0; i < 4; i++) { calls = 8; sum += f4(i, &g[i], first); }\n\
           *(volatile word *)(sum & 7) = sum;\n}\n\
           #ifdef __aarch64__\n\
           __asm__(\".global _start\\n_start: mov x29, #0\\n mov x30, #0\\n bl work\\n b .\");\n\
           #else\n\
           __attribute__((naked)) void _start(void) { __asm__(\"mov lr, #0\\n bl work\\n b .\"); }\n\
           #endif\n"
}
