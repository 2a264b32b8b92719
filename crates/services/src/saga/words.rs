//! The words of dtm's protocol, each an enum with one table: kinds of transactions, states of
//! transactions and branches, operations (dtm, `client/dtmcli/consts.go` and
//! `client/dtmcli/dtmimp/consts.go`).
//!
//! **Invariant:** the numbers are in the log: a word keeps its place in its table.

/// Declares an enum whose values are words of a protocol and numbers of the log.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$value_doc])* $value,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$value,)*];

            /// The word.
            pub fn word(self) -> &'static str {
                match self { $($name::$value => $word,)* }
            }

            /// The value with this word.
            pub fn of_word(word: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|value| value.word() == word)
            }

            /// The value with this number.
            pub fn of_number(number: u8) -> Option<$name> {
                Self::ALL.get(number as usize).copied()
            }
        }
    };
}

words! {
    /// What kind of transaction it is.
    Kind {
        /// Steps with compensations.
        Saga = "saga",
        /// A message in two phases: sent if and only if the local transaction was committed.
        Msg = "msg",
        /// Try, confirm, cancel.
        Tcc = "tcc",
        /// Two-phase commit by the participants' databases.
        Xa = "xa",
        /// Driven by a client whose progress is kept here.
        Workflow = "workflow",
    }
}

words! {
    /// Where a transaction stands.
    Status {
        /// Announced; its outcome is open.
        Prepared = "prepared",
        /// To be carried out.
        Submitted = "submitted",
        /// To be undone.
        Aborting = "aborting",
        /// Carried out.
        Succeed = "succeed",
        /// Undone.
        Failed = "failed",
    }
}

impl Status {
    /// Whether nothing happens any more.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Succeed | Status::Failed)
    }
}

words! {
    /// Where a branch stands.
    BranchStatus {
        /// Not done yet.
        Prepared = "prepared",
        /// Done.
        Succeed = "succeed",
        /// Refused.
        Failed = "failed",
    }
}

words! {
    /// What a branch is asked to do.
    Op {
        /// A saga's or a message's step.
        Action = "action",
        /// Undoes a saga's step.
        Compensate = "compensate",
        /// Carries out what a try reserved.
        Confirm = "confirm",
        /// Gives back what a try reserved.
        Cancel = "cancel",
        /// Commits a prepared XA branch.
        Commit = "commit",
        /// Rolls a prepared XA branch back.
        Rollback = "rollback",
        /// Asks for the outcome of a prepared message.
        Msg = "msg",
        /// A result that a workflow recorded under a name of its own.
        Try = "try",
    }
}

words! {
    /// Why a transaction stands still.
    Hold {
        /// It does not.
        None = "",
        /// An operator said so.
        Paused = "paused",
        /// A branch used up its attempts: an operator has to decide.
        Dead = "dead",
    }
}

words! {
    /// What must be safe before an answer or a call leaves.
    Durability {
        /// Both: written to the operating system.
        None = "none",
        /// Both: written to the operating system, and on the disk within a second.
        EverySecond = "everysec",
        /// Both: on the disk (group commit).
        Always = "always",
    }
}

words! {
    /// What came of an attempt.
    Verdict {
        /// The branch did it.
        Success = "success",
        /// The branch refused.
        Failure = "failure",
        /// The branch is at it: ask again.
        Ongoing = "ongoing",
        /// Nobody knows: ask again.
        Unknown = "unknown",
        /// An operator decided.
        Operator = "operator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_name_the_same_values() {
        for &status in Status::ALL {
            assert_eq!(Status::of_word(status.word()), Some(status));
            assert_eq!(Status::of_number(status as u8), Some(status));
        }
        assert_eq!(Kind::of_word("sagas"), None);
        assert_eq!(Op::of_number(200), None);
        assert_eq!(Status::Succeed.word(), "succeed");
    }
}
