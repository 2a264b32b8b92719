//! The house style, as far as a program can see it.
//!
//! ```text
//!   tidy.rs          walks the workspace, gives each file to the rules, prints what they find
//!   tidy/source.rs   a source file with comments and strings blanked out, its test code marked
//!   tidy/rules.rs    the rules: one function each
//!   tidy/allowed.rs  the exceptions, each with its reason
//! ```
//!
//! **Invariant:** an exception that no longer excepts anything is itself a finding.

mod allowed;
mod rules;
mod source;

use source::Source;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN_FOLDERS: &[&str] =
    &["target", ".git", ".conformance", "node_modules", "__pycache__", "corpus", "artifacts"];
/// Files that people write, by the ends of their names; scripts without one are in `SCRIPTS`.
const WRITTEN_FILES: &[&str] = &["rs", "py", "js", "php", "sh"];
const SCRIPTS: &[&str] = &["test", ".ci/run", "tests/cli/smoke"];

/// Something that breaks a rule, and where. Line 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

/// Checks the workspace, prints the findings, and says whether there are none.
pub fn run(root: &Path) -> bool {
    let (files_count, findings) = check(root);
    for Finding { path, line, what } in &findings {
        println!("{path}:{line}: {what}");
    }
    println!("tidy: {files_count} files, {} findings", findings.len());
    findings.is_empty()
}

fn check(root: &Path) -> (usize, Vec<Finding>) {
    let mut paths = Vec::new();
    walk(root, &mut paths);
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let relative = path.strip_prefix(root).expect("found below the root");
        sources.push(Source::new(&relative.to_string_lossy().replace('\\', "/"), &text));
    }
    let mut findings: Vec<Finding> = sources.iter().flat_map(rules::of_one_file).collect();
    findings.extend(rules::of_all_files(&sources));
    findings.sort();
    (sources.len(), findings)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            if !FOREIGN_FOLDERS.contains(&name.as_str()) {
                walk(&path, found);
            }
        } else if kind.is_file() {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            let is_script = SCRIPTS.iter().any(|script| path.ends_with(script));
            if WRITTEN_FILES.contains(&extension.as_ref()) || is_script {
                found.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let (files_count, findings) = super::check(&crate::root());
        assert!(files_count > 0);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
