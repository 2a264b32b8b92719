//! A server on a disk that fails: nothing it acknowledged may be missing from what a crash at that
//! moment leaves behind, it refuses writes in Redis's words while the disk fails, and goes on by
//! itself once it works again.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::{Client, Server, encode, eventually, line};
use persist::disk::{Call, FailingDisk, Fault, Plan};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const WRITES: usize = 5;
const LOG_FAILS: &str = "-MISCONF Errors writing to the AOF file: No space left on device";
const SAVE_FAILS: &str = "-MISCONF Redis is configured to save RDB snapshots, but";

/// A folder that goes with the test.
struct Folder(PathBuf);

/// One test at a time: `dir` is the folder that the whole process works in.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-server-faults-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a crash at this moment would leave behind.
fn copy_log(from: &Path) -> Folder {
    let copy = Folder::new();
    let folder = copy.0.join("appendonlydir");
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(from.join("appendonlydir")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    copy
}

fn logging(disk: &FailingDisk, folder: &Folder) -> Server {
    let options =
        [("dir", folder.text()), ("appendonly", "yes"), ("appendfsync", "always"), ("save", "")];
    Server::on_disk(Arc::new(disk.clone()), 2, &options)
}

fn has(client: &mut Client, section: &str, field: &str) -> bool {
    client.call(&format!("INFO {section}")).lines().any(|line| line == field)
}

/// Writes through one fault; what was acknowledged must be in a crash's remains, and all of what
/// was refused must not.
fn write_through(plan: Plan) -> u64 {
    let (disk, folder) = (FailingDisk::default(), Folder::new());
    let server = logging(&disk, &folder);
    let [mut client] = server.clients();
    disk.set(Some(plan));
    let mut acknowledged = Vec::new();
    for number in 0..WRITES {
        eventually("a write is taken", || {
            let reply = client.call(&format!("RPUSH list {number}"));
            let is_taken = reply == (number + 1).to_string();
            assert!(is_taken || reply.starts_with("-MISCONF Errors writing"), "{plan:?}: {reply}");
            is_taken
        });
        acknowledged.push(number.to_string());
    }
    let failed = disk.counts().1;
    let wanted = format!("[{}]", acknowledged.join(" "));
    assert_eq!(client.call("LRANGE list 0 -1"), wanted);
    let crashed = copy_log(&folder.0);
    let again = logging(&FailingDisk::default(), &crashed);
    let [mut reader] = again.clients();
    assert_eq!(reader.call("LRANGE list 0 -1"), wanted, "{plan:?}");
    failed
}

#[test]
fn every_write_and_sync_of_the_log_fails_once() {
    let _alone = alone();
    let mut failed = 0;
    let faults = [Fault::Error(ENOSPC), Fault::Error(EIO), Fault::Short, Fault::Torn(ENOSPC)];
    for (call, fault) in faults
        .map(|fault| (Call::Write, fault))
        .into_iter()
        .chain([(Call::Sync, Fault::Error(EIO)), (Call::Sync, Fault::Error(ENOSPC))])
    {
        for first in 0..WRITES as u64 {
            failed += write_through(Plan { call: Some(call), first, count: 1, fault });
        }
    }
    assert_eq!(failed, 6 * WRITES as u64, "every one of them failed");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let _alone = alone();
    for call in [Call::Write, Call::Sync] {
        let (disk, folder) = (FailingDisk::default(), Folder::new());
        let server = logging(&disk, &folder);
        let [mut first, mut second] = server.clients();
        assert_eq!(first.call("SET before 1"), "OK");
        let always =
            Plan { call: Some(call), first: 0, count: u64::MAX, fault: Fault::Error(ENOSPC) };
        disk.set(Some(always));
        first.send(&line("SET held 1"));
        eventually("the log fails", || {
            has(&mut second, "persistence", "aof_last_write_status:err")
        });
        assert!(first.is_silent(), "what is not safe is not acknowledged");
        let refused = second.call("SET after 1");
        assert!(refused.starts_with(LOG_FAILS), "{refused}");
        assert!(second.call("PING").starts_with(LOG_FAILS));
        // A reader may not see what a crash would take back: its answer is late as well.
        second.send(&[line("GET held"), line("EXISTS after")].concat());
        assert!(second.is_silent() && first.is_silent(), "{call:?}");
        disk.set(None);
        assert_eq!(first.reply(), "OK");
        assert_eq!([second.reply(), second.reply()], ["1", "0"]);
        eventually("writes are taken again", || second.call("SET after 2") == "OK");
        assert!(has(&mut second, "persistence", "aof_last_write_status:ok"));
        let crashed = copy_log(&folder.0);
        let again = logging(&FailingDisk::default(), &crashed);
        let [mut reader] = again.clients();
        assert_eq!(reader.call("MGET before held after"), "[1 1 2]");
    }
}

fn save(client: &mut Client, status: &str) -> bool {
    assert_eq!(client.call("BGSAVE"), "Background saving started");
    eventually("the save ends", || has(client, "persistence", "rdb_bgsave_in_progress:0"));
    has(client, "persistence", &format!("rdb_last_bgsave_status:{status}"))
}

#[test]
fn a_failed_save_leaves_the_old_file_and_stops_writes() {
    let _alone = alone();
    let (disk, folder) = (FailingDisk::default(), Folder::new());
    let options = [("dir", folder.text()), ("save", "")];
    let server = Server::on_disk(Arc::new(disk.clone()), 2, &options);
    let [mut client] = server.clients();
    let file = folder.0.join("dump.rdb");
    // Only a server that is to save by rules refuses writes when it cannot.
    client.send(&encode(&["CONFIG", "SET", "save", "3600 1000000"]));
    assert_eq!(client.reply(), "OK");
    client.check(&[("SET old 1", "OK"), ("SAVE", "OK")]);
    let mut round = 0;
    for call in [Call::Open, Call::Write, Call::Sync, Call::Rename] {
        for fault in [Fault::Error(ENOSPC), Fault::Torn(EIO)] {
            for first in 0.. {
                let before = std::fs::read(&file).unwrap();
                round += 1;
                assert_eq!(client.call(&format!("SET new {round}")), "OK");
                disk.set(Some(Plan { call: Some(call), first, count: 1, fault }));
                let has_failed = save(&mut client, "err");
                let failed = disk.counts().1;
                disk.set(None);
                assert_eq!(has_failed, failed == 1, "{call:?} {first} {fault:?}");
                if failed == 0 {
                    assert!(first > 0, "{call:?} is never called");
                    break;
                }
                assert_eq!(std::fs::read(&file).unwrap(), before, "{call:?} {first}");
                let names = std::fs::read_dir(&folder.0).unwrap().count();
                assert_eq!(names, 1, "nothing half written stays");
                let refused = client.call("SET new 0");
                assert!(refused.starts_with(SAVE_FAILS), "{refused}");
                assert_eq!(client.call("GET new"), round.to_string());
                assert!(save(&mut client, "ok"));
            }
        }
    }
    disk.set(Some(Plan { call: None, first: 0, count: 1, fault: Fault::Error(EIO) }));
    assert!(save(&mut client, "err"));
    client.check(&[("CONFIG SET stop-writes-on-bgsave-error no", "OK"), ("SET new 0", "OK")]);
    disk.set(None);
    assert!(save(&mut client, "ok"));
    let again = Server::with(2, &options);
    let [mut reader] = again.clients();
    assert_eq!(reader.call("MGET old new"), "[1 0]");
}
