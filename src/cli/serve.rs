//! `armsnap serve`: serves a snapshot on sockets, or on standard input and output.

#[cfg(unix)]
mod unix;

#[cfg(unix)]
use unix::{end_messages, remove_sockets_at_the_end, unix_listeners};

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use std::process::ExitCode;

use super::arch::Arch;
use super::convert::is_trace_file;
use super::quote::shell_quote;
use super::{Failure, SnapshotArguments, say};
use armsnap::cache::Cache;
use armsnap::convert::map_trace_file;
use armsnap::mapped::Mapped;
use armsnap::server::listen::{Listener, serve_stdio};
use armsnap::server::{
    Endpoint, EndpointError, HistoryMode, Note, Options, endpoints, trace_file_endpoint,
};
use armsnap::svd::Svd;
use armsnap::text;

/// Maximum number of notes printed; `monitor info` shows all.
const MAX_NOTES: usize = 20;

/// How to offer the history to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum History {
    /// Reverse execution: the client moves in the decoded trace in both directions. The history
    /// of a core without trace is its final state only.
    Replay,
    /// GDB's own branch trace: `info record`, `record instruction-history`.
    Btrace,
    /// No reverse execution
    None,
}

impl History {
    /// Returns the value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Btrace => "btrace",
            Self::None => "none",
        }
    }
}

/// The selection of what is served, shared by `serve` and `gdb`.
#[derive(Clone, Debug, Args)]
pub struct Selection {
    /// Serve only this core (repeatable). Default: all cores
    #[arg(long, value_name = "NAME")]
    pub core: Vec<String>,
    /// Serve only the cores of this cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// A program that the cores run. Default: an ELF file in the snapshot's directory that
    /// matches the dumps.
    #[arg(long, value_name = "FILE")]
    pub elf: Vec<PathBuf>,
    /// A description of the peripherals in CMSIS-SVD: addresses in them get names, and `monitor
    /// svd` shows their registers
    #[arg(long, value_name = "FILE")]
    pub svd: Option<PathBuf>,
    /// Do not read memory from the program where dumps lack it
    #[arg(long)]
    pub no_elf_memory: bool,
    /// The architecture of a trace file without a target description
    #[arg(long, value_enum)]
    pub arch: Option<Arch>,
    /// How to offer the history to the client.
    #[arg(long, value_enum, default_value_t = History::Replay)]
    pub history: History,
    /// Number of processor cores to use for a search in the history (default: all)
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
    /// Do not read or write indexes of long traces in the user's cache directory. The environment
    /// variable ARMSNAP_NO_CACHE does the same
    #[arg(long)]
    pub no_cache: bool,
}

/// The selection of a command that reads a snapshot once.
#[derive(Clone, Debug, Args)]
pub struct CoresAndPrograms {
    /// Only this core (repeatable). Default: all cores
    #[arg(long, value_name = "NAME")]
    core: Vec<String>,
    /// A program that the cores run. Default: an ELF file in the snapshot's directory that
    /// matches the dumps.
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,
}

impl CoresAndPrograms {
    /// Returns the selection of these cores and programs.
    pub fn selection(&self) -> Selection {
        Selection::of(&self.core, &self.elf)
    }
}

/// The environment variable that, if it is not empty, does the same as `--no-cache`.
const NO_CACHE: &str = "ARMSNAP_NO_CACHE";

impl Selection {
    /// Selects cores and programs; the rest are defaults.
    pub fn of(core: &[String], elf: &[PathBuf]) -> Self {
        Self {
            core: core.to_vec(),
            cluster: None,
            elf: elf.to_vec(),
            svd: None,
            no_elf_memory: false,
            arch: None,
            history: History::Replay,
            jobs: None,
            no_cache: false,
        }
    }

