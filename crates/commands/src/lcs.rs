//! LCS: the longest common subsequence of two strings.

use keyspace::value::Kind;
use resp::{Args, Writer};

use crate::command::{Command, READONLY, RO, range};
use crate::context::Context;
use crate::error::Error;
use crate::string::string_bytes;
use crate::words::{integer, is};

/// The row.
pub const ROW: Command = Command {
    name: "LCS",
    run: lcs,
    flags: READONLY,
    keys: &[range(1, 2, 1, RO)],
    usage: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    summary: "Finds the longest common subsequence of two strings.",
    complexity: "O(N*M), N and M = lengths of the strings",
    since: "7.0.0",
    ..Command::DEFAULT
};

/// LCS's options.
#[derive(Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

fn lcs_options(args: Args<'_>) -> Result<LcsOptions, Error> {
    let mut options = LcsOptions::default();
    let mut at = 3;
    while at < args.len() {
        let word = args.word(at);
        match args.get(at + 1) {
            _ if is(word, "LEN") => options.len = true,
            _ if is(word, "IDX") => options.idx = true,
            _ if is(word, "WITHMATCHLEN") => options.with_match_len = true,
            Some(value) if is(word, "MINMATCHLEN") => {
                options.min_match_len = integer(value)?.max(0) as usize;
                at += 1;
            }
            _ => return Err(Error::SYNTAX),
        }
        at += 1;
    }
    if options.len && options.idx {
        let text = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(Error::text(text));
    }
    Ok(options)
}

/// A run of the common subsequence: where it ends (exclusive) in both strings, and its length.
type Run = (usize, usize, usize);

fn lcs(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let options = lcs_options(args)?;
    for key in [args.word(1), args.word(2)] {
        if !matches!(cx.keys.kind(key), None | Some(Kind::String)) {
            let text = "ERR The specified keys must contain string values";
            return Err(Error::text(text));
        }
    }
    let (mut text1, mut text2) = (itoa::Buffer::new(), itoa::Buffer::new());
    let one = string_bytes(cx.keys.get(args.word(1)), &mut text1)?.unwrap_or_default();
    let two = string_bytes(cx.keys.get(args.word(2)), &mut text2)?.unwrap_or_default();
    const CELLS_MAX: usize = 1 << 28;
    if (one.len() + 1).saturating_mul(two.len() + 1) > CELLS_MAX {
        return Err(Error::text("ERR Insufficient memory, transient memory for LCS exceeds 1 GiB"));
    }
    let (len, common, runs) = common_subsequence(one, two);
    if options.idx {
        write_runs(cx.out, &options, len, &runs);
    } else if options.len {
        cx.out.count(len);
    } else {
        cx.out.bulk(&common);
    }
    Ok(())
}

/// Length, bytes and runs (last first) of the longest common subsequence, by the textbook table.
fn common_subsequence(one: &[u8], two: &[u8]) -> (usize, Vec<u8>, Vec<Run>) {
    let width = two.len() + 1;
    let mut table = vec![0u32; (one.len() + 1) * width];
    for (i, a) in one.iter().enumerate() {
        for (j, b) in two.iter().enumerate() {
            let (above, left) = (table[i * width + j + 1], table[(i + 1) * width + j]);
            let both = table[i * width + j] + 1;
            table[(i + 1) * width + j + 1] = if a == b { both } else { above.max(left) };
        }
    }
    let mut common = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    let (mut i, mut j) = (one.len(), two.len());
    while i > 0 && j > 0 {
        if one[i - 1] == two[j - 1] {
            common.push(one[i - 1]);
            match runs.last_mut() {
                Some((end1, end2, len)) if *end1 - *len == i && *end2 - *len == j => *len += 1,
                _ => runs.push((i, j, 1)),
            }
            (i, j) = (i - 1, j - 1);
        } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    common.reverse();
    (common.len(), common, runs)
}

fn write_runs(out: &mut Writer, options: &LcsOptions, len: usize, runs: &[Run]) {
    out.map(2);
    out.text("matches");
    let shown: Vec<&Run> = runs.iter().filter(|run| run.2 >= options.min_match_len).collect();
    out.array(shown.len());
    for (end1, end2, run) in shown {
        out.array(if options.with_match_len { 3 } else { 2 });
        for end in [end1, end2] {
            out.array(2);
            out.count(end - run);
            out.count(end - 1);
        }
        if options.with_match_len {
            out.count(*run);
        }
    }
    out.text("len");
    out.count(len);
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn longest_common_subsequence() {
        Client::new().check(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "$6 mytext"),
            ("LCS a b LEN", ":6"),
            (
                "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
                "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6",
            ),
        ]);
    }
}
