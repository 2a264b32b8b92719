//! Checks of options that are several words. Each takes the option's present value and the new
//! words, and returns the text that CONFIG GET shows.

use keyspace::effects::class;

use crate::options::bytes;
use crate::shared::OutputLimits;

const COUNT: &str = "wrong number of arguments";

fn joined(words: &[&str]) -> String {
    words.iter().copied().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `bind`: up to 16 addresses; none = do not listen.
pub fn bind(_: &str, words: &[&str]) -> Result<String, String> {
    if words.len() > 16 {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(joined(words))
}

/// `save`: pairs of seconds and changes; none = never. Words of one directive, or all of them.
pub fn save(_: &str, words: &[&str]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    let is_valid = |(index, word): (usize, &&str)| {
        word.parse::<i32>().is_ok_and(|number| number >= i32::from(index % 2 == 0))
    };
    if !words.len().is_multiple_of(2) || !words.iter().enumerate().all(is_valid) {
        return Err("Invalid save parameters".into());
    }
    Ok(words.join(" "))
}

/// `shutdown-on-sigint` and `-sigterm`.
pub fn shutdown(_: &str, words: &[&str]) -> Result<String, String> {
    const NAMES: [&str; 5] = ["default", "save", "nosave", "now", "force"];
    let words: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    if words.is_empty() || !words.iter().all(|word| NAMES.contains(&word.as_str())) {
        let names = NAMES.join(", ");
        return Err(format!("argument(s) must be one of the following: {names}"));
    }
    if words.iter().any(|word| word == "save") && words.iter().any(|word| word == "nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    Ok(words.join(" "))
}

/// `oom-score-adj-values`: three numbers.
pub fn oom_values(_: &str, words: &[&str]) -> Result<String, String> {
    if words.len() != 3 {
        return Err(COUNT.into());
    }
    let in_range = |word: &&str| word.parse::<i32>().is_ok_and(|n| (-2000..=2000).contains(&n));
    if !words.iter().all(in_range) {
        let text = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        return Err(text.into());
    }
    Ok(words.join(" "))
}

/// The classes of `client-output-buffer-limit`, in their order.
pub const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// `client-output-buffer-limit`: class, hard, soft, seconds, for one class or several; the others
/// stay as they are.
pub fn output_limits(current: &str, words: &[&str]) -> Result<String, String> {
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut limits = limits_of(current);
    for four in words.chunks(4) {
        let class = if four[0].eq_ignore_ascii_case("replica") { "slave" } else { four[0] };
        let place = CLASSES.iter().position(|name| name.eq_ignore_ascii_case(class));
        // As in Redis, the primary's own link has no such limit.
        let place = place.ok_or("Invalid client class specified in buffer limit configuration.")?;
        let size = |text: &str| bytes(text).map(|number| number as u64);
        let numbers = (size(four[1]), size(four[2]), four[3].parse::<u64>().ok());
        let (Some(hard_bytes), Some(soft_bytes), Some(soft_seconds)) = numbers else {
            let text = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            return Err(text.into());
        };
        limits[place] = OutputLimits { hard_bytes, soft_bytes, soft_seconds };
    }
    let text = |(name, limit): (&&str, &OutputLimits)| {
        format!("{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
    };
    Ok(CLASSES.iter().zip(&limits).map(text).collect::<Vec<_>>().join(" "))
}

/// The limits that the option's text says, by [`CLASSES`].
pub fn limits_of(text: &str) -> [OutputLimits; 3] {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(0);
    [0, 4, 8].map(|at| OutputLimits {
        hard_bytes: number(at + 1),
        soft_bytes: number(at + 2),
        soft_seconds: number(at + 3),
    })
}

/// `notify-keyspace-events`: letters, written in Redis's order.
pub fn events(_: &str, words: &[&str]) -> Result<String, String> {
    let letters = match words {
        [letters] => *letters,
        [] => "",
        _ => return Err(COUNT.into()),
    };
    let mask = event_mask(letters)
        .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_string())?;
    let all = mask & class::ALL == class::ALL;
    let shown = class::LETTERS.iter().filter(|(letter, bits)| {
        if *letter == 'A' { all } else { mask & bits != 0 && !(all && bits & class::ALL != 0) }
    });
    Ok(shown.map(|(letter, _)| *letter).collect())
}

/// The classes that letters stand for.
pub fn event_mask(letters: &str) -> Option<u32> {
    let bits = |letter| class::LETTERS.iter().find(|(name, _)| *name == letter).map(|(_, b)| *b);
    letters.chars().try_fold(0, |mask, letter| Some(mask | bits(letter)?))
}

/// `latency-tracking-info-percentiles`: numbers from 0 to 100; none = no percentiles.
pub fn percentiles(_: &str, words: &[&str]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    let mut shown = Vec::new();
    for word in words {
        let number: f64 = word
            .parse()
            .map_err(|_| "Invalid latency-tracking-info-percentiles parameters".to_string())?;
        if !(0.0..=100.0).contains(&number) {
            let text = "latency-tracking-info-percentiles parameters should sit between \
                        [0.0,100.0]";
            return Err(text.into());
        }
        shown.push(number.to_string());
    }
    Ok(shown.join(" "))
}

/// `replicaof`: this server follows nobody yet.
pub fn primary(_: &str, words: &[&str]) -> Result<String, String> {
    match words {
        [] | [""] => Ok(String::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => {
            Ok(String::new())
        }
        _ => Err("replication is not there yet".into()),
    }
}

/// `cluster-enabled`: only `no`.
pub fn off(_: &str, words: &[&str]) -> Result<String, String> {
    match words {
        [word] if word.eq_ignore_ascii_case("no") => Ok("no".into()),
        [word] if word.eq_ignore_ascii_case("yes") => Err("cluster mode is not there yet".into()),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

/// `aclfile`: refused rather than ignored, since it would take rights away.
pub fn no_user_file(_: &str, words: &[&str]) -> Result<String, String> {
    if joined(words).is_empty() {
        return Ok(String::new());
    }
    Err("files of users are not there yet".into())
}

/// `user`: refused rather than ignored, unless it says what holds anyway: the default user with all
/// rights. Its password is `requirepass`.
pub fn user(_: &str, words: &[&str]) -> Result<String, String> {
    const ALL: [&str; 11] = [
        "on",
        "nopass",
        "reset",
        "~*",
        "allkeys",
        "&*",
        "allchannels",
        "+@all",
        "allcommands",
        "sanitize-payload",
        "skip-sanitize-payload",
    ];
    match words {
        [] | [""] => Ok(String::new()),
        ["default", rules @ ..] if rules.iter().all(|rule| ALL.contains(rule)) => Ok(joined(words)),
        _ => Err("users of the access list are not there yet: only 'user default on nopass ~* &* \
                  +@all'; for a password, requirepass"
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_in_order() {
        let cases =
            [("KEA", "AKE"), ("Ex", "xE"), ("KElshg$zxetd", "AKE"), ("", ""), ("mnK", "Kmn")];
        for (letters, shown) in cases {
            assert_eq!(events("", &[letters]).as_deref(), Ok(shown), "{letters}");
        }
        assert!(events("", &["q"]).is_err());
    }

    #[test]
    fn one_class_of_limits_changes_alone() {
        let default = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let set = output_limits(default, &["pubsub", "1mb", "2k", "3"]);
        let want = "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 2000 3";
        assert_eq!(set.as_deref(), Ok(want));
        for wrong in [&["normal", "1", "2"][..], &["x", "1", "2", "3"], &["normal", "a", "2", "3"]]
        {
            assert!(output_limits(default, wrong).is_err());
        }
    }

    #[test]
    fn save_points_come_in_pairs() {
        assert_eq!(save("", &["900", "1", "300", "10"]).as_deref(), Ok("900 1 300 10"));
        assert_eq!(save("", &[""]).as_deref(), Ok(""));
        for wrong in [&["900"][..], &["0", "1"], &["a", "1"], &["1", "-1"]] {
            assert!(save("", wrong).is_err());
        }
    }
}