    /// Returns the endpoints of a snapshot.
    pub fn endpoints(&self, snapshot: &SnapshotArguments) -> Result<Vec<Endpoint>, Failure> {
        // A path that cannot be read is reported as a snapshot's path.
        if is_trace_file(&snapshot.snapshot).unwrap_or(false) {
            return Ok(vec![self.trace_file(snapshot)?]);
        }
        if self.arch.is_some() {
            return Err(Failure::Usage("--arch: the input is a snapshot".to_owned()));
        }
        let (loaded, named) = snapshot.load_with(&self.elf)?;
        let svd = self.svd.as_deref().map(open_svd).transpose()?;
        let options = Options {
            cores: self.core.clone(),
            cluster: self.cluster.clone(),
            elfs: named,
            elf_memory: !self.no_elf_memory,
            history: match self.history {
                History::Replay => HistoryMode::Replay,
                History::Btrace => HistoryMode::Btrace,
                History::None => HistoryMode::None,
            },
            jobs: self.jobs,
            cache: self.cache().map(Arc::new),
            svd: svd.map(Arc::new),
        };
        endpoints(&loaded, &options).map_err(|error| match error {
            EndpointError::UnknownCore { .. }
            | EndpointError::UnknownCluster { .. }
            | EndpointError::NothingLeft => Failure::Usage(error.to_string()),
            _ => Failure::Input(error.to_string()),
        })
    }

    /// Returns where indexes of long traces are kept.
    fn cache(&self) -> Option<Cache> {
        let unwanted = std::env::var_os(NO_CACHE).is_some_and(|value| !value.is_empty());
        (!self.no_cache && !unwanted).then(Cache::of_user)?
    }

    /// Returns the endpoint of a trace file.
    fn trace_file(&self, input: &SnapshotArguments) -> Result<Endpoint, Failure> {
        let path = &input.snapshot;
        let given = [
            (input.no_shared_memory, "--no-shared-memory"),
            (!self.core.is_empty(), "--core"),
            (self.cluster.is_some(), "--cluster"),
            (self.no_elf_memory, "--no-elf-memory"),
            (self.svd.is_some(), "--svd"),
        ];
        if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
            return Err(Failure::Usage(format!(
                "{option}: the input is a trace file"
            )));
        }
        let fault = |text: String| Failure::Input(format!("{}: {text}", path.display()));
        let bytes = map_trace_file(path).map_err(|error| fault(error.to_string()))?;
        // The file is served until the process ends.
        let bytes: &'static Mapped = Box::leak(Box::new(bytes));
        let arch = self.arch.map(Arch::architecture);
        trace_file_endpoint(bytes, &path.display().to_string(), &self.elf, arch)
            .map_err(|error| fault(error.to_string()))
    }
}

/// Reads the description of peripherals, and prints its notes.
pub(super) fn open_svd(path: &Path) -> Result<Svd, Failure> {
    let svd = Svd::open(path).map_err(|error| Failure::Input(error.to_string()))?;
    for note in svd.notes.iter().take(MAX_NOTES) {
        say(text::one_line(&format!("{}: {note}", path.display())));
    }
    Ok(svd)
}

/// The arguments of `serve`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot.
    #[command(flatten)]
    pub snapshot: SnapshotArguments,
    /// Listen on this address. Default: a free port on 127.0.0.1. If there are several
    /// architectures, each further one gets the next port
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "stdio")]
    pub listen: Option<SocketAddr>,
    /// Listen on this Unix socket. If there are several architectures, `.NAME` is appended
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "stdio"])]
    pub unix: Option<PathBuf>,
    /// Speak the remote protocol on standard input and output
    #[arg(long)]
    pub stdio: bool,
    /// Do not report tracepoints to clients. They use up breakpoint numbers, but GDB's `tdump`
    /// needs them
    #[arg(long)]
    pub no_tracepoints: bool,
    /// The client loads the symbols of all programs itself
    #[arg(long, hide = true)]
    pub client_loads_programs: bool,
    /// What is served.
    #[command(flatten)]
    pub selection: Selection,
}

