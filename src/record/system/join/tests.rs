use super::*;
use crate::record::blocks::{Block, Sets};
use crate::record::protocol::Protocol;
use crate::record::stream::Definition;
use armsnap_trace::data_addresses::Access;

/// Logs the steps as text.
#[derive(Default)]
struct StepLog(Vec<String>);

impl FlowSink for StepLog {
    fn ran(&mut self, _: u32, block: &Block, count: usize, _: &[(u32, Access)]) -> io::Result<()> {
        self.0.push(format!("{:x}+{count}", block.start.address.0));
        Ok(())
    }
    fn exception(&mut self, _: u32, number: u32, return_to: CodeAddress) -> io::Result<()> {
        self.0.push(format!("!{number} {:x}", return_to.address.0));
        Ok(())
    }
    fn broken(&mut self, _: u32, _: Option<CodeAddress>) -> io::Result<()> {
        self.0.push("?".to_owned());
        Ok(())
    }
    fn exception_return(&mut self, _: u32) {
        self.0.push("return".to_owned());
    }
    fn security(&mut self, _: u32, security: Security) {
        self.0.push(security.name().to_owned());
    }
}

/// A Cortex-M that executes blocks: 0 at 0x100 (nop; bx lr), 1 at 0x200 (nop; beq), 2 at 0x300
/// (bx lr), 3 at 0x400 (nop), 4 at 0x204 (nop), 5 at 0x804 (nop; bxns lr).
struct Machine {
    join: Join,
    flow: Flow,
    blocks: BlockTable,
    steps: StepLog,
}

impl Machine {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(security: Option<Security>) -> Self {
        let mut blocks = BlockTable::new(Sets::T32);
        let code: [(u64, &[u16]); 6] = [
            (0x100, &[0xbf00, 0x4770]),
            (0x200, &[0xbf00, 0xd0fe]),
            (0x300, &[0x4770]),
            (0x400, &[0xbf00]),
            (0x204, &[0xbf00]),
            (0x804, &[0xbf00, 0x4774]),
        ];
        for (id, (address, halves)) in (0..).zip(code) {
            let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            let definition = Definition {
                id,
                address,
                sizes: &vec![2; halves.len()],
                bytes: &bytes,
                text: &[],
                isa: None,
            };
            blocks.add(&definition).unwrap();
        }
        let numbers = Numbers {
            protocol: Protocol::Etmv4,
            microcontroller: true,
        };
        let mut machine = Self {
            join: Join::new(numbers, false, security),
            flow: Flow::default(),
            blocks,
            steps: StepLog::default(),
        };
        machine.flow.begin(0).unwrap();
        machine.join.begin(0, 0);
        machine
    }

    fn block(&mut self, id: u32) {
        let (flow, blocks, steps) = (&mut self.flow, &self.blocks, &mut self.steps);
        self.join.executes(Some(0), flow, blocks, steps).unwrap();
        let event = Event::Block(id);
        self.join.event(0, event, flow, blocks, steps).unwrap();
    }

    fn exception(&mut self, number: u16, frame: u32) {
        let text = format!(
            "Taking exception 5 [IRQ] on CPU 0\nPMSA MPU lookup for writing at {frame:#x} x\n\
             ...taking pending nonsecure exception {number}\n...loaded new PC 0x301\n"
        );
        self.join.log(text.as_bytes());
    }

    fn return_from(&mut self, frame: u32) {
        let text = format!(
            "Taking exception 8 [QEMU v7M exception exit] on CPU 0\n\
             PMSA MPU lookup for reading at {frame:#x} x\n...successful exception return\n"
        );
        self.join.log(text.as_bytes());
    }

    fn end(mut self, next: u64) -> Vec<String> {
        let place = handler(next);
        let (flow, blocks, steps) = (&mut self.flow, &self.blocks, &mut self.steps);
        self.join.executes(None, flow, blocks, steps).unwrap();
        self.join.end(0, Some(place), flow, blocks, steps).unwrap();
        self.steps.0
    }
}

