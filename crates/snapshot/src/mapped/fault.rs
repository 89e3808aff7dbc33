//! Handles truncation of mapped files: reading bytes that are no longer in the file raises SIGBUS,
//! which would end the process.
//!
//! The signal is caught. If the address is in a watched mapping, zeros replace the missing bytes,
//! the mapping is marked as truncated, and the reader continues. Any other SIGBUS is passed to the
//! previous handler.
//!
//! The handler allocates nothing and takes no lock: mappings are entries of a list that only grows;
//! unused entries are reused.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A mapping, watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watch(&'static WatchEntry);

/// Whether a mapping was cut. Valid only while the mapping is watched: its entry may be reused
/// later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(&'static WatchEntry);

#[derive(Debug)]
struct WatchEntry {
    begin: AtomicUsize,
    /// 0: the entry is free.
    end: AtomicUsize,
    cut: AtomicBool,
    next: *const WatchEntry,
}

// SAFETY: `next` is written before the entry is published, and never after.
unsafe impl Sync for WatchEntry {}
// SAFETY: the same.
unsafe impl Send for WatchEntry {}

static ENTRIES: AtomicPtr<WatchEntry> = AtomicPtr::new(ptr::null_mut());
static FREE: Mutex<Vec<&'static WatchEntry>> = Mutex::new(Vec::new());
static CUT: AtomicBool = AtomicBool::new(false);

struct Installed {
    before: libc::sigaction,
    page: usize,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

impl Watch {
    /// Watches the mapping at the addresses `range`, which must outlive the watch.
    ///
    /// # Safety
    ///
    /// The whole range must be one read-only mapping of a file, owned by the caller: it is replaced
    /// with zeros from the first unreadable page.
    pub(super) unsafe fn new(range: Range<usize>) -> Self {
        install();
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let entry = free.unwrap_or_else(publish);
        entry.cut.store(false, Ordering::Relaxed);
        entry.begin.store(range.start, Ordering::Relaxed);
        entry.end.store(range.end, Ordering::Release);
        Self(entry)
    }

    /// Returns the mark of this mapping.
    pub(super) const fn mark(&self) -> Mark {
        Mark(self.0)
    }
}

impl Mark {
    /// Returns whether bytes were read that are no longer in the file.
    pub(super) fn is_cut(self) -> bool {
        self.0.cut.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.0);
    }
}

/// Returns whether any mapping was read beyond the end of its truncated file.
pub(super) fn any_cut() -> bool {
    CUT.load(Ordering::Acquire)
}

/// Adds an entry to the list.
fn publish() -> &'static WatchEntry {
    let entry = Box::leak(Box::new(WatchEntry {
        begin: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
        next: ptr::null(),
    }));
    // `FREE` alone does not give exclusive access: the compare-and-swap does.
    let mut head = ENTRIES.load(Ordering::Acquire);
    loop {
        entry.next = head;
        let new: *mut WatchEntry = entry;
        match ENTRIES.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(other) => head = other,
        }
    }
}

fn install() {
    INSTALLED.get_or_init(|| {
        // SAFETY: both structures are plain data that `sigaction` reads or fills.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, ptr::null(), &mut before);
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            Installed {
                before,
                page: usize::try_from(page).unwrap_or(4096),
            }
        }
    });
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = caught;
        // SAFETY: the handler only performs async-signal-safe operations, and `INSTALLED` is set.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    });
}

extern "C" fn caught(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(installed) = INSTALLED.get() else {
        return;
    };
    // SAFETY: the system passes a valid structure to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    if replace(address, installed.page) {
        return;
    }
    let before = installed.before.sa_sigaction;
    // SAFETY: the previous handler has the type indicated by its flags; without one the signal is
    // raised again on return and ends the process.
    unsafe {
        if before == libc::SIG_DFL || before == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if installed.before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(before)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before)(signal);
        }
    }
}

/// Replaces the pages from an address to the end of its mapping with zeros, if it is watched.
fn replace(address: usize, page: usize) -> bool {
    let mut next = ENTRIES.load(Ordering::Acquire).cast_const();
    // SAFETY: entries are never freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.next;
        let end = entry.end.load(Ordering::Acquire);
        if !(entry.begin.load(Ordering::Relaxed)..end).contains(&address) {
            continue;
        }
        let first = address & !(page - 1);
        // SAFETY: these addresses are ours (`Watch::new`), up to the end of the last page.
        let mapped = unsafe {
            libc::mmap(
                first as *mut libc::c_void,
                end - first,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        entry.cut.store(true, Ordering::Release);
        CUT.store(true, Ordering::Release);
        return true;
    }
    false
}
