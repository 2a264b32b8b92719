//! Writing metrics in Prometheus's text format 0.0.4.

use std::fmt::Write;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations by size: its samples end in `_bucket`, `_sum` and `_count`.
    Histogram,
}

/// A page of metrics.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Begins a metric: its samples follow.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for letter in text.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines() {
        let mut page = Page::default();
        page.metric("a_total", Kind::Counter, "Of a.");
        page.sample("a_total", &[], 3.0);
        page.sample("a_total", &[("x", "q\"\\\n"), ("y", "")], 0.5);
        let want = "# HELP a_total Of a.\n# TYPE a_total counter\na_total 3\n\
                    a_total{x=\"q\\\"\\\\\\n\",y=\"\"} 0.5\n";
        assert_eq!(page.into_text(), want);
    }
}