#[test]
fn the_return_address_of_an_interrupt_follows_from_the_return() {
    let mut machine = Machine::new();
    // bx lr led to 0x400, where the interrupt was taken first.
    machine.block(0);
    machine.exception(15, 0x2000);
    machine.block(2);
    assert!(machine.join.waits() && machine.steps.0.is_empty());
    machine.return_from(0x2000);
    machine.block(3);
    assert!(!machine.join.waits());
    let steps = machine.end(0x402);
    assert_eq!(steps, ["100+2", "!15 400", "300+1", "return", "400+1"]);
}

#[test]
fn interrupts_are_matched_with_returns_by_frame() {
    let mut machine = Machine::new();
    // One task is after beq, which was not taken; the other is after bx lr.
    machine.block(1);
    machine.exception(14, 0x2000);
    machine.block(2);
    // The frame of a task that runs for the first time.
    machine.return_from(0x8000);
    machine.block(0);
    machine.exception(14, 0x3000);
    machine.block(2);
    machine.return_from(0x2000);
    machine.block(4);
    machine.exception(15, 0x4000);
    machine.block(2);
    machine.return_from(0x3000);
    machine.block(3);
    let steps = machine.end(0x402);
    let expected = "200+2 | !14 204 | 300+1 | return | 100+2 | !14 400 | 300+1 | return | 204+1 | \
        !15 206 | 300+1 | return | 400+1";
    assert_eq!(steps.join(" | "), expected);
}

#[test]
fn calls_of_secure_code_and_interrupts_behind_their_entry() {
    const FETCH: &str = "PMSA MPU lookup for execute at ";
    let mut machine = Machine::with(Some(Security::Secure));
    // bxns lr goes to 0x400, where the code is not secure, and bx lr from 0x100 to the entry.
    machine.block(5);
    let not_secure = format!("{FETCH}0x400 mmu_idx 65 -> Hit (prot rwx)\n");
    machine.join.log(not_secure.as_bytes());
    machine.block(3);
    machine.block(0);
    let enter = format!(
        "{FETCH}0x800 mmu_idx 65 -> Miss (prot ---)\nTaking exception 3 [Prefetch Abort] on CPU 0\n\
         ...at fault address 0x800\n{FETCH}0x800 mmu_idx 69 -> Hit (prot rwx)\n\
         ...really an SG instruction at 0x800, executing it\n"
    );
    machine.join.log(enter.as_bytes());
    machine.block(5);
    machine.block(3);
    // An interrupt comes directly after the entry.
    machine.block(0);
    machine.join.log(enter.as_bytes());
    machine
        .join
        .log(b"Taking exception 5 [IRQ] on CPU 0\n...taking pending secure exception 15\n");
    machine.block(2);
    machine.join.log(
        b"Taking exception 8 [QEMU v7M exception exit] on CPU 0\n\
          Exception return: magic PC fffffff9 previous exception 15\n...successful exception return\n",
    );
    machine.block(5);
    // A non-secure function called by bxns returns.
    machine.block(3);
    machine.block(0);
    machine.join.log(
        b"Taking exception 8 [QEMU v7M exception exit] on CPU 0\n...really v7M secure function return\n\
          ...function return successful\n",
    );
    machine.block(5);
    let steps = machine.end(0x400).join(" | ");
    let expected = "804+2 | non-secure | 400+1 | ? | 100+2 | 800+1 | secure | 804+2 | non-secure | 400+1 | ? | \
        100+2 | 800+1 | secure | !15 804 | 300+1 | return | 804+2 | non-secure | 400+1 | ? | 100+2 | secure | 804+2 | non-secure";
    assert_eq!(steps, expected);
}

#[test]
fn an_interrupt_that_does_not_return() {
    let mut machine = Machine::new();
    machine.block(0);
    machine.exception(15, 0x2000);
    machine.block(2);
    assert_eq!(machine.end(0x300), ["100+2", "?"]);
    // After the end, execution only yields the return address.
    let mut machine = Machine::new();
    machine.block(0);
    machine.exception(15, 0x2000);
    machine.block(2);
    machine.join.close();
    machine.return_from(0x2000);
    machine.block(3);
    assert!(!machine.join.waits());
    assert_eq!(machine.end(0x300), ["100+2", "!15 400"]);
}
