//! The examples at the end of each subcommand's help.

/// `armsnap --help`.
pub const MAIN: &str = "\
Examples:
  armsnap                       what can be done with the files in this directory
  armsnap demo                  walk backwards through a recorded crash
  armsnap gdb crash.snapshot    debug a snapshot, also backwards
  armsnap explain MESSAGE       what a message means, and what to do
  armsnap COMMAND --help        the options of a command, with examples";

pub const CHECK: &str = "\
Examples:
  armsnap check board           a line for each fault; exit status 1 for errors
  armsnap check board --json";

pub const INFO: &str = "\
Examples:
  armsnap info board            cores, memory, trace
  armsnap info perf.data        the same for a recording of Linux perf
  armsnap info board --json";

pub const FAULT: &str = "\
Examples:
  armsnap fault board           the fault of each core
  armsnap fault hardfault.core --elf firmware.elf
  armsnap fault board --json";

pub const PERIPHERALS: &str = "\
Examples:
  armsnap peripherals board --svd STM32F407.svd               all peripherals
  armsnap peripherals board --svd STM32F407.svd USART1        its registers
  armsnap peripherals board --svd STM32F407.svd USART1.SR RCC --json";

pub const ASK: &str = "\
Examples:
  armsnap ask board calls parse_header      arguments and results of each call
  armsnap ask board accesses 0x20000010+4   loads and stores: value, line
  armsnap ask board values 0+1234 --format jsonl
  armsnap ask board memory 0+1234 0x20000000 64
  armsnap ask board why 0+1234 x0           where the value came from";

pub const DIFF: &str = "\
Examples:
  armsnap diff good bad                 where the courses part, and why
  armsnap diff good bad --format json";

pub const MCP: &str = "\
Examples:
  armsnap mcp board             for an assistant that starts it; see docs/mcp.md
  armsnap mcp board --elf firmware.elf";

pub const SERVE: &str = "\
Examples:
  armsnap serve board           prints the command to type in GDB
  armsnap serve board --listen 127.0.0.1:3456
  armsnap serve board --unix /tmp/board.socket --core cpu_0";

pub const GDB: &str = "\
Examples:
  armsnap gdb board             then, in GDB: help armsnap
  armsnap gdb board --elf firmware.elf
  armsnap gdb core.1234 --sysroot target-root
  armsnap gdb board -- -batch -ex backtrace";

pub const GDB_COMMANDS: &str = "\
Examples:
  armsnap gdb-commands > armsnap.py    then, in GDB: source armsnap.py";

pub const EXPORT: &str = "\
Examples:
  armsnap export board --as lcov -o coverage.info       for lcov and genhtml
  armsnap export board --as cobertura -o coverage.xml   for GitLab, Jenkins
  armsnap export board --as folded -o stacks.txt        for flame graphs
  armsnap export board --as perfetto -o board.pftrace   a timeline of calls
  armsnap export board --as jsonl --table calls -o calls.jsonl
  armsnap export board --as callgrind -o callgrind.out --from main";

pub const CONSOLE: &str = "\
Examples:
  armsnap console swo.bin       the text of all stimulus ports of a raw capture
  armsnap console board --port 0 --times --clock 72M
  armsnap console swo.bin -f    also what is appended to the file
  armsnap console -             what arrives on standard input";

pub const DWT: &str = "\
Examples:
  armsnap dwt swo.bin --elf firmware.elf
  armsnap dwt swo.bin --clock 72M --json
  armsnap dwt board --table values -o values.csv
  armsnap dwt board --table exceptions --as jsonl";

pub const DECODE: &str = "\
Examples:
  armsnap decode board --level instructions
  armsnap decode board --level packets --source ETM_0
  armsnap decode board --format jsonl -o trace.jsonl
  armsnap decode board --format none --stats
  armsnap decode board --follow
  armsnap decode - --like board";

pub const REPORT: &str = "\
Examples:
  armsnap report board                          board.html, and a summary
  armsnap report board --html page.html --sources src
  armsnap report board --summary --from main";

pub const SHARDS: &str = "\
Examples:
  armsnap shards board --shards 8
  armsnap shards board --size 16777216";

pub const CONVERT: &str = "\
Examples:
  armsnap convert board board.tf         for GDB's `target tfile`
  armsnap convert board.tf again         back to a snapshot
  armsnap convert board board.core       a core file
  armsnap convert --trace session.tf history";

pub const IMPORT: &str = "\
Examples:
  armsnap import perf.data board --symfs target-root
  armsnap import core.1234 board --sysroot target-root
  armsnap import --raw etb.bin --core Cortex-M4 board
  armsnap import --memory ram.bin@0x20000000 --core Cortex-M4 board
  armsnap import --memory ram.bin@0x20000000 --registers regs.txt board";

pub const RECORD: &str = "\
Examples:
  armsnap record -- ./program argument
  armsnap record --until main.c:36 --count 2 -o board -- ./program
  armsnap record --data-addresses -- ./program
  armsnap record --system virt --smp 2 -o board -- firmware.elf";

pub const DOCTOR: &str = "\
Examples:
  armsnap doctor                what is installed, and what to install";

pub const DEMO: &str = "\
Examples:
  armsnap demo                  in GDB, on a copy that is removed at the end
  armsnap demo -o crash         writes the recording, for other commands";

pub const DAP: &str = "\
Examples:
  armsnap dap board             started by an editor; see docs/editors.md
  armsnap dap board --gdb /opt/gdb/bin/gdb";

pub const EXPLAIN: &str = "\
Examples:
  armsnap explain the trace is damaged
  armsnap explain overflow      the messages with this word
  armsnap explain trace-lost    by name
  armsnap explain               all messages, with their names";
