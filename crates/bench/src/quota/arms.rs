//! The arms: what each does for a record, what has to be there before, and what must be true
//! afterwards.

use std::path::Path;
use std::time::{Duration, Instant};

use backends::address;
use resp::reply::Value;
use services::database::{Database, DatabaseError, Statement};

use super::Load;
use super::http::Connection;
use super::ledger::Ledger;
use crate::client::Client;
use crate::http_message::{Ask, HttpTraffic, Wanted};
use crate::own_server::OwnServer;
use crate::process::CpuSource;
use crate::target::{Address, Target, TargetKind};

/// How a quota is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// In SQL alone.
    Sql,
    /// The account's recipe.
    Redis,
    /// By Forebay, each record with a transaction of its own.
    Sync,
    /// By Forebay, those who wait together in one.
    Group,
    /// By Forebay, acknowledged by its journal.
    Journal,
    /// As [`Arm::Group`], many records a request: what the recipe has no door for.
    Batch,
}

/// Records of a request of [`Arm::Batch`].
pub const BATCH_RECORDS: u32 = 100;

impl Arm {
    /// All of them.
    pub const ALL: [Arm; 6] =
        [Arm::Sql, Arm::Redis, Arm::Sync, Arm::Group, Arm::Journal, Arm::Batch];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Arm::Sql => "sql",
            Arm::Redis => "redis",
            Arm::Sync => "forebay:sync",
            Arm::Group => "forebay:group",
            Arm::Journal => "forebay:journal",
            Arm::Batch => "forebay:batch",
        }
    }

    /// Records that one request has.
    pub const fn records_each(self) -> u32 {
        if matches!(self, Arm::Batch) { BATCH_RECORDS } else { 1 }
    }
}

/// The clients of an arm.
pub enum Clients<'a> {
    /// As the account's: each a thread that asks and waits.
    Threads(Vec<Box<dyn Recorder>>),
    /// Connections to Forebay, driven by one thread.
    Http(&'a Target, HttpTraffic),
}

/// One client of the account.
pub trait Recorder: Send {
    /// Stores the record with this number for an organisation, and counts it.
    fn record(&mut self, index: u32, org: u32) -> Result<(), String>;
}

/// What an arm is given.
pub struct Stage<'a> {
    /// Which.
    pub arm: Arm,
    /// Who sends for whom.
    pub load: Load,
    /// The database's address.
    pub sql: &'a str,
    /// The Redis.
    pub redis: Option<&'a Target>,
    /// Forebay's program.
    pub server: &'a Path,
    /// Where Forebay is pinned to.
    pub core: Option<usize>,
    /// Connects to a Redis.
    pub connect: &'a dyn Fn(&Target) -> Result<Client, String>,
}

/// An arm that is ready to run.
pub struct Scene<'a> {
    stage: Stage<'a>,
    limit: i64,
    forebay: Option<Forebay>,
}

struct Forebay {
    server: OwnServer,
    /// Where it listens for HTTP.
    door: Target,
    port: u16,
    root: String,
    /// A key for each organisation.
    secrets: Vec<String>,
}

/// How long the database may take to get what the journal has.
const SETTLE: Duration = Duration::from_secs(60);
/// How long a server may take to listen for HTTP after it listens for commands.
const START: Duration = Duration::from_secs(20);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(2);

fn counter_key(org: u32) -> String {
    format!("bench:quota:{org}")
}

impl<'a> Stage<'a> {
    /// Starts what the arm needs and fills it.
    pub fn set(self, records: u32) -> Result<Scene<'a>, String> {
        let mode = match self.arm {
            Arm::Sql => None,
            Arm::Redis => {
                let target = self.redis.ok_or("no Redis was given")?;
                let mut client = (self.connect)(target)?;
                for org in 0..self.load.orgs {
                    let set = client.command(&["SET", &counter_key(org), "0"]);
                    set.map_err(|error| error.to_string())?;
                }
                None
            }
            Arm::Sync => Some("sync"),
            Arm::Group | Arm::Batch => Some("group"),
            Arm::Journal => Some("journal"),
        };
        let limit = i64::from(records);
        let forebay = mode.map(|mode| Forebay::start(&self, mode, limit)).transpose()?;
        Ok(Scene { stage: self, limit, forebay })
    }
}

