//! The crash report: what the log gets when the process dies by a signal or a failed assertion.
//!
//! ```text
//! a panic --> hook: what failed, and where --> abort --+
//! SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT ----------------+--> handler: report --> the same signal,
//!                                                          not caught: a core dump, as configured
//! ```
//!
//! The lines that tools look for ("crashed by signal", "STACK TRACE") are those of Redis's report.
//! Addresses are given as offsets in the program; `addr2line -Cfie forebay OFFSET` names them.
//!
//! **Invariant:** the handler allocates nothing and takes no lock: it writes to a descriptor that
//! was opened before, and calls glibc's `backtrace`, which [`install`] has let load what it needs.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// What the process is ended by that it did not ask for.
const SIGNALS: [c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];
/// Frames of a trace, at most.
const FRAMES: usize = 100;
/// Bytes of a handler's stack: glibc's unwinder takes about ten thousand.
const STACK_BYTES: usize = 128 << 10;
/// Bytes of a line, at most.
const LINE: usize = 512;

static LOG: AtomicI32 = AtomicI32::new(libc::STDOUT_FILENO);
static IS_ON: AtomicBool = AtomicBool::new(true);
/// The thread that reports; 0 = none yet.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// What there is to say about this server, made when it started.
static ABOUT: OnceLock<String> = OnceLock::new();

/// A command as the handler can read it.
#[derive(Clone, Copy)]
struct Noted {
    name: *const u8,
    len: usize,
    words: usize,
    client: u64,
}

const NOTHING: Noted = Noted { name: std::ptr::null(), len: 0, words: 0, client: 0 };

thread_local! {
    static RUNNING: Cell<Noted> = const { Cell::new(NOTHING) };
}

/// This thread is about to run a command; its name lives as long as [`forget`] has not been called.
#[inline]
pub fn note(name: &str, words: usize, client: u64) {
    RUNNING.set(Noted { name: name.as_ptr(), len: name.len(), words, client });
}

/// The command has ended.
#[inline]
pub fn forget() {
    RUNNING.set(NOTHING);
}

/// Turns the report on and off (`crash-log-enabled`).
pub fn set_enabled(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Catches what ends the process. `logfile` is the option's value: empty for standard output;
/// `about` is what the report shall tell of this server, a line each.
pub fn install(logfile: &str, about: String) -> std::io::Result<()> {
    if !logfile.is_empty() {
        let file = OpenOptions::new().create(true).append(true).open(logfile)?;
        LOG.store(file.into_raw_fd(), Ordering::Relaxed);
    }
    // A second server in this process has the same handlers.
    let _ = ABOUT.set(about);
    // This thread's, which is the main one: for as long as the process lives.
    std::mem::forget(SignalStack::set_up());
    // The first call loads a library, which a handler must not do.
    let mut frames = [std::ptr::null_mut(); 4];
    // SAFETY: `frames` has room for as many as it is told.
    unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int) };
    for signal in SIGNALS {
        // SAFETY: an all-zero sigaction is valid; its fields are set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = caught;
        action.sa_sigaction = handler as usize;
        // On the stack for that: see `SignalStack`.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: the handler is a function of the form that SA_SIGINFO wants, and keeps to what a
        // handler may do.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_ON.load(Ordering::Relaxed) {
            tell_panic(panic);
        }
        before(panic);
    }));
    Ok(())
}

/// Says what failed and where; the trace follows with the signal that ends the process.
fn tell_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let thread = std::thread::current();
    let place = panic.location().map_or_else(String::new, ToString::to_string);
    let lines = format!(
        "=== ASSERTION FAILED ===\n==> {place}: {} (thread {})\n",
        text.unwrap_or("?"),
        thread.name().unwrap_or("?")
    );
    write(lines.as_bytes());
}

/// A stack for the handler of the thread that made it: its own may be used up, and the one that
/// Rust's threads have for that is too small for a trace. To be dropped by that thread, at its end.
pub struct SignalStack(*mut c_void);

impl SignalStack {
    /// Sets one up, if the system has the memory.
    pub fn set_up() -> Option<SignalStack> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which nothing else uses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let stack = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: STACK_BYTES };
        // SAFETY: the mapping stays until this is dropped, by which the thread gives it back.
        unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
        Some(SignalStack(base))
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let none = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: STACK_BYTES,
        };
        // SAFETY: no handler runs on it now, and none will.
        unsafe {
            libc::sigaltstack(&none, std::ptr::null_mut());
            libc::munmap(self.0, STACK_BYTES);
        }
    }
}

/// Ends the process as a failed assertion does (DEBUG PANIC, DEBUG ASSERT).
pub fn die(text: &str) -> ! {
    write(format!("=== ASSERTION FAILED ===\n==> {text}\n").as_bytes());
    std::process::abort()
}

/// Ends the process by a write to memory that must not be written (DEBUG SEGFAULT).
pub fn fault() -> ! {
    let (len, none) = (4096, std::ptr::null_mut());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing else uses.
    let page = unsafe { libc::mmap(none, len, libc::PROT_READ, flags, -1, 0) };
    if page != libc::MAP_FAILED {
        // SAFETY: none, on purpose: the page may only be read, and the system answers by SIGSEGV.
        unsafe { page.cast::<u8>().write_volatile(b'x') };
    }
    std::process::abort()
}

