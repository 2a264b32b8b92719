//! Snapshots on demand: SAVE, BGSAVE, LASTSAVE; and SHUTDOWN, which takes the last one.

use std::sync::Arc;

use commands::command::{
    ADMIN, ALLOW_BUSY, Command, DANGEROUS, FAST, Family, Group, LOADING, NO_MULTI, NO_SCRIPT, STALE,
};
use commands::context::Context;
use commands::error::Error;
use commands::words::is;
use resp::Args;

use crate::hub::Hub;
use crate::persistence::save::{self, AtEnd, NotBegun};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[
        Command {
            name: "SAVE",
            run: save,
            flags: ADMIN.with(NO_SCRIPT).with(NO_MULTI),
            summary: "Saves all data, and answers when that is done; other clients go on.",
            complexity: "O(N), N = keys",
            ..Command::DEFAULT
        },
        Command {
            name: "BGSAVE",
            run: bgsave,
            flags: ADMIN.with(NO_SCRIPT),
            usage: "[SCHEDULE]",
            summary: "Saves all data as it is now in the background.",
            ..Command::DEFAULT
        },
        Command {
            name: "LASTSAVE",
            run: lastsave,
            flags: FAST.with(LOADING).with(STALE).with(DANGEROUS),
            categories: Some(&["admin"]),
            summary: "Returns when data was saved last, in seconds since 1970.",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "SHUTDOWN",
            run: shutdown,
            flags: ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE).with(NO_MULTI).with(ALLOW_BUSY),
            usage: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
            summary: "Saves all data if `save` has a rule, and ends the server.",
            complexity: "O(N), N = keys, where it saves",
            ..Command::DEFAULT
        },
    ],
};

const IN_PROGRESS: Error = Error::text("ERR Background save already in progress");

fn save(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = Arc::clone(&Hub::of(cx.host).shared);
    match save::save(&shared) {
        Ok(()) => {
            tracing::info!("DB saved on disk");
            cx.out.ok();
            Ok(())
        }
        Err(text) if text.starts_with("Background save") => Err(IN_PROGRESS),
        Err(text) => {
            let path = save::path(&shared);
            tracing::warn!("Write error saving DB on disk ({}): {text}", path.display());
            Err(Error::text("ERR"))
        }
    }
}

fn bgsave(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let schedules = match args.get(1) {
        None => false,
        Some(word) if args.len() == 2 && is(word, "SCHEDULE") => true,
        Some(_) => return Err(Error::SYNTAX),
    };
    let shared = Arc::clone(&Hub::of(cx.host).shared);
    // Looked at first: it may have ended by the time that the save is found to be in its way.
    let is_ending = shared.aof.is_ending();
    match save::begin(&shared) {
        Ok(()) => cx.out.simple("Background saving started"),
        Err(NotBegun::InProgress) => return Err(IN_PROGRESS),
        Err(NotBegun::Busy) if is_ending => {
            save::schedule(&shared);
            cx.out.simple("Background saving started");
        }
        Err(NotBegun::Busy) if schedules => {
            save::schedule(&shared);
            cx.out.simple("Background saving scheduled");
        }
        Err(NotBegun::Busy) => {
            return Err(Error::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
                 SCHEDULE in order to schedule a BGSAVE whenever possible.",
            ));
        }
        Err(NotBegun::NoThread) => return Err(Error::text("ERR")),
    }
    Ok(())
}

fn lastsave(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let seconds = Hub::of(cx.host).shared.persistence.last_save_s();
    cx.out.int(seconds);
    Ok(())
}

