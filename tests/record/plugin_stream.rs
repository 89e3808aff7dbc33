//! The plugin's stream equals the emulator's own log, instruction by
//! instruction.

use crate::support::record::{Guest, assemble, logged};
use armsnap::data_addresses::Access;
use armsnap::encode::CodeAddress;
use armsnap::quantity::{Address, Isa};
use armsnap::record::blocks::{Block, BlockTable, Sets};
use armsnap::record::flow::{Flow, FlowSink};
use armsnap::record::plugin::Plugin;
use armsnap::record::stream::{self, Definition, Events, Exit, Sink, Stopped};
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The executed addresses.
struct Listing {
    blocks: BlockTable,
    flow: Flow,
    steps: Executed,
    exit: Option<u64>,
    emulator: Child,
    handlers: Vec<(u32, u64)>,
    masks: usize,
}

#[derive(Default)]
struct Executed {
    places: Vec<CodeAddress>,
    broken: Vec<Option<CodeAddress>>,
}

impl FlowSink for Executed {
    fn ran(&mut self, _: u32, block: &Block, count: usize, _: &[(u32, Access)]) -> io::Result<()> {
        for index in 0..count {
            let address = block.address(index);
            let isa = block.start.isa;
            self.places.push(CodeAddress { address, isa });
        }
        Ok(())
    }
    fn exception(&mut self, _: u32, _: u32, _: CodeAddress) -> io::Result<()> {
        Ok(())
    }
    fn broken(&mut self, _: u32, instead: Option<CodeAddress>) -> io::Result<()> {
        self.broken.push(instead);
        Ok(())
    }
}

impl Sink for Listing {
    fn begin(&mut self, core: u32, _: u32) -> io::Result<()> {
        self.flow.begin(core)
    }
    fn block(&mut self, definition: &Definition<'_>) -> io::Result<()> {
        self.blocks.add(definition)
    }
    fn events(&mut self, core: u32, thread: u32, events: Events<'_>) -> io::Result<()> {
        assert_ne!(thread, 0);
        for event in events {
            self.flow
                .event(core, event?, &self.blocks, &mut self.steps)?;
        }
        Ok(())
    }
    fn stopped(&mut self, stopped: Stopped) {
        panic!("{stopped:?}");
    }
    fn handler(&mut self, signal: u32, address: u64, flags: u64) {
        assert_eq!(flags, 0x0400_0004);
        self.handlers.push((signal, address));
    }
    fn mask(&mut self, thread: u32) {
        assert_ne!(thread, 0);
        self.masks += 1;
    }
    fn end(&mut self, _: u32, _: Option<u64>) -> io::Result<()> {
        Ok(())
    }
    fn exit(&mut self, exit: Exit) {
        // The plugin stops the program at this call, and has nothing more to report.
        self.exit = Some(exit.address);
        self.emulator.kill().unwrap();
    }
}

fn listing(guest: &Guest, sets: Sets) -> Listing {
    let directory = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(directory.path()).unwrap();
    let mut emulator = Command::new(guest.emulator())
        .args(plugin.arguments(&[]))
        .arg(&guest.program)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let socket = plugin
        .connect(&mut emulator, Duration::from_secs(60))
        .unwrap();
    let mut listing = Listing {
        blocks: BlockTable::new(sets),
        flow: Flow::default(),
        steps: Executed::default(),
        exit: None,
        emulator,
        handlers: Vec::new(),
        masks: 0,
    };
    stream::read(&socket, &mut listing).unwrap();
    let Listing {
        blocks,
        flow,
        steps,
        exit,
        ..
    } = &mut listing;
    let address = Address(exit.expect("the program exits"));
    let next = flow.last(0, blocks);
    let next = next.map(|(_, next)| CodeAddress { address, ..next });
    flow.end(0, next, blocks, steps).unwrap();
    listing.emulator.wait().unwrap();
    listing
}

#[track_caller]
fn same(listing: &Listing, guest: &Guest, faulting: Option<u64>) {
    // The log contains the faulting instruction and the call that exits; neither was executed.
    let mut logged = logged(guest);
    logged.pop();
    logged.retain(|address| Some(*address) != faulting);
    let told: Vec<u64> = listing.steps.places.iter().map(|p| p.address.0).collect();
    let first = told.iter().zip(&logged).take_while(|(a, b)| a == b).count();
    assert!(
        told == logged,
        "{first} of {} agree, told {:x?}, logged {:x?}",
        logged.len(),
        told.get(first.saturating_sub(3)..(first + 3).min(told.len())),
        logged.get(first.saturating_sub(3)..(first + 3).min(logged.len())),
    );
}

#[test]
fn a64_with_a_fault_in_the_middle_of_a_block() {
    let Some(guest) = assemble(
        "aarch64",
        r#"
        .global _start
_start: mov x8, #134            // rt_sigaction(SIGSEGV, action, 0, 8)
        mov x0, #11
        adr x1, action
        mov x2, #0
        mov x3, #8
        svc #0
        mov x19, #1000
again:  add x20, x20, x19
        tbz x19, #0, even
        bl odd
even:   subs x19, x19, #1
        b.ne again
        mov x0, #0
        mov x1, #1
        ldr x2, [x0]            // faults; the handler passes over it
after:  add x1, x1, #2
        adr x3, last
        br x3
odd:    eor x20, x20, #0xff
        ret
last:   mov x8, #94
        mov x0, #0
        svc #0
handler:
        ldr x3, [x2, #440]
        add x3, x3, #4
        str x3, [x2, #440]
        ret
restorer:
        mov x8, #139
        svc #0
        .balign 8
action: .quad handler, 0x04000004, restorer, 0
"#,
    ) else {
        return;
    };
    let listing = listing(&guest, Sets::A64);
    // Into the handler and out of it; each time the address that execution reached is known.
    let symbol = |name| CodeAddress {
        address: Address(guest.symbol(name)),
        isa: Isa::A64,
    };
    let faulting = CodeAddress {
        address: Address(symbol("after").address.0 - 4),
        ..symbol("after")
    };
    let next = CodeAddress {
        address: Address(symbol("restorer").address.0 + 8),
        ..symbol("after")
    };
    same(&listing, &guest, Some(faulting.address.0));
    assert_eq!(listing.steps.broken, [Some(faulting), Some(next)]);
    assert_eq!(listing.handlers, [(11, guest.symbol("handler"))]);
    assert_eq!(listing.masks, 1, "the return from the handler");
}

#[test]
fn a32_and_t32_alternating() {
    let Some(guest) = assemble(
        "arm",
        r#"
        .syntax unified
        .arm
        .global _start
_start: mov r4, #300
again:  blx thumb
        subs r4, r4, #1
        bne again
        mov r7, #248
        mov r0, #0
        svc #0
        .thumb
        .thumb_func
thumb:  push {r4, lr}
        cmp r4, #100
        ite lt
        addlt r5, r5, r4
        subge r5, r5, r4
        add.w r5, r5, #1
        b.w wide
        .balign 4
wide:   add.w r6, r6, #1        // four bytes each
        bic.w r6, r6, #2
        bl narrow
        pop {r4, pc}
        .thumb_func
narrow: bx lr
"#,
    ) else {
        return;
    };
    let listing = listing(&guest, Sets::A32AndT32);
    same(&listing, &guest, None);
    assert_eq!(listing.steps.broken, []);
    let thumb = guest.symbol("thumb");
    for place in &listing.steps.places {
        let isa = if place.address.0 < thumb & !1 {
            Isa::A32
        } else {
            Isa::T32
        };
        assert_eq!(place.isa, isa, "{place:x?}");
    }
}