impl Forebay {
    fn start(stage: &Stage<'_>, mode: &str, limit: i64) -> Result<Forebay, String> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0");
        let port = listener.and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let text = port.to_string();
        let root = "fbroot_of_the_bench".to_string();
        let options = [
            "--quota",
            "yes",
            "--quota-ack",
            mode,
            "--sql",
            stage.sql,
            "--http-port",
            &text,
            "--quota-root-key",
            &root,
            "--loglevel",
            "warning",
        ];
        let server = OwnServer::start_program(stage.server, "forebay", stage.core, &options);
        let server = server.map_err(|error| error.to_string())?;
        // It listens for HTTP last.
        let began = Instant::now();
        let mut connection = loop {
            match Connection::to(port) {
                Ok(connection) => break connection,
                Err(error) if began.elapsed() > START => return Err(error),
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        let mut secrets = Vec::new();
        for org in 0..stage.load.orgs {
            let plan = format!("{{\"limit\":{limit}}}");
            connection.ask("PUT", &format!("/v1/orgs/org{org}/quota"), &root, &plan, 201)?;
            let path = format!("/v1/orgs/org{org}/keys");
            let made = connection.ask("POST", &path, &root, "{}", 201)?;
            let made: serde_json::Value =
                serde_json::from_str(&made).map_err(|error| error.to_string())?;
            secrets.push(made["secret"].as_str().ok_or("a key without a secret")?.to_string());
        }
        // Keys and counters are loaded once in a server's life.
        for secret in &secrets {
            connection.ask("GET", "/v1/quota", secret, "", 200)?;
        }
        let door = Target {
            name: stage.arm.name().into(),
            address: Address::Tcp("127.0.0.1".into(), port),
            user: None,
            password: None,
            kind: TargetKind::Server,
            cpu: server.target.cpu,
        };
        Ok(Forebay { server, door, port, root, secrets })
    }

    /// Requests that record `each` records, for organisations by chance.
    fn traffic(&self, each: u32) -> HttpTraffic {
        let (kind, body) = match each {
            1 => ("application/json", "{\"index\":\"{seq}\"}".to_string()),
            _ => ("application/x-ndjson", "{\"index\":\"{seq}\"}\n".repeat(each as usize)),
        };
        let ask = |secret: &String| Ask {
            method: "POST".into(),
            path: "/v1/events".into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {secret}")),
                ("content-type".into(), kind.into()),
            ],
            body: Some(body.clone().into_bytes()),
            is_kept: true,
        };
        let asks: Vec<Ask> = self.secrets.iter().map(ask).collect();
        let text = format!("{{\"accepted\":{each},").into_bytes();
        let wanted =
            Wanted { statuses: vec![(200, 200), (202, 202)], text: Some(text), body: None };
        HttpTraffic::new(&asks, "bench", 0.0, 1, wanted)
    }
}

impl Scene<'_> {
    /// The clients, connected where they are threads.
    pub fn clients(&self) -> Result<Clients<'_>, String> {
        if let Some(forebay) = &self.forebay {
            let traffic = forebay.traffic(self.stage.arm.records_each());
            return Ok(Clients::Http(&forebay.door, traffic));
        }
        let recorders = (0..self.stage.load.clients).map(|_| self.recorder());
        Ok(Clients::Threads(recorders.collect::<Result<_, _>>()?))
    }

    fn recorder(&self) -> Result<Box<dyn Recorder>, String> {
        let limit = self.limit;
        let connect = address::open(self.stage.sql, Path::new("."))?;
        let insert = match connect.dialect() {
            services::database::Dialect::Mysql => "INSERT INTO storage (`index`) VALUES (?)",
            _ => "INSERT INTO storage (\"index\") VALUES (?)",
        };
        let database = connect.connect().map_err(|error| error.to_string())?;
        let table = Table { database, insert };
        match (self.stage.arm, self.stage.redis) {
            (Arm::Redis, Some(target)) => {
                let client = (self.stage.connect)(target)?;
                Ok(Box::new(Counted { table, client, limit }))
            }
            _ => Ok(Box::new(Stored { table, limit })),
        }
    }

    /// Whose CPU time counts beside the database's.
    pub fn cpu(&self) -> Option<CpuSource> {
        match (&self.forebay, self.stage.arm) {
            (Some(forebay), _) => forebay.server.target.cpu,
            (None, Arm::Redis) => self.stage.redis.and_then(|target| target.cpu),
            (None, _) => None,
        }
    }

    /// What comes after the last record and belongs to the time of a run.
    pub fn settle(&mut self, ledger: &mut Ledger, records: u32) -> Result<(), String> {
        match (self.stage.arm, self.stage.redis) {
            (Arm::Redis, Some(target)) => {
                let mut client = (self.stage.connect)(target)?;
                for org in 0..self.stage.load.orgs {
                    ledger.flush(org, read(&mut client, "GET", org)?)?;
                }
                Ok(())
            }
            (Arm::Journal, _) => {
                let began = Instant::now();
                while ledger.counted_records()? < i64::from(records) {
                    if began.elapsed() > SETTLE {
                        return Err("the journal has not come into the database".into());
                    }
                    std::thread::sleep(LOOK);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is not as it must be.
    pub fn check(&self, ledger: &mut Ledger, records: u32) -> Result<Vec<String>, String> {
        let want = [i64::from(records); 3];
        let found = match &self.forebay {
            Some(_) => ledger.of_service()?,
            None => ledger.of_account()?,
        };
        let mut wrong = Vec::new();
        if found != want {
            let [rows, different, counted] = found;
            wrong.push(format!(
                "{records} records accepted, {rows} rows, {different} different, {counted} counted"
            ));
        }
        if let Some(forebay) = &self.forebay {
            let mut connection = Connection::to(forebay.port)?;
            let report = connection.ask("GET", "/v1/verify", &forebay.root, "", 200)?;
            if !report.contains("\"differences\":[]") {
                wrong.push(report);
            }
            // The limit is reached: nothing more is let in.
            if self.stage.load.orgs == 1 {
                let secret = &forebay.secrets[0];
                connection.ask("POST", "/v1/events", secret, "{\"index\":-1}", 429)?;
            }
        }
        Ok(wrong)
    }
}

fn read(client: &mut Client, command: &str, org: u32) -> Result<i64, String> {
    let reply = client.command(&[command, &counter_key(org)]).map_err(|error| error.to_string())?;
    let number = match &reply {
        Value::Integer(number) => Some(*number),
        reply => reply
            .as_bytes()
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.parse().ok()),
    };
    number.ok_or_else(|| "a counter that is no number".to_string())
}

/// The tables of the account.
struct Table {
    database: Box<dyn Database>,
    insert: &'static str,
}

impl Table {
    fn run(&mut self, sql: &str, number: u32) -> Result<(), String> {
        let statement = Statement::run(sql, vec![i64::from(number).into()]);
        let began = Instant::now();
        loop {
            // A transaction of one statement is that statement alone.
            match self.database.transact(std::slice::from_ref(&statement)) {
                // SQLite lets one write at a time, and those who wait have no order: with many of
                // them somebody is left out until his patience ends.
                Err(DatabaseError::Busy(_)) if began.elapsed() < SETTLE => {}
                result => return result.map(drop).map_err(|error| error.to_string()),
            }
        }
    }
}

struct Stored {
    table: Table,
    limit: i64,
}

impl Recorder for Stored {
    fn record(&mut self, index: u32, org: u32) -> Result<(), String> {
        let sql = "SELECT * FROM counter WHERE OrganisationID = ?";
        let rows = self.table.database.query(sql, &[i64::from(org).into()]);
        let rows = rows.map_err(|error| error.to_string())?;
        if rows.first().is_none_or(|row| row[1].int() >= self.limit) {
            return Err("over the limit too early".into());
        }
        self.table.run(self.table.insert, index)?;
        self.table.run("UPDATE counter SET counter = counter + 1 WHERE OrganisationID = ?", org)
    }
}

struct Counted {
    table: Table,
    client: Client,
    limit: i64,
}

impl Recorder for Counted {
    fn record(&mut self, index: u32, org: u32) -> Result<(), String> {
        if read(&mut self.client, "GET", org)? >= self.limit {
            return Err("over the limit too early".into());
        }
        self.table.run(self.table.insert, index)?;
        read(&mut self.client, "INCR", org).map(drop)
    }
}
