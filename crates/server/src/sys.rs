//! What only the operating system and the allocator can tell: memory in use, CPU time, limits.
#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::crash::SignalStack;

/// A thread's two allocation counters, kept by the allocator, read by everybody.
struct Counters {
    allocated: *const AtomicU64,
    deallocated: *const AtomicU64,
}

// SAFETY: the counters live as long as their thread, and are taken out of the list before it ends
// (`Registered`); they are read as atomics.
unsafe impl Send for Counters {}

static THREADS: Mutex<Vec<Counters>> = Mutex::new(Vec::new());
/// Bytes in use that no registered thread counts, set by [`calibrate`].
static REST: AtomicU64 = AtomicU64::new(0);

/// Keeps a thread's allocations in [`used_memory`], and a stack for reports of a crash; to be
/// dropped by that thread, at its end.
pub struct Registered(*const AtomicU64, #[allow(dead_code)] Option<SignalStack>);

impl Drop for Registered {
    fn drop(&mut self) {
        let mut threads = THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        threads.retain(|thread| thread.allocated != self.0);
    }
}

/// Adds this thread's allocations to [`used_memory`] for as long as the result lives.
#[must_use]
pub fn register_thread() -> Option<Registered> {
    let read = || {
        let allocated = tikv_jemalloc_ctl::thread::allocatedp::read().ok()?;
        let deallocated = tikv_jemalloc_ctl::thread::deallocatedp::read().ok()?;
        // The handles hold one pointer each: see `ThreadLocal` of tikv-jemalloc-ctl.
        // SAFETY: `ThreadLocal<u64>` is a transparent `*const u64` wrapper of one word.
        let pointer = |handle: tikv_jemalloc_ctl::thread::ThreadLocal<u64>| unsafe {
            std::mem::transmute_copy::<_, *const AtomicU64>(&handle)
        };
        Some(Counters { allocated: pointer(allocated), deallocated: pointer(deallocated) })
    };
    let counters = read()?;
    let registered = Registered(counters.allocated, SignalStack::set_up());
    THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(counters);
    Some(registered)
}

fn counted() -> u64 {
    let threads = THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    threads.iter().fold(0u64, |sum, thread| {
        // SAFETY: see `Counters`.
        let (allocated, deallocated) = unsafe {
            (
                (*thread.allocated).load(Ordering::Relaxed),
                (*thread.deallocated).load(Ordering::Relaxed),
            )
        };
        sum.wrapping_add(allocated).wrapping_sub(deallocated)
    })
}

/// Bytes in use by the whole process, as the allocator counts them: a few loads.
pub fn used_memory() -> u64 {
    let used = counted().wrapping_add(REST.load(Ordering::Relaxed));
    if used > 1 << 62 { 0 } else { used }
}

/// Sets right what threads that are not registered have allocated meanwhile; some microseconds.
pub fn calibrate() {
    if tikv_jemalloc_ctl::epoch::advance().is_ok()
        && let Ok(all) = tikv_jemalloc_ctl::stats::allocated::read()
    {
        REST.store((all as u64).wrapping_sub(counted()), Ordering::Relaxed);
    }
}

/// Allocator statistics in bytes: allocated, active, resident, retained.
pub fn allocator() -> [u64; 4] {
    use tikv_jemalloc_ctl::stats;
    let _ = tikv_jemalloc_ctl::epoch::advance();
    [
        stats::allocated::read().unwrap_or(0) as u64,
        stats::active::read().unwrap_or(0) as u64,
        stats::resident::read().unwrap_or(0) as u64,
        stats::retained::read().unwrap_or(0) as u64,
    ]
}

/// Bytes of memory that are in RAM for this process.
pub fn resident_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Bytes of RAM of the machine.
pub fn total_memory() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Seconds of CPU time used: by the process in user mode and in the kernel, and the same by the
/// calling thread.
pub fn cpu_seconds() -> [f64; 4] {
    let of = |who| {
        // SAFETY: an all-zero rusage is valid, and getrusage fills it in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is writable.
        unsafe { libc::getrusage(who, &mut usage) };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        [seconds(usage.ru_utime), seconds(usage.ru_stime)]
    };
    let ([user, system], [thread_user, thread_system]) =
        (of(libc::RUSAGE_SELF), of(libc::RUSAGE_THREAD));
    [user, system, thread_user, thread_system]
}

/// Raises the limit of open files to at least `wanted` if it can; what it is then.
pub fn raise_open_files(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return 1024;
    }
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
        // SAFETY: `raised` is a valid rlimit; a refusal changes nothing.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return wanted;
        }
        let most = libc::rlimit { rlim_cur: limit.rlim_max.min(wanted), ..limit };
        // SAFETY: as above.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &most) } == 0 {
            return most.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// A thread's scheduling, as `sched_getattr(2)` and `sched_setattr(2)` have it.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The slice of a thread that answers clients, in nanoseconds: the shortest that Linux takes.
