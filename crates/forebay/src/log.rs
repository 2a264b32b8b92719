//! The log: where it goes, how a line looks, what is worth one. Levels are those of redis.conf:
//! debug, verbose, notice, warning, nothing.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::Mutex;

use server::options::{Options, index_of};
use server::shared::SetLogLevel;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, reload};

fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

/// Begins to log as the options say. Returns what changes the level later.
pub fn begin(options: &Options) -> Result<SetLogLevel, String> {
    let file = options.text(const { index_of("logfile") });
    let name = options.text(const { index_of("loglevel") });
    let writer = if file.is_empty() {
        BoxMakeWriter::new(std::io::stdout)
    } else {
        let opened = OpenOptions::new().create(true).append(true).open(&file);
        let why = |error| format!("Can't open the log file: {}", server::sys::error_text(&error));
        BoxMakeWriter::new(Mutex::new(opened.map_err(why)?))
    };
    let (filter, handle) = reload::Layer::new(level(&name));
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(writer);
    let colours = file.is_empty() && std::io::stdout().is_terminal();
    let lines = match options.text(const { index_of("log-format") }).as_str() {
        "json" => lines.json().flatten_event(true).boxed(),
        "logfmt" => lines.event_format(Logfmt).boxed(),
        _ => lines.with_ansi(colours).boxed(),
    };
    let begun = tracing_subscriber::registry().with(filter).with(lines).try_init();
    begun.map_err(|error| error.to_string())?;
    Ok(Box::new(move |name| {
        // It fails only when the log is gone.
        let _ = handle.modify(|filter| *filter = level(name));
    }))
}

/// `time=... level=info message="..." key=value`
struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        writer.write_str("time=")?;
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let mut pairs = Pairs(format!(" level={level}"));
        event.record(&mut pairs);
        writeln!(writer, "{}", pairs.0)
    }
}

struct Pairs(String);

impl Pairs {
    fn pair(&mut self, field: &Field, text: &str) {
        let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '=' | '\\');
        let _ = if !text.is_empty() && text.chars().all(plain) {
            write!(self.0, " {}={text}", field.name())
        } else {
            write!(self.0, " {}={text:?}", field.name())
        };
    }
}

impl Visit for Pairs {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.pair(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.pair(field, &format!("{value:?}"));
    }
}
