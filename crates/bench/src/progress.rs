//! Progress while an experiment runs: a bar where a person looks on, a line per measurement
//! where the output goes to a file.

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::harness::{Metric, Place, Sample};
use crate::report::format;

/// Progress of an experiment, on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    turns: usize,
    done: usize,
    label: String,
    began: Instant,
    /// Operations at the last look, to show the present speed and not the mean.
    last: (Instant, u64),
}

impl Progress {
    /// Progress of so many measurements.
    pub fn new(turns: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(
                Some(turns as u64),
                ProgressDrawTarget::stderr_with_hz(10),
            );
            let style = "{bar:28.cyan/blue} {pos}/{len} {elapsed_precise}<{eta_precise} {msg}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style.progress_chars("━━╌"));
            }
            bar
        });
        let now = Instant::now();
        Progress { bar, turns, done: 0, label: String::new(), began: now, last: (now, 0) }
    }

    /// A measurement begins.
    pub fn begin(&mut self, label: &str, round: u32, rounds: u32) {
        self.label = format!("{label} · round {round}/{rounds}");
        self.last = (Instant::now(), 0);
        if let Some(bar) = &self.bar {
            bar.set_message(self.label.clone());
            bar.tick();
        }
    }

    /// A measurement goes on; `operations` so far.
    pub fn show(&mut self, operations: u64) {
        let Some(bar) = &self.bar else { return };
        let seconds = self.last.0.elapsed().as_secs_f64();
        if seconds < 0.25 {
            return;
        }
        let per_second = operations.saturating_sub(self.last.1) as f64 / seconds;
        self.last = (Instant::now(), operations);
        bar.set_message(format!("{} · {}/s", self.label, format::si(per_second)));
    }

    /// A measurement has ended well.
    pub fn end(&mut self, metrics: &[Metric], sample: &Sample) {
        self.done += 1;
        let values: Vec<String> = metrics
            .iter()
            .filter(|metric| metric.place != Place::File)
            .filter_map(|metric| {
                let value = sample.values.get(metric.key)?;
                Some(format!("{} {}", metric.label, format::value(*value, metric.unit)))
            })
            .collect();
        self.step(&format!("{}  {}", self.label, values.join("  ")));
    }

    /// A measurement could not be made.
    pub fn fail(&mut self, label: &str, error: &str) {
        self.done += 1;
        self.step(&format!("{label}: FAILED: {error}"));
    }

    fn step(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => {
                let (done, turns) = (self.done, self.turns);
                eprintln!("[{done}/{turns} {:.0}s] {line}", self.began.elapsed().as_secs_f64());
            }
        }
    }

    /// The last measurement has ended.
    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
