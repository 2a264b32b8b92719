//! The rows of the option table; see [`crate::options`].

use crate::options::Kind::{Bool, Bytes, Enum, Int, Text};
use crate::options::Row;
use crate::options::When::{Always, Start};

const BIG: i64 = i64::MAX;

const fn row(
    name: &'static str,
    kind: crate::options::Kind,
    default: &'static str,
    when: crate::options::When,
    doc: &'static str,
) -> Row {
    Row { name, kind, default, when, doc }
}

/// Every option.
pub const TABLE: &[Row] = &[
    row("port", Int(0, 65535), "6379", Start, "TCP port for RESP, 0 = none."),
    row("bind", Text, "127.0.0.1 -::1", Start, "Addresses to listen on."),
    row("unixsocket", Text, "", Start, "Path of a unix socket for RESP."),
    row("unixsocketperm", Text, "", Start, "Permissions of the unix socket, in octal."),
    row("tls-port", Int(0, 65535), "0", Start, "TCP port for RESP over TLS, 0 = none."),
    row("tls-cert-file", Text, "", Start, "The server's certificate chain, PEM."),
    row("tls-key-file", Text, "", Start, "The server's private key, PEM."),
    row(
        "tls-ca-cert-file",
        Text,
        "",
        Start,
        "Certificates that clients' ones are checked by, PEM.",
    ),
    row(
        "tls-auth-clients",
        Enum(&["no", "yes", "optional"]),
        "yes",
        Start,
        "Whether TLS clients must show a certificate.",
    ),
    row("http-port", Int(0, 65535), "8080", Start, "Loopback port for HTTP, 0 = none."),
    row("threads", Int(1, 256), "1", Start, "Event loops."),
    row("databases", Int(1, 65536), "16", Start, "Number of databases."),
    row("maxclients", Int(1, 1_000_000), "10000", Always, "Clients at most."),
    row(
        "timeout",
        Int(0, i32::MAX as i64),
        "0",
        Always,
        "Seconds until an idle client is closed, 0 = never.",
    ),
    row(
        "tcp-keepalive",
        Int(0, i32::MAX as i64),
        "300",
        Always,
        "Seconds between keep-alive probes, 0 = none.",
    ),
    row(
        "tcp-backlog",
        Int(0, i32::MAX as i64),
        "511",
        Start,
        "Connections waiting to be accepted, at most.",
    ),
    row("requirepass", Text, "", Always, "Password of the default user."),
    row("protected-mode", Bool, "yes", Always, "Without a password, serve loopback clients only."),
    row(
        "maxmemory",
        Bytes(0, BIG),
        "0",
        Always,
        "Bytes in use at which keys are evicted or writes refused, 0 = no limit.",
    ),
    row(
        "maxmemory-policy",
        Enum(&[
            "noeviction",
            "allkeys-lru",
            "volatile-lru",
            "allkeys-lfu",
            "volatile-lfu",
            "allkeys-random",
            "volatile-random",
            "volatile-ttl",
        ]),
        "noeviction",
        Always,
        "Which keys go when maxmemory is reached.",
    ),
    row("proto-max-bulk-len", Bytes(1 << 20, BIG), "512mb", Always, "Longest string."),
    row(
        "client-query-buffer-limit",
        Bytes(1 << 20, BIG),
        "1gb",
        Always,
        "Bytes a client may have sent without being answered.",
    ),
    row(
        "slowlog-log-slower-than",
        Int(-1, BIG),
        "10000",
        Always,
        "Microseconds from which a command goes to the slow log, -1 = never.",
    ),
    row(
        "slowlog-max-len",
        Int(0, BIG),
        "128",
        Always,
        "Commands that the slow log keeps, at most.",
    ),
    row("hz", Int(1, 500), "10", Always, "How often background work is done, a second."),
];