/// Runs `serve`; returns only when standard input ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut endpoints = arguments.selection.endpoints(&arguments.snapshot)?;
    for endpoint in &mut endpoints {
        endpoint.reports_tracepoints = !arguments.no_tracepoints;
        endpoint.clients_load_programs = arguments.client_loads_programs;
    }
    if arguments.stdio {
        let endpoint = only(endpoints)?;
        print_notes(std::slice::from_ref(&endpoint));
        end_messages()?;
        serve_stdio(Arc::new(endpoint))?;
        return Ok(ExitCode::SUCCESS);
    }
    let listeners = match unix_listeners(arguments, &endpoints) {
        Some(listeners) => listeners?,
        None => (0..endpoints.len())
            .map(|index| tcp_listener(arguments.listen, index))
            .collect::<Result<_, _>>()?,
    };
    for (endpoint, listener) in endpoints.iter().zip(&listeners) {
        let address = listener.address()?;
        say(format_args!(
            "{}: {} (gdb-multiarch -ex {})",
            endpoint.architecture().name(),
            endpoint.core_names(),
            shell_quote(&format!("target remote {address}"))
        ));
    }
    print_notes(&endpoints);
    remove_sockets_at_the_end(&listeners)?;
    let threads: Vec<_> = endpoints
        .into_iter()
        .zip(listeners)
        .map(|(endpoint, listener)| thread::spawn(move || listener.serve(&Arc::new(endpoint))))
        .collect();
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(Failure::Input(format!("cannot accept clients: {error}")));
            }
            Err(_) => return Err(Failure::Input("a listener ended unexpectedly".to_owned())),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the only endpoint, or an error that lists the choices.
pub fn only(mut endpoints: Vec<Endpoint>) -> Result<Endpoint, Failure> {
    if endpoints.len() == 1
        && let Some(endpoint) = endpoints.pop()
    {
        return Ok(endpoint);
    }
    let mut text = "cores of several architectures need an endpoint each, and this mode has one: \
                    choose with --core or --cluster:"
        .to_owned();
    for endpoint in &endpoints {
        text.push_str(&format!("\n  {}:", endpoint.architecture().name()));
        for core in &endpoint.cores {
            text.push_str(&format!(" --core {}", shell_quote(&core.name)));
        }
    }
    Err(Failure::Usage(text))
}

fn tcp_listener(listen: Option<SocketAddr>, index: usize) -> Result<Listener, Failure> {
    let wanted = listen.map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string());
    Listener::tcp(address(listen, index)?).map_err(|error| cannot_listen(&wanted, &error))
}

fn cannot_listen(wanted: &str, error: &io::Error) -> Failure {
    let instead = match error.kind() {
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable | ErrorKind::PermissionDenied => {
            "; without an address, a free port of 127.0.0.1 is chosen"
        }
        _ => "",
    };
    Failure::Input(format!("cannot listen on {wanted}: {error}{instead}"))
}

fn address(listen: Option<SocketAddr>, index: usize) -> Result<SocketAddr, Failure> {
    let mut address = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    if address.port() != 0 {
        let port = u16::try_from(index)
            .ok()
            .and_then(|index| address.port().checked_add(index))
            .ok_or_else(|| Failure::Usage(format!("there is no port after {address}")))?;
        address.set_port(port);
    }
    Ok(address)
}

fn print_notes(endpoints: &[Endpoint]) {
    let mut notes: Vec<Note> = Vec::new();
    for note in endpoints.iter().flat_map(Endpoint::remarks) {
        // Each endpoint has the notes on the whole snapshot.
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    for note in notes.iter().take(MAX_NOTES) {
        say(format_args!("note: {}", text::one_line(&note.to_string())));
    }
    if notes.len() > MAX_NOTES {
        let more = notes.len() - MAX_NOTES;
        say(format_args!(
            "note: {more} more notes are in `monitor info`"
        ));
    }
}

#[cfg(not(unix))]
fn unix_listeners(_: &Arguments, _: &[Endpoint]) -> Option<Result<Vec<Listener>, Failure>> {
    None
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
fn end_messages() -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
fn remove_sockets_at_the_end(_: &[Listener]) -> io::Result<()> {
    Ok(())
}
