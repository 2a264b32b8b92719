//! Whose CPU time an operation costs: finds the process behind an address and reads its time.
//!
//! A listening socket has an inode in `/proc/net/{tcp,tcp6,unix}`; the process that has it open
//! has a link to that inode among `/proc/PID/fd`. Its time is read from the scheduler's own
//! nanosecond counters (`/proc/PID/task/*/schedstat`), and where the kernel keeps none, from
//! `/proc/PID/stat`, whose unit is 10 ms.
//!
//! Only processes of this machine can be seen, and those of other users only by root: everything
//! here answers `None` where it cannot know.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::sys;

/// Where CPU time is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// All threads of a process.
    Process(u32),
    /// A process with its children, those that have ended included: a server that has a process for
    /// each connection.
    Family(u32),
    /// One thread of this process, as the built-in null server is.
    Thread(u32),
}

impl CpuSource {
    /// CPU time used so far, in nanoseconds.
    pub fn cpu_ns(self) -> Option<u64> {
        match self {
            CpuSource::Process(pid) => process_cpu_ns(pid),
            CpuSource::Family(pid) => family_cpu_ns(pid),
            CpuSource::Thread(tid) => schedstat_ns(&format!("/proc/self/task/{tid}/schedstat")),
        }
    }
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn own_thread_cpu_ns() -> Option<u64> {
    schedstat_ns("/proc/thread-self/schedstat")
}

/// The kernel's number of the calling thread.
pub fn own_thread_id() -> Option<u32> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// The process that listens on a TCP address of this machine.
pub fn pid_listening_on(address: SocketAddr) -> Option<u32> {
    let mut inodes = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        inodes.extend(listening_inodes(&fs::read_to_string(table).unwrap_or_default(), address));
    }
    pid_holding(&inodes)
}

/// The process that listens on a unix socket.
pub fn pid_listening_on_path(path: &Path) -> Option<u32> {
    let wanted = path.canonicalize().ok()?;
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    // Num RefCount Protocol Flags Type St Inode Path; the flag 0x10000 marks a listener.
    let inodes: Vec<u64> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, flags, _, _, inode, bound, ..] = fields[..] else { return None };
            let listens = u32::from_str_radix(flags, 16).ok()? & 0x1_0000 != 0;
            let bound = Path::new(bound).canonicalize().ok()?;
            if listens && bound == wanted { inode.parse().ok() } else { None }
        })
        .collect();
    pid_holding(&inodes)
}

/// Inodes of the sockets in a `/proc/net/tcp` table that listen on the address's port.
fn listening_inodes(table: &str, address: SocketAddr) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let mut inodes = Vec::new();
    for line in table.lines().skip(1) {
        // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
        let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
        if state == LISTEN && port == Some(address.port()) {
            inodes.extend(inode.parse::<u64>().ok());
        }
    }
    inodes
}

fn pid_holding(inodes: &[u64]) -> Option<u32> {
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|link| {
                link.to_str().is_some_and(|link| wanted.iter().any(|w| w == link))
            })
        });
        if holds {
            return Some(pid);
        }
    }
    None
}

fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut total = 0;
    let mut threads_counted = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if let Some(ns) = schedstat_ns(&task.path().join("schedstat").to_string_lossy()) {
            total += ns;
            threads_counted += 1;
        }
    }
    if threads_counted > 0 && total > 0 {
        return Some(total);
    }
    stat_cpu_ns(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn family_cpu_ns(pid: u32) -> Option<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let alive = children.split_whitespace().filter_map(|child| process_cpu_ns(child.parse().ok()?));
    let ended = stat_ns(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, ENDED_FIELD)?;
    Some(process_cpu_ns(pid)? + ended + alive.sum::<u64>())
}

/// First field of a schedstat file: time on the CPU in nanoseconds.
fn schedstat_ns(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Where a stat file has the time of the process itself and of children that have ended: fields
/// after its name, each the first of two (user, system).
const OWN_FIELD: usize = 11;
const ENDED_FIELD: usize = 13;

fn stat_cpu_ns(stat: &str) -> Option<u64> {
    stat_ns(stat, OWN_FIELD)
}

fn stat_ns(stat: &str, field: usize) -> Option<u64> {
    // The second field is the name in parentheses and may itself hold spaces and parentheses.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(field);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * (1_000_000_000 / sys::ticks_per_second()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn finds_itself_by_the_port_it_listens_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(pid_listening_on(listener.local_addr().unwrap()), Some(std::process::id()));
    }

    #[test]
    fn a_port_nobody_listens_on_has_no_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(pid_listening_on(address), None);
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let source = CpuSource::Thread(own_thread_id().unwrap());
        let before = source.cpu_ns().unwrap();
        let mut x = 1_u64;
        for i in 0..3_000_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(source.cpu_ns().unwrap() > before);
        assert!(CpuSource::Process(std::process::id()).cpu_ns().unwrap() > 0);
    }

    #[test]
    fn a_family_is_more_than_its_head() {
        let me = std::process::id();
        let own = CpuSource::Process(me).cpu_ns().unwrap();
        assert!(CpuSource::Family(me).cpu_ns().unwrap() >= own);
    }

    #[test]
    fn stat_with_an_odd_process_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0";
        let tick_ns = 1_000_000_000 / sys::ticks_per_second();
        assert_eq!(stat_cpu_ns(stat), Some(42 * tick_ns));
        let stat = stat.replace("30 12 0 0", "30 12 5 6");
        assert_eq!(stat_ns(&stat, ENDED_FIELD), Some(11 * tick_ns));
    }
}