const SLICE_NS: u64 = 100_000;
/// What this thread starts has the usual slice: `SCHED_FLAG_RESET_ON_FORK`.
const RESET_ON_FORK: u64 = 1;

/// This thread's scheduling.
fn scheduling() -> Option<SchedAttr> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: `attr` is writable and as long as it says; 0 is this thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    (got == 0).then_some(attr)
}

/// Has this thread run in short slices, so that it need not wait for the end of another's long one
/// (SQL, a save) when it wakes: from Linux 6.12 on, the scheduler lets a shorter slice go first.
/// False where the system refuses; nothing has changed then.
pub fn shorten_slice() -> bool {
    let Some(mut attr) = scheduling() else { return false };
    if attr.policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    (attr.size, attr.runtime_ns) = (size_of::<SchedAttr>() as u32, SLICE_NS);
    attr.flags |= RESET_ON_FORK;
    // SAFETY: `attr` is readable and as long as it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
}

/// Gives back the memory of program and libraries that only starting needed: pages that are never
/// written. What is needed again is mapped again from the system's cache, a microsecond for each
/// 16 pages.
pub fn give_back_code() {
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        page: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes a description that is whole during this call.
        let (base, headers) = unsafe {
            let object = &*object;
            let count = usize::from(object.dlpi_phnum);
            (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, count))
        };
        let page = page as usize;
        for header in headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            // Only whole pages of this segment: its neighbours may have been written.
            let start = (base + header.p_vaddr as usize).next_multiple_of(page);
            let end = (base + (header.p_vaddr + header.p_filesz) as usize) / page * page;
            if start < end {
                // SAFETY: the pages are a file's, mapped read-only, and never written: whoever
                // looks at them next finds the same. A refusal changes nothing.
                unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DONTNEED) };
            }
        }
        0
    }
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if page > 0 {
        // SAFETY: `visit` is what the loader calls for each object; it unwinds never.
        unsafe { libc::dl_iterate_phdr(Some(visit), page as *mut libc::c_void) };
    }
}

/// The allocator's name and version.
pub fn allocator_name() -> String {
    let version = tikv_jemalloc_ctl::version::read().unwrap_or("");
    format!("jemalloc-{}", version.split('-').next().unwrap_or(version))
}

/// Gives memory that the allocator keeps back to the system.
pub fn purge() -> bool {
    // 4096 stands for all arenas: `MALLCTL_ARENAS_ALL`.
    let name = c"arena.4096.purge";
    let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: this control takes no value and returns none.
    unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), none, no_len, none, 0) == 0 }
}

/// Goes on in the background: a child, in a session of its own, without a terminal. Before any
/// thread is started.
pub fn daemonize() -> std::io::Result<()> {
    // SAFETY: there is one thread, so that the child is a whole copy.
    match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error()),
        0 => {}
        _ => std::process::exit(0),
    }
    // SAFETY: the child leads no group of processes yet.
    unsafe { libc::setsid() };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        // SAFETY: both are open files of this process.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), standard) };
    }
    Ok(())
}

/// An error of the system in its own words, without Rust's number after them.
pub fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// The allocator's own report, in words.
pub fn allocator_report() -> String {
    let mut report = Vec::new();
    let options = tikv_jemalloc_ctl::stats_print::Options::default();
    // Writing to memory cannot fail; what there is, is shown.
    let _ = tikv_jemalloc_ctl::stats_print::stats_print(&mut report, options);
    String::from_utf8_lossy(&report).into_owned()
}

/// Sets how many connections may wait at a listening socket to be accepted.
pub fn set_backlog(socket: &impl std::os::fd::AsRawFd, count: i64) {
    let count = count.clamp(0, i64::from(i32::MAX)) as i32;
    // SAFETY: the descriptor is open; listening again only sets the number. If it is refused, the
    // number stays what it was.
    unsafe { libc::listen(socket.as_raw_fd(), count) };
}

/// Has the system probe an idle connection after so many seconds, and close it after three probes
/// without an answer; 0 = never. A refusal changes nothing.
pub fn keep_alive(socket: &impl std::os::fd::AsRawFd, seconds: u32) {
    if seconds == 0 {
        return;
    }
    let set = |level, name, value: u32| {
        let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is an int of that length, which all these options take.
        unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
        };
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds / 3).max(1));
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_is_one_threads_alone() {
        let run = || {
            let before = scheduling();
            let (true, Some(before)) = (shorten_slice(), before) else { return };
            let after = scheduling().expect("it was there before");
            assert_eq!((after.policy, after.nice), (before.policy, before.nice));
            // Kernels before 6.12 keep no slice.
            assert!(after.runtime_ns == SLICE_NS || after.runtime_ns == before.runtime_ns);
            let child = std::thread::spawn(scheduling).join().unwrap();
            assert_ne!(child.expect("as above").runtime_ns, SLICE_NS);
        };
        std::thread::spawn(run).join().unwrap();
    }
}
