//! What is written from the tables of commands and options: the shells' completions, the manual
//! page, docs/commands.md; and the looks at a configuration, `forebay config`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Arg, Args, Command, Subcommand};
use server::conf_file::{Configuration, directives};
use server::option_table::TABLE;
use server::options::{Kind, Row, When};

/// The configuration is wrong: as `forebay serve` ends then.
const EXIT_USAGE: u8 = 2;

/// `forebay config`.
#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    look: Look,
}

#[derive(Subcommand)]
enum Look {
    /// Say what is wrong with a configuration, if anything is: forebay config check FILE
    Check(Words),
    /// Print every option in effect, as a redis.conf
    Print(Words),
}

#[derive(Args)]
struct Words {
    /// A configuration file and options, as for forebay serve
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILE")]
    words: Vec<String>,
}

/// Runs `forebay config`.
pub fn config(args: ConfigArgs) -> ExitCode {
    let (words, prints) = match args.look {
        Look::Check(Words { words }) => (words, false),
        Look::Print(Words { words }) => (words, true),
    };
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match Configuration::read(&words, environment) {
        Ok(configuration) => {
            let warnings = &configuration.warnings;
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            written(if prints { options(&configuration) } else { "It is sound.\n".into() })
        }
        Err(error) => {
            eprintln!("forebay config: {}", error.as_line());
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Every option in effect; passwords only as comments that there is one.
fn options(configuration: &Configuration) -> String {
    let mut text = String::new();
    let mut section = "";
    for (index, row) in TABLE.iter().enumerate().filter(|(_, row)| row.when != When::NoEffect) {
        if row.section != section {
            section = row.section;
            text += &format!("\n# {section}\n");
        }
        let value = configuration.options.text(index);
        if value.is_empty() {
            continue;
        } else if matches!(row.kind, Kind::Secret) {
            text += &format!("# {} is set\n", row.name);
        } else {
            text += &(directives(index, &configuration.options).join("\n") + "\n");
        }
    }
    text.trim_start().to_string()
}

/// The program's options and commands, those of `serve` from the table.
fn described(program: Command) -> Command {
    let program = program.mut_subcommand("serve", |serve| {
        let rows = TABLE.iter().filter(|row| row.when != When::NoEffect);
        let file = Arg::new("CONFIG-FILE").help("A redis.conf; - = standard input");
        serve.arg(file).args(rows.map(option)).disable_version_flag(true)
    });
    program.mut_subcommands(|command| command.disable_help_subcommand(true))
}

fn option(row: &Row) -> Arg {
    let arg = Arg::new(row.name).long(row.name).help(row.doc);
    match row.kind {
        Kind::Bool => arg.value_name("yes|no").value_parser(["yes", "no"]),
        Kind::Enum(names) => arg.value_name("WORD").value_parser(names.to_vec()),
        Kind::Int(..) | Kind::Octal(_) => arg.value_name("NUMBER"),
        Kind::Bytes(..) | Kind::Percent(..) => arg.value_name("SIZE"),
        Kind::Text | Kind::Secret | Kind::Words(_) => arg.value_name("TEXT"),
    }
}

/// Prints a shell's completions.
pub fn completions(program: Command, shell: clap_complete::Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut described(program), "forebay", &mut text);
    written(text)
}

/// Prints the manual page.
pub fn manual(program: Command) -> ExitCode {
    let mut page = Vec::new();
    let render = |command: &Command, page: &mut Vec<u8>| {
        let man = clap_mangen::Man::new(command.clone());
        man.render_description_section(page).and_then(|()| man.render_options_section(page))
    };
    let program = described(program);
    let man = clap_mangen::Man::new(program.clone());
    let mut all = man.render(&mut page);
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        all = all.and_then(|()| {
            writeln!(page, ".SH \"{}\"", format!("forebay {}", command.get_name()).to_uppercase())?;
            render(command, &mut page)
        });
    }
    // Writing to memory cannot fail.
    all.expect("a page in memory");
    written(page)
}

/// docs/commands.md.
pub fn commands() -> String {
    let families = crate::serve::families();
    commands::introspect::markdown(&commands::registry::Registry::new(&families))
}

/// Writes to standard output; a reader that has gone is none of our business.
pub fn written(text: impl AsRef<[u8]>) -> ExitCode {
    let _ = io::stdout().lock().write_all(text.as_ref());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_commands_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(text == commands(), "write it anew: cargo run -- commands > docs/commands.md");
    }

    #[test]
    fn what_is_printed_reads_back() {
        let args = ["--loglevel", "debug", "--maxmemory", "1gb", "--requirepass", "secret"];
        let args = args.map(str::to_string);
        let configuration = Configuration::read(&args, []).expect("it is sound");
        let text = options(&configuration);
        assert!(text.contains("\nmaxmemory 1gb\n") && !text.contains("secret"), "{text}");
        let path = std::env::temp_dir().join(format!("forebay-print-{}.conf", std::process::id()));
        std::fs::write(&path, &text).expect("a file");
        let again = Configuration::read(&[path.to_string_lossy().into_owned()], []);
        std::fs::remove_file(&path).expect("it was written");
        let set = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_string).collect()
        };
        assert_eq!(set(&options(&again.expect("it reads back"))), set(&text));
    }
}
