//! Four connections that read a database while a fifth writes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::client::Client;
use crate::harness::{Sample, Turn};
use crate::load::{self, Plan};
use crate::measured;
use crate::sql::rungs;
use crate::sql::{Ladder, count_rows, set_up};
use crate::target::Target;
use crate::workload::Workload;

/// Connections that read.
const READERS: usize = 4;

impl Ladder {
    /// Measures the readers; the writer's rows are counted.
    pub(super) fn readers(
        &self,
        turn: Turn,
        target: &Target,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let rung = self.rungs[turn.cell];
        let mut client = self.connect(target)?;
        set_up(&mut client, rung)?;
        let load = Workload::new(&[rung.test], rungs::KEYS, 3);
        let plan = Plan { clients: READERS, cores: &[], ..self.plan(target, &load, turn) };
        let (is_over, writer) = (AtomicBool::new(false), self.connect(target)?);
        let (outcome, written) = thread::scope(|scope| {
            let writing = scope.spawn(|| write(writer, rung.db, &is_over));
            let outcome = load::run(&plan, live).map_err(|error| error.to_string());
            is_over.store(true, Ordering::Relaxed);
            let written = writing.join().map_err(|_| "the writer panicked".to_string())?;
            Ok::<_, String>((outcome?, written?))
        })?;
        let mut sample = measured::sample_of(&outcome, &plan);
        sample.values.insert("writes_per_s", written.1);
        count_rows(&mut client, rung, written.0, &mut sample);
        Ok(sample)
    }
}

/// Inserts rows one by one; how many, and how many a second.
fn write(mut client: Client, db: &str, is_over: &AtomicBool) -> Result<(u64, f64), String> {
    let (mut count, began) = (0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let reply = client.command(&["REDISQL.EXEC_STATEMENT", db, "insert", "1", "2", "3"]);
        reply.map_err(|error| format!("writer: {error}"))?;
        count += 1;
    }
    Ok((count, count as f64 / began.elapsed().as_secs_f64()))
}
