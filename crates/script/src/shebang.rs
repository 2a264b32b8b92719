//! The first line of a script or library: `#!lua name=... flags=...`.

use resp::request::split_line;

/// What a script says about itself.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// It changes nothing.
    pub const NO_WRITES: Flags = Flags(1);
    /// It may run when memory is short.
    pub const ALLOW_OOM: Flags = Flags(2);
    /// It may run on a replica that lost its primary.
    pub const ALLOW_STALE: Flags = Flags(4);
    /// It may not run in a cluster.
    pub const NO_CLUSTER: Flags = Flags(8);
    /// Its keys may be in different slots.
    pub const ALLOW_CROSS_SLOT: Flags = Flags(16);
    /// A script without such a line: what it does is found out when it does it.
    pub const COMPATIBLE: Flags = Flags(32);

    /// Those with a name, in the order of FUNCTION LIST.
    pub const NAMES: [(Flags, &str); 5] = [
        (Flags::NO_WRITES, "no-writes"),
        (Flags::ALLOW_OOM, "allow-oom"),
        (Flags::ALLOW_STALE, "allow-stale"),
        (Flags::NO_CLUSTER, "no-cluster"),
        (Flags::ALLOW_CROSS_SLOT, "allow-cross-slot-keys"),
    ];

    /// The flag of this name.
    pub fn named(name: &[u8]) -> Option<Flags> {
        Self::NAMES.iter().find(|(_, text)| text.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// Both.
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are in here.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Splits off a first line that begins with `#!`; the rest begins with its line feed, so that lines
/// are counted as the author sees them.
fn split(code: &[u8]) -> Option<Option<(&[u8], &[u8])>> {
    if !code.starts_with(b"#!") {
        return None;
    }
    let end = code.iter().position(|byte| *byte == b'\n');
    Some(end.map(|end| code.split_at(end)))
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The flags of a script and its code without the first line if that is one of these; `Err` says
/// what is wrong with it.
pub fn of_script(code: &[u8]) -> Result<(Flags, &[u8]), String> {
    let (line, rest) = match split(code) {
        None => return Ok((Flags::COMPATIBLE, code)),
        Some(None) => return Err("Invalid script shebang".into()),
        Some(Some(parts)) => parts,
    };
    let parts = split_line(line).filter(|parts| !parts.is_empty());
    let parts = parts.ok_or("Invalid engine in script shebang")?;
    if parts[0] != b"#!lua" {
        return Err(format!("Unexpected engine in script shebang: {}", lossy(&parts[0])));
    }
    let mut flags = Flags::default();
    for part in &parts[1..] {
        let Some(list) = part.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", lossy(part)));
        };
        if list.is_empty() {
            continue;
        }
        for name in list.split(|byte| *byte == b',') {
            let flag = Flags::named(name);
            let unknown = || format!("Unexpected flag in script shebang: {}", lossy(name));
            flags = flags.with(flag.ok_or_else(unknown)?);
        }
    }
    Ok((flags, rest))
}

/// What a library's first line says.
#[derive(Debug, PartialEq, Eq)]
pub struct Header<'c> {
    /// The language: `lua`.
    pub engine: Vec<u8>,
    /// The library's name.
    pub name: Vec<u8>,
    /// The code behind the line.
    pub code: &'c [u8],
}

/// Reads a library's first line; `Err` says what is wrong with it.
pub fn of_library(code: &[u8]) -> Result<Header<'_>, String> {
    let (line, rest) = match split(code) {
        None => return Err("Missing library metadata".into()),
        Some(None) => return Err("Invalid library metadata".into()),
        Some(Some(parts)) => parts,
    };
    let parts = split_line(line).filter(|parts| !parts.is_empty());
    let parts = parts.ok_or("Invalid library metadata")?;
    let mut name = None;
    for part in &parts[1..] {
        let is_name = part.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"name="));
        if !is_name {
            return Err(format!("Invalid metadata value given: {}", lossy(part)));
        }
        if name.is_some() {
            let text = "Invalid metadata value, name argument was given multiple times";
            return Err(text.into());
        }
        name = Some(part[5..].to_vec());
    }
    let name = name.ok_or("Library name was not given")?;
    Ok(Header { engine: parts[0][2..].to_vec(), name, code: rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_say_what_they_do() {
        assert_eq!(of_script(b"return 1"), Ok((Flags::COMPATIBLE, &b"return 1"[..])));
        assert_eq!(of_script(b"#!lua\nreturn 1"), Ok((Flags::default(), &b"\nreturn 1"[..])));
        let both = Flags::NO_WRITES.with(Flags::ALLOW_STALE);
        assert_eq!(of_script(b"#!lua flags=no-writes,allow-stale\n"), Ok((both, &b"\n"[..])));
        for (code, want) in [
            ("#!lua", "Invalid script shebang"),
            ("#!not-lua\n", "Unexpected engine in script shebang: #!not-lua"),
            ("#!lua bad=1\n", "Unknown lua shebang option: bad=1"),
            ("#!lua flags=bad\n", "Unexpected flag in script shebang: bad"),
        ] {
            assert_eq!(of_script(code.as_bytes()), Err(want.to_string()));
        }
    }

    #[test]
    fn libraries_have_names() {
        let header = of_library(b"#!lua name=mine\nx").expect("a header");
        assert_eq!((header.engine, header.name), (b"lua".to_vec(), b"mine".to_vec()));
        for (code, want) in [
            ("x", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua foo=a\n", "Invalid metadata value given: foo=a"),
        ] {
            assert_eq!(of_library(code.as_bytes()), Err(want.to_string()));
        }
    }
}