extern "C" fn caught(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: no arguments, no memory.
    let own = unsafe { libc::gettid() };
    let reporter = REPORTER.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
    match reporter {
        Ok(_) if IS_ON.load(Ordering::Relaxed) => report(signal, info, context),
        Ok(_) => {}
        // The report itself has failed.
        Err(first) if first == own => {}
        Err(_) => loop {
            // Another thread reports, and then ends the process.
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        },
    }
    // SAFETY: both may be called by a handler; the signal is not blocked, and no longer caught.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// A line that is put together without the heap.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    fn new(text: &str) -> Line {
        let mut line = Line { bytes: [0; LINE], len: 0 };
        line.push(text.as_bytes());
        line
    }

    fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(LINE - 1 - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
    }

    fn number(&mut self, number: i64, base: u64) {
        let mut digits = [0; 24];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        while at == digits.len() || rest > 0 {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(rest % base) as usize];
            rest /= base;
        }
        if number < 0 {
            self.push(b"-");
        }
        self.push(&digits[at..]);
    }

    fn address(&mut self, address: usize) {
        self.push(b"0x");
        self.number(address as i64, 16);
    }

    fn end(mut self) {
        self.bytes[self.len] = b'\n';
        write(&self.bytes[..=self.len]);
    }
}

/// Writes to the log; nothing can be done where that fails.
fn write(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let log = LOG.load(Ordering::Relaxed);
        // SAFETY: `bytes` is readable for its length.
        let count = unsafe { libc::write(log, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(count) {
            Ok(count @ 1..) => bytes = &bytes[count.min(bytes.len())..],
            _ => return,
        }
    }
}

fn text(text: &str) {
    Line::new(text).end();
}

fn report(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    text("");
    text("=== FOREBAY BUG REPORT START: Cut & paste starting from here ===");
    // SAFETY: the system hands the handler a siginfo.
    let (code, sender, address) =
        unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_addr() as usize) };
    let mut line = Line::new("Forebay ");
    line.push(env!("CARGO_PKG_VERSION").as_bytes());
    line.push(b" crashed by signal: ");
    line.number(signal.into(), 10);
    line.push(b", si_code: ");
    line.number(code.into(), 10);
    line.end();
    let is_fault = signal != libc::SIGABRT && code > 0;
    let mut line = Line::new(if is_fault { "Accessing address: " } else { "Killed by PID: " });
    if is_fault {
        line.address(address);
    } else {
        line.number(sender.into(), 10);
    }
    line.end();
    if let Some(at) = instruction(context) {
        let mut line = Line::new("Crashed running the instruction at: ");
        line.address(at);
        line.end();
    }
    text("");
    text("------ STACK TRACE ------");
    text("Backtrace:");
    trace();
    text("");
    text("------ CURRENT COMMAND ------");
    tell_command();
    text("");
    text("------ INFO OUTPUT ------");
    if let Some(about) = ABOUT.get() {
        write(about.as_bytes());
    }
    text("");
    text("=== FOREBAY BUG REPORT END. Please report what was done before, and this report. ===");
}

/// Where the thread was when the signal came.
fn instruction(context: *mut c_void) -> Option<usize> {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    // SAFETY: the system hands the handler a ucontext.
    return Some(unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize);
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    // SAFETY: as above.
    return Some(unsafe { (*context).uc_mcontext.pc } as usize);
    #[allow(unreachable_code)]
    {
        let _ = context;
        None
    }
}

fn trace() {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: `frames` has room for as many as it is told; what they need is loaded already.
    unsafe {
        let count = libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int);
        libc::backtrace_symbols_fd(frames.as_ptr(), count, LOG.load(Ordering::Relaxed));
    }
}

fn tell_command() {
    let running = RUNNING.get();
    let mut line = Line::new("command: ");
    if running.len == 0 {
        line.push(b"none on this thread, or one of a batch");
        return line.end();
    }
    // SAFETY: `note` was given a name that lives until `forget`.
    line.push(unsafe { std::slice::from_raw_parts(running.name, running.len) });
    line.push(b", words: ");
    line.number(running.words as i64, 10);
    line.push(b", client id: ");
    line.number(running.client as i64, 10);
    line.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_need_no_heap() {
        let mut line = Line::new("a ");
        line.number(-120, 10);
        line.push(b" ");
        line.number(0, 10);
        line.push(b" ");
        line.address(usize::MAX >> 4);
        assert_eq!(&line.bytes[..line.len], b"a -120 0 0xfffffffffffffff");
        line.push(&[b'x'; 2 * LINE]);
        assert_eq!(line.len, LINE - 1, "room is left for the end of the line");
    }

    #[test]
    fn numbers_without_a_sign_and_the_smallest() {
        let mut line = Line::new("");
        line.number(i64::MIN, 10);
        assert_eq!(&line.bytes[..line.len], b"-9223372036854775808");
    }
}
