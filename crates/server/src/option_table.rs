//! The rows of the option table; see [`crate::options`]. Checks of options that are several words
//! are in [`crate::option_words`].

use crate::option_words::{
    bind, events, no_user_file, off, oom_values, output_limits, percentiles, primary, save,
    shutdown, user,
};
use crate::options::Kind::{Bool, Bytes, Enum, Int, Octal, Percent, Secret, Text, Words};
use crate::options::Row;
use crate::options::When::{Always, NoEffect, Protected, Start};

const BIG: i64 = i64::MAX;
const INT: i64 = i32::MAX as i64;
const GUARDED: &[&str] = &["no", "yes", "local"];

macro_rules! table {
    ($($section:literal {
        $($name:literal $(| $alias:literal)*:
            $kind:expr, $default:literal, $when:ident, $doc:literal;)*
    })*) => {
        /// Every option, grouped as `--help` shows them.
        pub const TABLE: &[Row] = &[$($(Row {
            name: $name,
            aliases: &[$($alias),*],
            kind: $kind,
            default: $default,
            when: $when,
            section: $section,
            doc: $doc,
        },)*)*];
    };
}

table! {
"Where clients come in" {
    "port": Int(0, 65535), "6379", Start, "TCP port for RESP, 0 = none.";
    "bind": Words(bind), "127.0.0.1 -::1", Start,
        "Addresses to listen on; * = all of IPv4, ::* = all of IPv6, a leading - = may fail.";
    "unixsocket": Text, "", Start, "Path of a unix socket for RESP.";
    "unixsocketperm": Octal(0o777), "0", Start,
        "Permissions of the unix socket, in octal; 0 = as the umask has it.";
    "protected-mode": Bool, "yes", Always, "Without a password, serve loopback clients only.";
    "tcp-backlog": Int(0, INT), "511", Start, "Connections that may wait to be accepted.";
    "tcp-keepalive": Int(0, INT), "300", Always, "Seconds between keep-alive probes, 0 = none.";
    "maxclients": Int(1, 1_000_000), "10000", Always, "Clients at most.";
    "timeout": Int(0, INT), "0", Always, "Seconds until an idle client is closed, 0 = never.";
    "bind-source-addr": Text, "", NoEffect, "Address that outgoing connections come from.";
    "socket-mark-id": Int(0, u32::MAX as i64), "0", NoEffect,
        "Mark of the sockets, for packet filters.";
    "max-new-connections-per-cycle": Int(1, 1000), "10", NoEffect,
        "Connections accepted in one turn.";
}
"TLS" {
    "tls-port": Int(0, 65535), "0", Start, "TCP port for RESP over TLS, 0 = none.";
    "tls-cert-file": Text, "", Start, "The server's certificate chain, PEM.";
    "tls-key-file": Text, "", Start, "The server's private key, PEM.";
    "tls-ca-cert-file": Text, "", Start, "Certificates that clients' ones are checked by, PEM.";
    "tls-auth-clients": Enum(&["no", "yes", "optional"]), "yes", Start,
        "Whether TLS clients must show a certificate.";
    "tls-ca-cert-dir": Text, "", NoEffect, "Folder of such certificates.";
    "tls-key-file-pass": Secret, "", NoEffect, "Password of the private key.";
    "tls-client-cert-file": Text, "", NoEffect, "Certificate for outgoing connections.";
    "tls-client-key-file": Text, "", NoEffect, "Private key for outgoing connections.";
    "tls-client-key-file-pass": Secret, "", NoEffect, "Password of that key.";
    "tls-dh-params-file": Text, "", NoEffect, "Diffie-Hellman parameters of old protocol versions.";
    "tls-protocols": Text, "", NoEffect, "Versions of TLS; 1.2 and 1.3 are served.";
    "tls-ciphers": Text, "", NoEffect, "Ciphers of TLS 1.2.";
    "tls-ciphersuites": Text, "", NoEffect, "Cipher suites of TLS 1.3.";
    "tls-prefer-server-ciphers": Bool, "no", NoEffect, "Whether the server chooses the cipher.";
    "tls-session-caching": Bool, "yes", NoEffect, "Whether sessions are resumed.";
    "tls-session-cache-size": Int(0, INT), "20480", NoEffect, "Sessions kept for that.";
    "tls-session-cache-timeout": Int(0, INT), "300", NoEffect, "Seconds that they are kept.";
    "tls-replication": Bool, "no", NoEffect, "TLS between primary and replicas.";
    "tls-cluster": Bool, "no", NoEffect, "TLS between the nodes of a cluster.";
    "max-new-tls-connections-per-cycle": Int(1, 1000), "1", NoEffect,
        "TLS connections accepted in one turn.";
}
"HTTP" {
    "http-port": Int(0, 65535), "8080", Start,
        "Port for HTTP: /livez, /readyz, /metrics; 0 = none.";
    "http-bind": Text, "127.0.0.1", Start, "Address that HTTP listens on.";
    "http-threads": Int(0, 256), "0", Start, "Threads of HTTP, 0 = as many as event loops.";
}
"Metered ingest" {
    "quota": Bool, "no", Start, "Whether metered ingest is served over HTTP, under /v1/.";
    "sql": Text, "sqlite:forebay.db", Start,
        "The SQL database of the services: sqlite:FILE (below dir), mysql://..., postgres://...";
    "quota-ack": Enum(&["sync", "group", "journal"]), "group", Start,
        "When a record is acknowledged: committed alone, with others, or in the server's journal.";
    "quota-group-rows": Int(1, 100_000), "256", Start, "Records of one shared transaction at most.";
    "quota-group-microseconds": Int(0, 1_000_000), "2000", Start,
        "How long a shared transaction waits for those who came with the one before.";
    "quota-backlog-rows": Int(1, 100_000_000), "100000", Start,
        "Records that may wait for the database; beyond, requests are answered 503.";
    "quota-wait-ms": Int(1, 3_600_000), "5000", Start,
        "How long a request waits for a database that does not answer before it is refused.";
    "quota-writers": Int(1, 256), "4", Start,
        "Connections that store side by side where each request has its own transaction (sync).";
    "quota-flush-ms": Int(0, 60_000), "20", Start,
        "How long the database's transactions wait for more records of the journal.";
    "quota-kept-days": Int(1, 3650), "32", Start,
        "Days that answers are kept for requests that come again under an Idempotency-Key.";
    "quota-session-seconds": Int(1, 31_536_000), "1800", Start,
        "Seconds after which an idle session ends.";
    "quota-root-key": Secret, "", Start,
        "The key that makes organisations; unless given, that in quota-root.key, made at need.";
    "quota-webhook-hosts": Text, "", Start,
        "Hosts that webhooks may be called at though their addresses are private.";
    "quota-older-headers": Bool, "no", Start,
        "Whether RateLimit-Limit, -Remaining and -Reset are sent as well.";
}
"Cached tables" {
    "tables": Bool, "no", Start, "Whether tables of the SQL database are served, under /tables/.";
    "tables-file": Text, "", Start,
        "JSON that declares tables, below dir; \"\" = those that the database has.";
    "tables-readers": Int(1, 1000), "4", Start, "Connections to the database that read.";
    "tables-queue": Int(1, 1_000_000), "10000", Start,
        "Queries that may wait; beyond, requests are answered 503.";
    "tables-wait-ms": Int(1, 3_600_000), "5000", Start,
        "How long a request waits for the database before it gets an old answer, or 503.";
    "tables-hot-bytes": Bytes(0, BIG), "64mb", Start,
        "Bytes of answers that lie ready to be sent, in front of the keyspace.";
    "tables-probe-ms": Int(0, 3_600_000), "50", Start,
        "How often changes made by others are looked for, 0 = never.";
    "tables-sample": Int(0, BIG), "1000", Start,
        "Of so many hits one is compared with the database, 0 = none.";
    "tables-jwt-secret": Secret, "", Start,
        "The secret that signs JSON web tokens (HS256), \"\" = none are taken.";
    "tables-jwt-issuer": Text, "urn:microsoft:windows-azure:zumo", Start, "Their iss, \"\" = any.";
    "tables-jwt-audience": Text, "urn:microsoft:windows-azure:zumo", Start,
        "Their aud, \"\" = any.";
    "tables-skip-version": Bool, "no", Start, "Whether zumo-api-version may be left out.";
    "tables-cors": Text, "", Start, "Origins whose scripts may call, * = all.";
}
"Sagas" {
    "saga": Bool, "no", Start,
        "Whether sagas are coordinated: dtm's API under /api/, our own under /v1/sagas.";
    "saga-durability": Enum(&["none", "everysec", "always"]), "everysec", Start,
        "What is on the disk before an answer or a call leaves: always = each transition.";
    "saga-api-key": Secret, "", Start, "The key that every request has to show, \"\" = none.";
    "saga-grpc-port": Int(0, 65535), "0", Start,
        "Port for dtm's gRPC service, on http-bind (dtm: 36790); 0 = none.";
    "saga-ca-cert-file": Text, "", Start,
        "Certificates that https branches are verified by, \"\" = the system's.";
    "saga-branch-hosts": Text, "", Start,
        "Hosts that branches may be called at, \"\" = all but link-local addresses.";
    "saga-local-steps": Bool, "no", Start,
        "Whether steps may be commands on the keyspace and statements on the database of sql.";
    "saga-finished-stream": Text, "", Start,
        "Stream with an entry for each transaction that ends or is a dead letter, \"\" = none.";
    "saga-webhook": Text, "", Start,
        "Address that is called for each transaction that ends or is a dead letter, \"\" = none.";
    "saga-archive": Bool, "no", Start,
        "Whether what is forgotten goes to the table saga_archive of the database of sql.";
    "saga-target-calls-max": Int(1, 65536), "64", Start,
        "Calls to one participant (host and port) at a time; the others wait for their turn.";
    "saga-target-failures-max": Int(0, INT), "10", Start,
        "Calls that reached nobody, one after the other, before a participant is given a pause.";
    "saga-timeout-seconds": Int(1, INT), "35", Start,
        "When a prepared transaction is given up, unless it says otherwise.";
    "saga-retry-seconds": Int(1, INT), "10", Start, "The first wait before another attempt.";
    "saga-retry-seconds-max": Int(1, INT), "300", Start, "The longest wait between attempts.";
    "saga-request-seconds": Int(1, INT), "3", Start, "How long a branch may take to answer.";
    "saga-tries-max": Int(0, INT), "100", Start,
        "Attempts that go wrong before a branch is a dead letter, 0 = never.";
    "saga-unfinished-max": Int(1, BIG), "1000000", Start, "Unfinished transactions at a time.";
    "saga-keep-seconds": Int(0, INT), "86400", Start, "How long a succeeded one is kept.";
    "saga-keep-failed-seconds": Int(0, INT), "2592000", Start, "How long a failed one is kept.";
    "saga-keep-max": Int(0, BIG), "2000000", Start, "Finished transactions that are kept.";
    "saga-keep-bytes": Bytes(0, BIG), "1gb", Start, "Bytes that finished ones may take.";
}
"SQL" {
    "sql-timeout-ms": Int(1, INT), "10000", Always,
        "How long a SQL command may run on its database's thread, or wait for it.";
    "sql-unit-timeout-ms": Int(1, INT), "1000", Always,
        "How long a SQL command may run inside MULTI or a script, which hold keys.";
    "sql-busy-wait-ms": Int(0, INT), "100", Always,
        "How long MULTI or a script waits for a database that others use, then: locked.";
    "sql-idle-timeout-ms": Int(1, INT), "5000", Always,
        "How long a transaction (SQL.BEGIN) or cursor waits for its client before it is ended.";
    "sql-transaction-timeout-ms": Int(1, INT), "60000", Always,
        "How long a transaction may be open.";
    "sql-sessions-max": Int(0, 10_000), "64", Always, "Transactions and cursors at once.";
    "sql-rows-max": Int(1, BIG), "10000000", Always, "Rows that a SQL command may answer.";
    "sql-bytes-max": Bytes(1024, BIG), "512mb", Always, "Bytes that a SQL command may answer.";
    "sql-database-bytes-max": Bytes(0, BIG), "0", Always,
        "Bytes that each SQL database may have, 0 = any: SQLITE_FULL beyond.";
    "sql-memory-max": Bytes(0, BIG), "1gb", Always,
        "Bytes that SQLite may take for a SQL command, 0 = any.";
    "sql-live-bytes-max": Bytes(1024, BIG), "256mb", Always,
        "Bytes of live keys that a SQL statement may read.";
    "sql-attach-dir": Text, "", Always,
        "The folder that SQL.ATTACH and SQL.LOAD may read files from, below dir; \"\" = dir.";
}
"The process" {
    "threads": Int(1, 256), "1", Start, "Event loops; unless set, as many as there are cores.";
    "databases": Int(1, 65536), "16", Start, "Number of databases.";
    "dir": Text, ".", Protected, "The working directory.";
    "daemonize": Bool, "no", Start, "Go on in the background.";
    "pidfile": Text, "", Start, "File that the process id is written to.";
    "supervised": Enum(&["upstart", "systemd", "auto", "no"]), "no", Start,
        "Who is told that the server is ready; systemd and auto by $NOTIFY_SOCKET.";
    "shutdown-timeout": Int(0, INT), "10", NoEffect,
        "Seconds that a shutdown waits for replicas; there are none.";
    "shutdown-on-sigint": Words(shutdown), "default", NoEffect,
        "What SIGINT does: always a clean end.";
    "shutdown-on-sigterm": Words(shutdown), "default", NoEffect,
        "What SIGTERM does: always a clean end.";
    "hz": Int(0, INT), "10", NoEffect,
        "How often background work was done, a second; it is done when due.";
    "dynamic-hz": Bool, "yes", NoEffect, "Whether that rate followed the number of clients.";
    "io-threads": Int(1, 128), "1", NoEffect, "Threads for sockets only; see threads.";
    "io-threads-do-reads": Bool, "no", NoEffect, "Whether those threads read as well.";
    "set-proc-title": Bool, "yes", NoEffect, "Whether the process's title is set.";
    "proc-title-template": Text, "{title} {listen-addr} {server-mode}", NoEffect,
        "How the title is made.";
    "always-show-logo": Bool, "no", NoEffect, "Whether a logo is shown at start.";
    "server_cpulist" | "server-cpulist": Text, "", NoEffect, "Cores of the main thread.";
    "bio_cpulist" | "bio-cpulist": Text, "", NoEffect, "Cores of the background threads.";
    "aof_rewrite_cpulist" | "aof-rewrite-cpulist": Text, "", NoEffect,
        "Cores of the append-only file's rewriting.";
    "bgsave_cpulist" | "bgsave-cpulist": Text, "", NoEffect, "Cores of saving.";
    "oom-score-adj": Enum(&["no", "yes", "relative", "absolute"]), "no", NoEffect,
        "Whether the kernel is told whom to end first when memory is short.";
    "oom-score-adj-values": Words(oom_values), "0 200 800", NoEffect, "What it is told.";
    "disable-thp": Bool, "yes", NoEffect, "Whether transparent huge pages are turned off.";
    "jemalloc-bg-thread": Bool, "yes", NoEffect,
        "Whether the allocator cleans up in the background.";
    "ignore-warnings": Text, "", NoEffect, "Warnings not to be given at start.";
    "crash-log-enabled": Bool, "yes", Always,
        "Whether a crash is logged, with a trace of the stack.";
    "use-exit-on-panic": Bool, "no", NoEffect, "Whether a failed assertion exits instead.";
    "crash-memcheck-enabled": Bool, "yes", NoEffect, "Whether memory is tested after a crash.";
    "locale-collate": Text, "", NoEffect, "Locale of comparisons; always by bytes.";
}
"Logging" {
    "loglevel": Enum(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", Always,
        "What is worth a line.";
    "logfile": Text, "", Start, "File to write to instead of standard output.";
    "log-format": Enum(&["text", "json", "logfmt"]), "text", Start, "How a line looks.";
    "syslog-enabled": Bool, "no", NoEffect, "Whether the system's log is written as well.";
    "syslog-ident": Text, "redis", NoEffect, "The name in the system's log.";
    "syslog-facility": Enum(&["user", "local0", "local1", "local2", "local3", "local4",
        "local5", "local6", "local7"]), "local0", NoEffect,
        "The facility in the system's log.";
}
"Security" {
    "requirepass": Secret, "", Always, "Password of the default user.";
    "enable-debug-command": Enum(GUARDED), "no", Start,
        "Whether DEBUG may be used: by nobody, by all, by local clients.";
    "enable-protected-configs": Enum(GUARDED), "no", Start,
        "Whether CONFIG SET may change dir and dbfilename.";
    "enable-module-command": Enum(GUARDED), "no", NoEffect,
        "Whether MODULE LOAD may be used; there are no modules.";
    "user": Words(user), "", Start,
        "A user of the access list; only the default one, with all rights.";
    "aclfile": Words(no_user_file), "", Start, "File of users; not there yet.";
    "acl-pubsub-default": Enum(&["allchannels", "resetchannels"]), "resetchannels", NoEffect,
        "Channels of a new user.";
    "acllog-max-len": Int(0, BIG), "128", NoEffect, "Refused commands that ACL LOG keeps.";
    "sanitize-dump-payload": Enum(&["no", "yes", "clients"]), "no", NoEffect,
        "How far RESTORE checks its input; always all of it.";
}
"Memory" {
    "maxmemory": Bytes(0, BIG), "0", Always,
        "Bytes in use at which keys are evicted or writes refused, 0 = no limit.";
    "maxmemory-policy": Enum(&["noeviction", "allkeys-lru", "volatile-lru", "allkeys-lfu",
        "volatile-lfu", "allkeys-random", "volatile-random", "volatile-ttl"]), "noeviction",
        Always,
        "Which keys go when maxmemory is reached.";
    "maxmemory-samples": Int(1, 64), "5", Always, "Keys compared to find one to evict.";
    "maxmemory-eviction-tenacity": Int(0, 100), "10", NoEffect,
        "How long eviction may hold up a command.";
    "maxmemory-clients": Percent(0, BIG), "0", Always,
        "Bytes that all clients' buffers may take, or percents of maxmemory; then the largest go.";
    "lfu-log-factor": Int(0, INT), "10", Always, "How slowly the counter of uses grows.";
    "lfu-decay-time": Int(0, INT), "1", Always,
        "Minutes after which the counter of uses shrinks by one.";
    "lazyfree-lazy-user-del": Bool, "no", Always, "DEL frees in the background, as UNLINK does.";
    "lazyfree-lazy-user-flush": Bool, "no", Always,
        "FLUSHALL and FLUSHDB free in the background unless told otherwise.";
    "lazyfree-lazy-eviction": Bool, "no", Always, "Evicted values are freed in the background.";
    "lazyfree-lazy-expire": Bool, "no", Always, "Expired values are freed in the background.";
    "lazyfree-lazy-server-del": Bool, "no", Always,
        "Overwritten values are freed in the background.";
    "replica-lazy-flush" | "slave-lazy-flush": Bool, "no", NoEffect,
        "A replica frees its old data in the background.";
    "activedefrag": Bool, "no", NoEffect, "Whether values are moved together.";
    "active-defrag-ignore-bytes": Bytes(1, BIG), "100mb", NoEffect, "Waste at which that begins.";
    "active-defrag-threshold-lower": Int(0, 1000), "10", NoEffect,
        "Waste in percent at which that begins.";
    "active-defrag-threshold-upper": Int(0, 1000), "100", NoEffect,
        "Waste in percent at which that is done hardest.";
    "active-defrag-cycle-min": Int(1, 99), "1", NoEffect, "Least CPU for that, in percent.";
    "active-defrag-cycle-max": Int(1, 99), "25", NoEffect, "Most CPU for that, in percent.";
    "active-defrag-max-scan-fields": Int(1, BIG), "1000", NoEffect, "Fields moved at a time.";
    "activerehashing": Bool, "yes", NoEffect, "Whether tables grow in the background.";
    "active-expire-effort": Int(1, 10), "1", NoEffect,
        "How hard due keys are sought; all are found.";
}
"Requests and replies" {
    "proto-max-bulk-len": Bytes(1 << 20, BIG), "512mb", Always, "Longest string.";
    "client-query-buffer-limit": Bytes(1 << 20, BIG), "1gb", Always,
        "Bytes that a client may have sent without being answered.";
    "client-output-buffer-limit": Words(output_limits),
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Always,
        "Per class: bytes unread at which a client is closed, bytes at which it is after so many \
         seconds.";
    "tracking-table-max-keys": Int(0, BIG), "1000000", NoEffect,
        "Keys tracked for clients' caches.";
    "notify-keyspace-events": Words(events), "", Always,
        "Which keyspace events are published, as letters.";
}
"Small encodings" {
    "hash-max-listpack-entries" | "hash-max-ziplist-entries": Int(0, BIG), "512", Always,
        "Fields of a hash in one block, at most.";
    "hash-max-listpack-value" | "hash-max-ziplist-value": Bytes(0, BIG), "64", Always,
        "Bytes of a field or value there, at most.";
    "list-max-listpack-size" | "list-max-ziplist-size": Int(i32::MIN as i64, INT), "-2", Always,
        "Elements of a list's node, or its bytes as a class: -1 = 4 kB to -5 = 64 kB.";
    "list-compress-depth": Int(0, INT), "0", NoEffect,
        "Nodes at a list's ends that are not compressed; none is.";
    "set-max-intset-entries": Int(0, BIG), "512", Always,
        "Members of a set of integers in one block, at most.";
    "set-max-listpack-entries": Int(0, BIG), "128", Always,
        "Members of a set in one block, at most.";
    "set-max-listpack-value": Bytes(0, BIG), "64", Always, "Bytes of a member there, at most.";
    "zset-max-listpack-entries" | "zset-max-ziplist-entries": Int(0, BIG), "128", Always,
        "Members of a sorted set in one block, at most.";
    "zset-max-listpack-value" | "zset-max-ziplist-value": Bytes(0, BIG), "64", Always,
        "Bytes of a member there, at most.";
    "hll-sparse-max-bytes": Bytes(0, BIG), "3000", Always,
        "Bytes of a HyperLogLog's sparse form, at most.";
    "stream-node-max-bytes": Bytes(0, BIG), "4096", Always, "Bytes of a stream's node, at most.";
    "stream-node-max-entries": Int(0, BIG), "100", Always, "Entries of a stream's node, at most.";
}
"Slow log and latency" {
    "slowlog-log-slower-than": Int(-1, BIG), "10000", Always,
        "Microseconds from which a command goes to the slow log, -1 = never.";
    "slowlog-max-len": Int(0, BIG), "128", Always, "Commands that the slow log keeps, at most.";
    "latency-monitor-threshold": Int(0, BIG), "0", Always,
        "Milliseconds from which LATENCY keeps an event, 0 = never.";
    "latency-tracking": Bool, "yes", Always, "Whether each command's latencies are counted.";
    "latency-tracking-info-percentiles": Words(percentiles), "50 99 99.9", Always,
        "The percentiles of INFO latencystats.";
    "watchdog-period": Int(0, INT), "0", NoEffect,
        "Milliseconds after which a stuck server logged where it stood.";
}
"Files" {
    "save": Words(save), "3600 1 300 100 60 10000", Always,
        "When to save: seconds and changes, in pairs.";
    "appendonly": Bool, "no", Always, "Whether every write is appended to a file.";
    "appendfsync": Enum(&["everysec", "always", "no"]), "everysec", Always,
        "When that file is made safe.";
    "appendfilename": Text, "appendonly.aof", Start, "Its name.";
    "appenddirname": Text, "appendonlydir", Start, "Its folder.";
    "no-appendfsync-on-rewrite": Bool, "no", Always,
        "Whether it is not made safe while it is rewritten.";
    "auto-aof-rewrite-percentage": Int(0, INT), "100", Always,
        "Growth in percent at which it is rewritten.";
    "auto-aof-rewrite-min-size": Bytes(0, BIG), "64mb", Always,
        "Bytes from which it is rewritten.";
    "aof-load-truncated": Bool, "yes", Always, "Whether a torn end is cut off at start.";
    "aof-use-rdb-preamble": Bool, "yes", Always, "Whether it begins with a snapshot.";
    "aof-timestamp-enabled": Bool, "no", Always, "Whether it has times in it.";
    "aof-load-corrupt-tail-max-size": Bytes(0, BIG), "0", Always,
        "Bytes of an end that makes no sense that are cut off at start, at most.";
    "aof-pending-limit": Bytes(1 << 16, BIG), "64mb", Always,
        "Bytes that may wait to be written to it before commands wait.";
    "aof-rewrite-incremental-fsync": Bool, "yes", NoEffect,
        "Whether rewriting makes it safe bit by bit.";
    "aof-disable-auto-gc": Bool, "no", Always, "Whether old files are kept.";
    "dbfilename": Text, "dump.rdb", Protected, "The snapshot's name.";
    "rdbcompression": Bool, "yes", Always, "Whether the snapshot is compressed.";
    "rdbchecksum": Bool, "yes", Always, "Whether it ends with a checksum.";
    "rdb-del-sync-files": Bool, "no", NoEffect, "Whether snapshots made for replicas are removed.";
    "rdb-save-incremental-fsync": Bool, "yes", Always, "Whether saving makes it safe bit by bit.";
    "snapshot-buffer-limit": Bytes(0, BIG), "0", Always,
        "Bytes of changed keys that may wait for a save; 0 = a 64th of memory, 1 to 32 MB.";
    "rdb-key-save-delay": Int(i32::MIN as i64, INT), "0", Always, "A delay for tests.";
    "key-load-delay": Int(i32::MIN as i64, INT), "0", Always, "A delay for tests.";
    "loading-process-events-interval-bytes": Bytes(1024, INT), "2mb", NoEffect,
        "Bytes loaded between two looks at clients.";
    "stop-writes-on-bgsave-error": Bool, "yes", Always,
        "Whether writes are refused while saving fails.";
}
"Replication: not there yet" {
    "replicaof" | "slaveof": Words(primary), "", Start, "The primary to follow; only NO ONE.";
    "masterauth": Secret, "", NoEffect, "The primary's password.";
    "masteruser": Text, "", NoEffect, "The user on the primary.";
    "replica-serve-stale-data" | "slave-serve-stale-data": Bool, "yes", NoEffect,
        "Whether a replica without its primary answers.";
    "replica-read-only" | "slave-read-only": Bool, "yes", NoEffect,
        "Whether a replica refuses writes.";
    "replica-priority" | "slave-priority": Int(0, INT), "100", NoEffect,
        "Which replica is promoted first.";
    "replica-announced": Bool, "yes", NoEffect, "Whether Sentinel tells of this replica.";
    "replica-announce-ip" | "slave-announce-ip": Text, "", NoEffect, "Address told to the primary.";
    "replica-announce-port" | "slave-announce-port": Int(0, 65535), "0", NoEffect,
        "Port told to the primary.";
    "replica-ignore-maxmemory" | "slave-ignore-maxmemory": Bool, "yes", NoEffect,
        "Whether a replica evicts nothing by itself.";
    "replica-ignore-disk-write-errors": Bool, "no", NoEffect,
        "Whether a replica goes on when its disk fails.";
    "repl-diskless-sync": Bool, "yes", NoEffect, "Whether snapshots go to replicas without a file.";
    "repl-diskless-sync-delay": Int(0, INT), "5", NoEffect,
        "Seconds to wait for more replicas before that.";
    "repl-diskless-sync-max-replicas": Int(0, INT), "0", NoEffect, "Replicas that end the wait.";
    "repl-diskless-load": Enum(&["disabled", "on-empty-db", "swapdb"]), "disabled", NoEffect,
        "Whether a replica loads without a file.";
    "repl-disable-tcp-nodelay": Bool, "no", NoEffect, "Whether replicas get fewer, larger packets.";
    "repl-ping-replica-period" | "repl-ping-slave-period": Int(1, INT), "10", NoEffect,
        "Seconds between pings to replicas.";
    "repl-timeout": Int(1, INT), "60", NoEffect, "Seconds until a link is given up.";
    "repl-backlog-size": Bytes(1, BIG), "1mb", NoEffect, "Bytes kept for replicas that come back.";
    "repl-backlog-ttl": Int(0, BIG), "3600", NoEffect,
        "Seconds that they are kept without any replica.";
    "min-replicas-to-write" | "min-slaves-to-write": Int(0, INT), "0", Always,
        "Replicas without which writes are refused.";
    "min-replicas-max-lag" | "min-slaves-max-lag": Int(0, INT), "10", Always,
        "Seconds that such a replica may lag, 0 = they are not asked for.";
    "propagation-error-behavior": Enum(&["ignore", "panic", "panic-on-replicas"]), "ignore",
        NoEffect,
        "What happens when a replica cannot follow.";
}
"Scripts" {
    "busy-reply-threshold" | "lua-time-limit": Int(0, BIG), "5000", Always,
        "Milliseconds after which a script counts as busy.";
    "lua-memory-limit": Bytes(1 << 20, BIG), "256mb", Always,
        "Bytes that the scripts, and as much again that the functions, of a thread may take.";
    "lua-enable-deprecated-api": Bool, "no", NoEffect, "Whether old names are there.";
}
"Cluster: not there yet" {
    "cluster-enabled": Words(off), "no", Start, "Whether this is a node of a cluster; only no.";
    "cluster-config-file": Text, "nodes.conf", NoEffect, "File of the cluster's state.";
    "cluster-port": Int(0, 65535), "0", NoEffect, "Port between nodes.";
    "cluster-node-timeout": Int(0, BIG), "15000", NoEffect,
        "Milliseconds until a node counts as gone.";
    "cluster-migration-barrier": Int(0, INT), "1", NoEffect, "Replicas that a primary keeps.";
        "cluster-replica-validity-factor" | "cluster-slave-validity-factor": Int(0, INT), "10",
        NoEffect,
        "How old a replica's data may be for it to be promoted.";
    "cluster-replica-no-failover" | "cluster-slave-no-failover": Bool, "no", NoEffect,
        "Whether this replica is never promoted.";
    "cluster-require-full-coverage": Bool, "yes", NoEffect,
        "Whether all slots must be served for any to be.";
    "cluster-allow-reads-when-down": Bool, "no", NoEffect,
        "Whether a cluster that is down answers reads.";
    "cluster-allow-pubsubshard-when-down": Bool, "yes", NoEffect,
        "Whether it serves shard channels then.";
    "cluster-allow-replica-migration": Bool, "yes", NoEffect,
        "Whether replicas move to primaries without one.";
    "cluster-link-sendbuf-limit": Bytes(0, BIG), "0", NoEffect,
        "Bytes that may wait between nodes.";
    "cluster-announce-ip": Text, "", NoEffect, "Address told to other nodes.";
    "cluster-announce-hostname": Text, "", NoEffect, "Name told to clients.";
    "cluster-announce-human-nodename": Text, "", NoEffect, "Name told in logs.";
    "cluster-announce-port": Int(0, 65535), "0", NoEffect, "Port told to other nodes.";
    "cluster-announce-tls-port": Int(0, 65535), "0", NoEffect, "TLS port told to other nodes.";
    "cluster-announce-bus-port": Int(0, 65535), "0", NoEffect,
        "Port between nodes told to other nodes.";
    "cluster-preferred-endpoint-type": Enum(&["ip", "hostname", "unknown-endpoint"]), "ip",
        NoEffect,
        "What clients are sent to.";
}
}
