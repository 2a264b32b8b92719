//! The three things the load generator asks of Linux that the standard library does not offer:
//! pinning a thread, a timer precise to microseconds, and the length of a clock tick.
//!
//! **Invariant:** all `unsafe` of this crate is here, and no pointer outlives its call.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

/// Lets the calling thread run on `core` only.
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such core"));
    }
    // SAFETY: a zeroed cpu_set_t is an empty set; CPU_SET writes inside it since `core` is below
    // CPU_SETSIZE; the kernel only reads it, and thread 0 is the caller.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Clock ticks per second, the unit of the times in `/proc/PID/stat`.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf only reads its argument.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// A timer that becomes readable when its time has come.
///
/// epoll's own timeout is in whole milliseconds, which at 100 000 requests per second would send
/// them in bursts of a hundred and charge the server for the wait.
#[derive(Debug)]
pub struct Timer {
    file: File,
}

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let fd = unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Timer { file: unsafe { File::from_raw_fd(fd) } })
    }

    /// Sets it to go off once, `delay` from now.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        // All zero would disarm the timer instead of firing it at once.
        let delay = delay.max(Duration::from_nanos(1));
        // SAFETY: itimerspec is plain numbers, for which zero is valid; the kernel reads `time`
        // during the call and is given no place to write the old one.
        let result = unsafe {
            let mut time: libc::itimerspec = mem::zeroed();
            time.it_value.tv_sec = delay.as_secs().min(1 << 30) as libc::time_t;
            time.it_value.tv_nsec = delay.subsec_nanos() as libc::c_long;
            libc::timerfd_settime(self.file.as_raw_fd(), 0, &time, std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes the expiry, so that the timer is not readable any more.
    pub fn clear(&self) {
        let mut expirations = [0; 8];
        // Nothing to read means that it has not gone off, which is what is wanted.
        let _ = (&self.file).read(&mut expirations);
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_core_that_cannot_be() {
        assert!(pin_current_thread(usize::MAX).is_err());
        assert!(pin_current_thread(1023).is_err());
    }

    #[test]
    fn ticks_are_sane() {
        assert!((1..=10_000).contains(&ticks_per_second()));
    }

    #[test]
    fn timer_can_be_set_and_cleared() {
        let timer = Timer::new().unwrap();
        timer.set(Duration::ZERO).unwrap();
        timer.set(Duration::from_secs(5)).unwrap();
        timer.clear();
    }
}