fn shutdown(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (mut saves, mut skips, mut aborts, mut now, mut force) = Default::default();
    for word in args.iter().skip(1) {
        match word {
            word if is(word, "SAVE") => saves = true,
            word if is(word, "NOSAVE") => skips = true,
            word if is(word, "ABORT") => aborts = true,
            word if is(word, "NOW") => now = true,
            word if is(word, "FORCE") => force = true,
            _ => return Err(Error::SYNTAX),
        }
    }
    if saves && skips || aborts && (saves || skips || now || force) {
        return Err(Error::SYNTAX);
    }
    if aborts {
        return Err(Error::text("ERR No shutdown in progress."));
    }
    let what = match (saves, skips) {
        (true, _) => AtEnd::Save,
        (_, true) => AtEnd::NoSave,
        _ => AtEnd::AsConfigured,
    };
    let hub = Hub::of(cx.host);
    tracing::info!("User requested shutdown...");
    if save::finish(&hub.shared, what).is_err() && !force {
        return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    // No reply: the client sees the connection close.
    hub.peer().closes = true;
    hub.shared.stop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    fn folder(name: &str) -> String {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        path.to_string_lossy().into_owned()
    }

    #[test]
    fn a_flush_right_behind_bgsave_stops_it() {
        let folder = folder("flush");
        let mut server = Server::new(&[("save", ""), ("rdb-key-save-delay", "1000000")]);
        server.shared.options.set("dbfilename", &[&format!("{folder}/x.rdb")]).expect("any text");
        for key in 0..100 {
            server.run(&format!("SET key:{key} v"));
        }
        assert_eq!(server.run("BGSAVE"), "+Background saving started");
        // A rewrite that is asked for now has to wait, and INFO says so at once.
        server.shared.aof.ask_rewrite(false);
        assert!(server.run("INFO persistence").contains("aof_rewrite_scheduled:1"));
        assert_eq!(server.run("FLUSHALL"), "+OK");
        let started = std::time::Instant::now();
        while server.shared.persistence.is_saving() {
            assert!(started.elapsed().as_secs() < 20, "it goes on");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(crate::persistence::changes(&server.shared) >= 100);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn what_was_saved_is_reloaded() {
        let folder = folder("save");
        let mut server = Server::new(&[("enable-debug-command", "yes")]);
        server.shared.options.set("dbfilename", &[&format!("{folder}/x.rdb")]).expect("any text");
        server.check(&[
            ("SET k v", "+OK"),
            ("RPUSH l a b 3", ":3"),
            ("SELECT 3", "+OK"),
            ("SADD s 1 2 3", ":3"),
            ("DEBUG RELOAD", "+OK"),
            ("SMEMBERS s", "*3 $1 1 $1 2 $1 3"),
            ("SELECT 0", "+OK"),
            ("LRANGE l 0 -1", "*3 $1 a $1 b $1 3"),
            ("DBSIZE", ":2"),
            ("SET more x", "+OK"),
            ("DEBUG RELOAD NOSAVE", "+OK"),
            ("DBSIZE", ":2"),
            ("SET k other", "+OK"),
            ("DEBUG RELOAD NOSAVE NOFLUSH MERGE", "+OK"),
            ("GET k", "$1 v"),
            ("SAVE", "+OK"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
            ("SHUTDOWN x", "-ERR syntax error"),
            ("BGSAVE x", "-ERR syntax error"),
        ]);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn writes_are_refused_while_saving_fails() {
        let folder = folder("fail");
        let mut server = Server::new(&[]);
        let name = format!("{folder}/none/x.rdb");
        server.shared.options.set("dbfilename", &[&name]).expect("any text");
        server.check(&[("SET k v", "+OK"), ("SAVE", "-ERR")]);
        assert!(server.run("SET k w").starts_with("-MISCONF Redis is configured to save RDB"));
        assert_eq!(server.run("GET k"), "$1 v");
        std::fs::create_dir(format!("{folder}/none")).expect("a temporary folder");
        server.check(&[("SAVE", "+OK"), ("SET k w", "+OK")]);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn shutdown_stops_the_loops() {
        let mut server = Server::new(&[]);
        assert_eq!(server.run("SHUTDOWN NOSAVE"), "");
        assert!(server.shared.is_stopping.load(std::sync::atomic::Ordering::Relaxed));
    }
}
